"""What happened in an organisation, in order? The read side of its event stream (A21).

An event's number `seq` counts the moves of all organisations, so those of one have holes. A
stream is cut at its old end and goes away an hour after its last event: whoever reads on from
a number is told whether anything after it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.states import TERMINAL
from jobs.store import keys
from jobs.store.connection import store_errors

READ_COUNT: Final = 1000
"""Most events of one organisation in one read."""


STATE_CHANGED: Final = "job.state_changed"


@dataclass(frozen=True, slots=True)
class Event:
    """One move of a job, or what `type` says of its chain, whose `state` is then that of the
    chain and whose `request_job_id` names it. `source` is "" for the submit that made the job;
    `user_id` made it."""

    seq: int
    job_id: str
    prompt_id: str
    user_id: str
    state: str
    source: str
    verb: str
    attempt: int
    at_ms: int
    reason: str
    type: str = STATE_CHANGED
    request_job_id: str = ""

    @property
    def ends_job(self) -> bool:
        """Whether the job has ended with it."""
        return self.state in TERMINAL


class Gap(StrEnum):
    """Why events after a number can't be told: the stream was cut, it has expired, or the
    number was never given out by this Redis (it lost data, or is another one)."""

    TRIMMED = "trimmed"
    EXPIRED = "expired"
    UNKNOWN_ID = "unknown_id"


@dataclass(frozen=True, slots=True)
class Page:
    """Events after a number, oldest first; `gap` where some of them are gone, then no events.
    `has_more` where the page was full."""

    events: tuple[Event, ...]
    gap: Gap | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Pulse:
    """Which Redis answers, and how far it has counted: told by another `run_id` or a number
    that went back that it may have lost what was read."""

    run_id: str
    seq: int


class Events:
    """Reads; nothing here writes. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def last_seq(self) -> int:
        """The number of the last event of all organisations; 0 before the first."""
        with store_errors():
            return int(cast("str | None", self._redis.get(keys.SEQ())) or 0)

    def pulse(self) -> Pulse:
        """Which Redis this is and its last number, in one round trip."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            pipe.info("server")
            pipe.get(keys.SEQ())
            info, seq = pipe.execute()
        return Pulse(str(info.get("run_id", "")), int(seq or 0))

    def read(self, positions: Mapping[str, int], *, block_ms: int) -> dict[str, list[Event]]:
        """Events after the number given for each organisation, those of at most READ_COUNT
        moves each; waits up to `block_ms` for the first one."""
        streams: dict[Any, Any] = {
            keys.EVENTS(org_id): f"{seq}-0" for org_id, seq in positions.items()
        }
        names = {keys.EVENTS(org_id): org_id for org_id in positions}
        with store_errors():
            reply = self._redis.xread(streams, count=READ_COUNT, block=block_ms)
        return {names[name]: [_event(*row) for row in rows] for name, rows in cast("Any", reply)}

    def page(self, org_id: str, after: int, count: int = READ_COUNT) -> Page:
        """What came after the number `after`, and whether all of it is still there."""
        stream = keys.EVENTS(org_id)
        with store_errors():
            # As one look: a stream that is cut between two looks would hide what it lost.
            pipe = self._redis.pipeline(transaction=True)
            pipe.get(keys.SEQ())
            pipe.xrange(stream, count=1)
            pipe.xlen(stream)
            pipe.zrange(keys.CHANGED(org_id), 0, 0, desc=True, withscores=True)
            pipe.xrange(stream, min=f"({after}-0", count=count)
            seq, first, length, newest, rows = pipe.execute()
        last_change = int(newest[0][1]) if newest else 0
        gap = _gap(after, int(seq or 0), first, length, last_change)
        if gap is not None:
            return Page((), gap)
        return Page(tuple(_event(*row) for row in rows), has_more=len(rows) == count)

    def is_cut(self, org_id: str, after: int) -> bool:
        """Whether the stream was cut beyond the number `after`: the reader was too slow."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.xrange(keys.EVENTS(org_id), count=1)
            pipe.xlen(keys.EVENTS(org_id))
            first, length = pipe.execute()
        return bool(first) and length >= keys.EVENTS_KEPT and _number(first[0][0]) > after


def _gap(after: int, seq: int, first: Any, length: int, last_change: int) -> Gap | None:
    """Whether events after `after` are gone; rather one gap too many than one too few."""
    if after > seq:
        return Gap.UNKNOWN_ID
    if not first:
        return Gap.EXPIRED if last_change > after else None
    number, fields = _number(first[0][0]), first[0][1]
    if after >= number:
        return None
    if length >= keys.EVENTS_KEPT:
        return Gap.TRIMMED
    # `prev`, on the first event of a stream, is the one before it, in a stream that expired.
    before = fields.get("prev")
    return Gap.EXPIRED if before is None or after < int(before) else None


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _event(entry_id: str, fields: Mapping[str, str]) -> Event:
    return Event(
        seq=_number(entry_id),
        job_id=fields.get("job_id", ""),
        prompt_id=fields.get("prompt_id", ""),
        user_id=fields.get("user", ""),
        state=fields.get("state", ""),
        source=fields.get("from", ""),
        verb=fields.get("verb", ""),
        attempt=int(fields.get("attempt") or 0),
        at_ms=int(fields.get("at") or 0),
        reason=fields.get("reason", ""),
        type=fields.get("type", STATE_CHANGED),
        request_job_id=fields.get("request", ""),
    )
