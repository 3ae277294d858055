"""What goes over an event stream, in which order? Server-Sent Events of one client (A21).

First what it missed since its last id, then what happens, then a comment where nothing does.
Every event carries its number as the id to resume from; a `gap` says that some can't be told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jobs.domain.errors import StoreUnavailableError
from jobs.domain.escalation import ChainState
from jobs.domain.request_ids import request_id_of
from jobs.store.events import STATE_CHANGED, Event, Events, Gap
from service.fanout import Subscription
from service.instants import rfc3339

CONTENT_TYPE: Final = "text/event-stream"
EVENT: Final = STATE_CHANGED
GAP: Final = "gap"
COMMENT_EVERY_S: Final = 15.0
LOOK_EVERY_S: Final = 1.0
"""So often a quiet stream looks whether its client is still there."""

RETRY_MS: Final = 2000
COMMENT: Final = b": still here\n\n"
_HELLO: Final = f"retry: {RETRY_MS}\n: connected\n\n".encode()


@dataclass(frozen=True, slots=True)
class Follower:
    """A client: the events it wants, the number it has seen (None: it begins now), and how to
    ask whether it is gone and whether its key still holds."""

    wanted: Callable[[Event], bool]
    last_seen: int | None
    is_gone: Callable[[], bool]
    is_allowed: Callable[[], bool]


@lru_cache(maxsize=2048)  # every client of an organisation gets the same bytes
def event_frame(event: Event) -> bytes:
    """One event as it is sent. ASCII on one line, whatever its texts hold: a line break in one
    would end the field, and begin another."""
    if event.type != EVENT:
        return frame(event.type, event.seq, _told_of_chain(event))
    data = {
        "job_id": event.job_id,
        "prompt_id": event.prompt_id,
        "state": event.state,
        "from": event.source or None,
        "verb": event.verb,
        "attempt": event.attempt,
        "at": rfc3339(event.at_ms),
        "seq": event.seq,
        "reason": event.reason,
    }
    return frame(EVENT, event.seq, data)


def _told_of_chain(event: Event) -> dict[str, Any]:
    """What an event of a chain of background attempts says (C18)."""
    level = "WARNING" if event.state not in {"", ChainState.ACHIEVED} else "INFO"
    return {
        "request_id": request_id_of(event.request_job_id),
        "job_id": event.job_id,
        "prompt_id": event.prompt_id,
        "attempt": event.attempt,
        "state": event.state or None,
        "level": level,
        "at": rfc3339(event.at_ms),
        "seq": event.seq,
    }


def gap_frame(gap: Gap, as_of: int) -> bytes:
    """Tell the client to read mission/recent anew; the stream goes on after `as_of`."""
    return frame(GAP, as_of, {"reason": gap, "as_of": str(as_of)})


def stream(
    events: Events,
    subscription: Subscription,
    follower: Follower,
    *,
    comment_every_s: float = COMMENT_EVERY_S,
) -> Iterator[bytes]:
    """The frames for one client, without an end but that of the client, its place or its key.

    Closes the subscription. A StoreUnavailableError while it catches up ends the stream: the
    client comes back to where it was.
    """
    with subscription:
        yield _HELLO
        seen = subscription.joined_at
        if follower.last_seen is not None:
            try:
                seen = yield from _missed(events, subscription, follower, follower.last_seen)
            except StoreUnavailableError:
                return
        yield from _happening(subscription, follower, seen, comment_every_s)


def _missed(
    events: Events, subscription: Subscription, follower: Follower, seen: int
) -> Generator[bytes, None, int]:
    """What came between the last id and the joining; returns the number that was reached."""
    while True:
        page = events.page(subscription.org_id, seen)
        if page.gap is not None:
            yield gap_frame(page.gap, subscription.joined_at)
            return subscription.joined_at
        due = [event for event in page.events if event.seq <= subscription.joined_at]
        if due:
            seen = due[-1].seq
        frames = b"".join(event_frame(event) for event in due if follower.wanted(event))
        if frames:
            yield frames
        if len(due) < len(page.events) or not page.has_more:
            return seen


def _happening(
    subscription: Subscription, follower: Follower, seen: int, comment_every_s: float
) -> Iterator[bytes]:
    comment_at_s = time.monotonic() + comment_every_s
    while True:
        left_s = comment_at_s - time.monotonic()
        items = subscription.take(max(0.0, min(LOOK_EVERY_S, left_s)))
        frames = b""
        for item in items:
            if item.gap is not None:
                seen = item.seq
                frames += gap_frame(item.gap, seen)
            # It may have seen more at another process than this one had read when it came.
            elif item.event is not None and item.seq > seen:
                seen = item.seq
                frames += event_frame(item.event)
        if frames:
            yield frames
        elif subscription.is_over or follower.is_gone():
            return
        if time.monotonic() >= comment_at_s:
            if not follower.is_allowed():
                return
            comment_at_s = time.monotonic() + comment_every_s
            yield COMMENT


def frame(name: str, number: int, data: dict[str, Any]) -> bytes:
    """An event as it is sent, under a number as its id: ASCII on one line, whatever it holds."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return f"id: {number}\nevent: {name}\ndata: {text}\n\n".encode("ascii")
