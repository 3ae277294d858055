"""Who posts what is due, and when does it look? A pool of threads in a process (C17).

Signals make it fast: a ticket, and the times that the store answers with each look and settle.
Behind them stands the tick that nudges the pool every 5 s.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

from jobs.domain.errors import StoreUnavailableError
from jobs.store.deliveries import Deliveries, Taken

logger = logging.getLogger(__name__)

THREADS_MAX: Final = 32
PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
STOP_WITHIN_S: Final = 3.0
"""So long a pool that is stopped waits for what is in flight; what is not settled by then is
posted again after its lease, under the same id."""


class DeliveryPool:
    """Takes deliveries and runs `attempt` for each in a daemon thread, up to `threads_max` at a
    time. `attempt` answers the ms until the store is to be looked at again, or None."""

    def __init__(
        self,
        deliveries: Deliveries,
        attempt: Callable[[Taken], int | None],
        threads_max: int = THREADS_MAX,
    ) -> None:
        self._deliveries = deliveries
        self._attempt = attempt
        self._threads_max = threads_max
        self._changed = threading.Condition()
        self._posting = 0
        self._look_at_s = 0.0

    def nudge(self) -> None:
        """Look now: something may be due."""
        self._look_in(0.0)

    def run(self, stop: threading.Event) -> None:
        """Post what is due until `stop` is set; outlives a Redis that is away, and any surprise."""
        threading.Thread(target=self._wake_up_at, args=(stop,), daemon=True).start()
        while not stop.is_set():
            self._wait_for_a_look(stop)
            if stop.is_set():
                break
            try:
                self._look()
            except StoreUnavailableError as error:
                logger.warning("deliveries: %s", error)
                stop.wait(PAUSE_S)
                self.nudge()
            except Exception:
                logger.exception("deliveries: unexpected failure")
                stop.wait(PAUSE_S)
                self.nudge()
        self._wait_for_the_rest(STOP_WITHIN_S)

    def drain(self) -> int:
        """Post until nothing is due now; answers how many deliveries were tried. Raises
        StoreUnavailableError."""
        total = 0
        while True:
            total += self._look()
            with self._changed:
                while self._posting >= self._threads_max or (
                    self._posting and self._look_at_s > time.monotonic()
                ):
                    self._changed.wait()
                if not self._posting and self._look_at_s > time.monotonic():
                    return total

    def _look(self) -> int:
        """Take what there is room for, and begin with it; answers how many deliveries."""
        with self._changed:
            room = self._threads_max - self._posting
            self._look_at_s = time.monotonic() + LONGEST_PAUSE_S
        found = self._deliveries.take(uuid.uuid4().hex, room)
        for taken in found.deliveries:
            self._begin(taken)
        if found.due_in_ms is not None:
            self._look_in(found.due_in_ms / 1000)
        return len(found.deliveries)

    def _begin(self, taken: Taken) -> None:
        with self._changed:
            self._posting += 1
        try:
            threading.Thread(
                target=self._deliver, args=(taken,), name="delivery", daemon=True
            ).start()
        except RuntimeError:
            # No thread to be had: its lease runs out, and it is taken again.
            logger.warning("delivery %s: no thread for it", taken.id)
            self._end(None)

    def _deliver(self, taken: Taken) -> None:
        due_in_ms: int | None = None
        try:
            due_in_ms = self._attempt(taken)
        finally:
            self._end(due_in_ms)

    def _end(self, due_in_ms: int | None) -> None:
        with self._changed:
            self._posting -= 1
            self._changed.notify_all()
        if due_in_ms is not None:
            self._look_in(due_in_ms / 1000)

    def _look_in(self, wait_s: float) -> None:
        with self._changed:
            self._look_at_s = min(self._look_at_s, time.monotonic() + wait_s)
            self._changed.notify_all()

    def _wait_for_a_look(self, stop: threading.Event) -> None:
        """Until it is time to look and a thread is free."""
        with self._changed:
            while not stop.is_set():
                left_s = self._look_at_s - time.monotonic()
                is_full = self._posting >= self._threads_max
                if left_s <= 0 and not is_full:
                    return
                self._changed.wait(LONGEST_PAUSE_S if is_full else left_s)

    def _wake_up_at(self, stop: threading.Event) -> None:
        stop.wait()
        with self._changed:
            self._changed.notify_all()

    def _wait_for_the_rest(self, within_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._posting, within_s)


_pools: dict[int, DeliveryPool] = {}


def set_current_pool(pool: DeliveryPool) -> None:
    """Make `pool` the one that tickets of this process nudge; a fork does not inherit it."""
    _pools.clear()
    _pools[os.getpid()] = pool


def current_pool() -> DeliveryPool | None:
    """The pool of this process, or None where it has none."""
    return _pools.get(os.getpid())
