"""Who follows an organisation's events in this process? One reader, a bounded queue a client.

A single thread reads the streams of all organisations that have clients and hands each event
to those whom it concerns. Streams (A21) and held requests (A27) are clients alike and count
under one limit, since each holds a thread. A client that does not take what it gets is let go,
counted, and comes back with its Last-Event-ID; nobody waits for it.

Of the places of the process nobody may take all: they are counted by organisation, and those in
which clients of the formation wait, whose organisation is one, by client.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from jobs.domain.errors import StoreUnavailableError
from jobs.metrics import STREAM_CLIENTS, STREAM_DROPPED
from jobs.store.events import READ_COUNT, Event, Events, Gap, Pulse
from service.errors import StreamsExhaustedError

BLOCK_MS: Final = 100
"""One read waits so long: an organisation's first client is heard of within this time."""

PULSE_EVERY_S: Final = 1.0
QUEUE_MAX: Final = 1000
BLIND_AFTER_S: Final = 1800.0
"""A reader that could not read for this long may have missed a stream that expired meanwhile."""

RETRY_AFTER_S: Final = 5
PAUSE_MAX_S: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Item:
    """One event, or a gap: what came up to `seq` can't be told, and is to be read anew."""

    seq: int
    event: Event | None = None
    gap: Gap | None = None


Wanted = Callable[[Event], bool]


@dataclass(frozen=True, slots=True)
class Share:
    """Whose places are counted together: `scope` (organisation or client) is what refusals call
    it, `name` which one."""

    scope: str
    name: str


ORGANISATION: Final = "organisation"
CLIENT: Final = "client"
PROCESS: Final = "process"


class Subscription:
    """A client's place in the fan-out; a context manager that gives the place back.

    It gets every event of its organisation after `joined_at` that it wants, in order.
    """

    def __init__(
        self,
        fanout: Fanout,
        org_id: str,
        share: Share,
        wanted: Wanted,
        on_drop: Callable[[], None],
    ) -> None:
        self.org_id = org_id
        self.share = share
        self.joined_at = 0
        self._fanout = fanout
        self._wanted = wanted
        self._on_drop = on_drop
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_over(self) -> bool:
        """Whether nothing will come any more: dropped, closed, or the process is ending."""
        return self._is_over

    def take(self, timeout_s: float) -> list[Item]:
        """All that has come, waiting up to `timeout_s` for the first; empty also when over."""
        with self._changed:
            if not self._items and not self._is_over:
                self._changed.wait(timeout_s)
            items = list(self._items)
            self._items.clear()
            return items

    def close(self) -> None:
        """Give the place back; any number of times."""
        self.end()
        self._fanout.leave(self)

    def end(self) -> None:
        """Let the client's thread go."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def offer(self, items: Sequence[Item]) -> bool:
        """Queue what is wanted of `items`; False, once, where the client is dropped by it."""
        wanted = [item for item in items if item.event is None or self._wanted(item.event)]
        if not wanted:
            return True
        with self._changed:
            if self._is_over:
                return True
            if len(self._items) + len(wanted) <= QUEUE_MAX:
                self._items.extend(wanted)
                self._changed.notify_all()
                return True
            self._is_over = True
            self._items.clear()
            self._changed.notify_all()
        # Its thread may hang in a send that nobody takes.
        with suppress(OSError):
            self._on_drop()
        return False


@dataclass(slots=True)
class _Room:
    """The clients of one organisation, who have been offered everything up to `position`."""

    position: int
    clients: set[Subscription] = field(default_factory=set)


class Fanout:
    """The one reader of a web process and its clients; safe to use from any thread.

    `limit` bounds the clients of the process, `limit_per_org` those of one share of it.
    """

    def __init__(self, events: Events, *, limit: int, limit_per_org: int) -> None:
        self._events = events
        self._limit = limit
        self._limit_per_org = limit_per_org
        self._lock = threading.Lock()
        self._has_clients = threading.Condition(self._lock)
        self._rooms: dict[str, _Room] = {}
        self._places: Counter[Share] = Counter()
        self._reader: threading.Thread | None = None
        self._is_closed = False

    @property
    def clients(self) -> int:
        """How many places are taken."""
        with self._lock:
            return self._places.total()

    def subscribe(
        self,
        org_id: str,
        wanted: Wanted = lambda _event: True,
        on_drop: Callable[[], None] = lambda: None,
        *,
        client_id: str | None = None,
    ) -> Subscription:
        """A place among the clients of `org_id`, for the events that are `wanted`; `on_drop`
        is called, by the reader, where the client is dropped for being slow. `client_id` names the
        client of the formation that waits, whose place counts as its own.

        Raises StreamsExhaustedError where no place is left, and StoreUnavailableError.
        """
        share = Share(ORGANISATION, org_id) if client_id is None else Share(CLIENT, client_id)
        subscription = Subscription(self, org_id, share, wanted, on_drop)
        self._take_place(share)
        try:
            known = self._positions().get(org_id, 0)
            # All moves up to this number are in the stream.
            seq = self._events.last_seq()
        except BaseException:
            self._give_place(share)
            raise
        if seq < known:
            self._hand_out(org_id, [Item(seq, gap=Gap.UNKNOWN_ID)])
        with self._lock:
            if self._is_closed:
                subscription.end()
            room = self._rooms.setdefault(org_id, _Room(seq))
            room.clients.add(subscription)
            subscription.joined_at = room.position
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._read_for_ever, name="event-reader", daemon=True
                )
                self._reader.start()
            self._has_clients.notify_all()
        STREAM_CLIENTS.inc()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Take a client out; the last one of an organisation ends the reading of its stream."""
        org_id = subscription.org_id
        with self._lock:
            room = self._rooms.get(org_id)
            if room is None or subscription not in room.clients:
                return
            room.clients.remove(subscription)
            if not room.clients:
                del self._rooms[org_id]
        self._give_place(subscription.share)
        STREAM_CLIENTS.dec()

    def close(self) -> None:
        """Let every client go and the reader end: the process is about to."""
        with self._lock:
            self._is_closed = True
            clients = [client for room in self._rooms.values() for client in room.clients]
            self._has_clients.notify_all()
        for client in clients:
            client.end()

    def _take_place(self, share: Share) -> None:
        scope, limit = share.scope, self._limit_per_org
        with self._lock:
            if self._is_closed or self._places.total() >= self._limit:
                scope, limit = PROCESS, self._limit
            elif self._places[share] < self._limit_per_org:
                self._places[share] += 1
                return
        raise StreamsExhaustedError(scope, limit, RETRY_AFTER_S, is_chat=share.scope == CLIENT)

    def _give_place(self, share: Share) -> None:
        with self._lock:
            self._places[share] -= 1
            if not self._places[share]:
                del self._places[share]

    def _read_for_ever(self) -> None:
        reading = _Reading(self._events)
        failures = 0
        while True:
            if self._wait_for_clients():
                reading = _Reading(self._events)
            positions = self._positions()
            if self._is_closed:
                return
            try:
                for org_id, items in reading.look(positions):
                    self._hand_out(org_id, items, positions[org_id])
                failures = 0
            except Exception as error:
                # The reader outlives whatever it meets: all clients hang on it.
                away = isinstance(error, StoreUnavailableError)
                if failures == 0 or not away:
                    log.warning("the event reader pauses", exc_info=None if away else error)
                failures += 1
                time.sleep(min(PAUSE_MAX_S, 0.1 * 2 ** min(failures, 5)))

    def _wait_for_clients(self) -> bool:
        """Until there are some; whether there were none, and nothing is to be told of before."""
        with self._lock:
            waited = False
            while not self._rooms and not self._is_closed:
                waited = True
                self._has_clients.wait()
            return waited

    def _positions(self) -> dict[str, int]:
        """Where to read on, by organisation."""
        with self._lock:
            return {org_id: room.position for org_id, room in self._rooms.items()}

    def _hand_out(self, org_id: str, items: Sequence[Item], read_after: int = 0) -> None:
        """Offer what was read after a number to all clients of an organisation."""
        with self._lock:
            room = self._rooms.get(org_id)
            # A room that a gap put back meanwhile is behind this read, which has a hole for it.
            if room is None or room.position < read_after:
                return
            # A room that was left and entered again meanwhile is ahead of this read.
            fresh = [one for one in items if one.gap is not None or one.seq > room.position]
            if not fresh:
                return
            room.position = fresh[-1].seq
            dropped = sum(not client.offer(fresh) for client in room.clients)
        if dropped:
            STREAM_DROPPED.inc(dropped)
            log.warning("%d slow event streams of org %s were closed", dropped, org_id)


class _Reading:
    """What the reader knows of the Redis that it reads: tells events from gaps."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pulse: Pulse | None = None
        self._pulse_at_s = 0.0
        self._read_at_s = time.monotonic()

    def look(self, positions: dict[str, int]) -> Iterator[tuple[str, list[Item]]]:
        """One read of all streams; by organisation what its clients get."""
        if not positions:
            return
        now_s = time.monotonic()
        if now_s - self._pulse_at_s >= PULSE_EVERY_S:
            reason, pulse = self._lost()
            self._pulse_at_s = now_s
            for org_id, position in positions.items():
                if reason or position > pulse.seq:
                    gap = reason or Gap.UNKNOWN_ID
                    yield org_id, [Item(pulse.seq, gap=gap)]
                    positions = {**positions, org_id: pulse.seq}
        found = self._events.read(positions, block_ms=BLOCK_MS)
        self._read_at_s = time.monotonic()
        for org_id, events in found.items():
            position = positions[org_id]
            if len(events) == READ_COUNT and self._events.is_cut(org_id, position):
                yield org_id, [Item(self._events.last_seq(), gap=Gap.TRIMMED)]
            else:
                yield org_id, [Item(event.seq, event=event) for event in events]

    def _lost(self) -> tuple[Gap | None, Pulse]:
        """Whether what came meanwhile may be gone for everybody, and where Redis is now."""
        pulse, before = self._events.pulse(), self._pulse
        self._pulse = pulse
        if before and before.run_id != pulse.run_id:
            return Gap.UNKNOWN_ID, pulse
        if time.monotonic() - self._read_at_s > BLIND_AFTER_S:
            return Gap.EXPIRED, pulse
        return None, pulse
