"""When did each tick of the clock last run, and what did it do? (A8)

The scheduler owns what is written here; metrics, readiness and the command line read it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

RED_AFTER_INTERVALS: Final = 3
FAILURE_MAX: Final = 200
"""Characters of a failure that are kept."""


@dataclass(frozen=True, slots=True)
class TickStatus:
    """The last good run of a tick and its totals. `ran_at_ms` is when that run began, None
    where none ended well; `late_ms` how long after its due time; `count` what it answered.
    `runs` and `total` (of the counts) grow for ever, as do `failures`; `failure` is the type
    of the last one, empty once a run ended well after it."""

    name: str
    interval_ms: int
    ran_at_ms: int | None = None
    late_ms: int = 0
    took_ms: int = 0
    count: int = 0
    runs: int = 0
    total: int = 0
    failures: int = 0
    failure: str = ""
    failed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TickRun:
    """One run, to be written down. `token` makes that repeatable; `due_at_ms` is None where
    nobody knows it; `failure` is the name of what was raised, empty where the run ended well."""

    name: str
    token: str
    interval_s: float
    due_at_ms: int | None
    took_ms: int
    count: int
    failure: str = ""


def is_red(status: TickStatus | None, now_ms: int) -> bool:
    """Whether a tick ought to alarm: no run of it ended well for three intervals. `now_ms` is
    Redis's clock; a tick that nobody has heard of is red."""
    if status is None or status.ran_at_ms is None:
        return True
    return now_ms - status.ran_at_ms > RED_AFTER_INTERVALS * status.interval_ms


class Ticks:
    """The read side; `redis` decodes its answers."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def all(self) -> dict[str, TickStatus]:
        """Every tick that ran, by name. Raises StoreUnavailableError."""
        with store_errors():
            stored: Any = self._redis.hgetall(keys.TICKS())
        parts: dict[str, dict[str, str]] = defaultdict(dict)
        for field, value in stored.items():
            name, _, part = field.rpartition(":")
            parts[name][part] = value
        return {name: _status(name, values) for name, values in sorted(parts.items())}

    def now_ms(self) -> int:
        """Redis's clock, by which `ran_at_ms` was taken. Raises StoreUnavailableError."""
        with store_errors():
            seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


class TickLog:
    """The write side: what the scheduler fires, and what became of it."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def fire(
        self, entry: str, *, due: str, later: str, queues_key: str, queue_key: str, meta: str
    ) -> str:
        """Put the tick of `entry`, seen to be due at `due` (s), on its queue, and the entry on
        to `later` (s, empty for never). Answers OK to one of many callers, EARLY to the
        others, MISSING where RQ's job is gone. Raises StoreUnavailableError."""
        word: str = self._scripts.run(
            "fire",
            entry=entry,
            due=due,
            later=later,
            queues=queues_key,
            queue=queue_key,
            meta=meta,
        )
        return word

    def ticked(self, run: TickRun) -> None:
        """Write a run down, once. Raises StoreUnavailableError."""
        self._scripts.run(
            "ticked",
            name=run.name,
            token=run.token,
            interval_ms=round(run.interval_s * 1000),
            due_at_ms=run.due_at_ms,
            took_ms=run.took_ms,
            count=run.count,
            failure=run.failure[:FAILURE_MAX],
        )


def _status(name: str, values: dict[str, str]) -> TickStatus:
    def number(part: str) -> int:
        return int(values.get(part, "0"))

    return TickStatus(
        name=name,
        interval_ms=number("interval_ms"),
        ran_at_ms=number("ran_at_ms") if "ran_at_ms" in values else None,
        late_ms=number("late_ms"),
        took_ms=number("took_ms"),
        count=number("count"),
        runs=number("runs"),
        total=number("total"),
        failures=number("failures"),
        failure=values.get("failure", ""),
        failed_at_ms=number("failed_at_ms") if "failed_at_ms" in values else None,
    )
