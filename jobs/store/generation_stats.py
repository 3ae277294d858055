"""How do generations fare, and what holds them up? The figures, in one round trip. (B22)

The scripts count as they move generations; slots and cooldowns are read as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from redis import Redis

from jobs.domain.generation_codes import GenerationCode
from jobs.store import keys
from jobs.store.connection import store_errors

LIMITS: Final = ("team_slots", "global_slots", "throttle")
CODES_OF_FAILED: Final = tuple(
    code
    for code in GenerationCode
    if code not in {GenerationCode.FEATURE_UNAVAILABLE, GenerationCode.THROTTLED}
)
"""How a generation can fail: a submit that is refused with one of the others makes none."""

COOLDOWNS_MAX: Final = 100
"""So many cooling targets are told of, those that pause longest."""

_FAILED: Final = "failed:"
_LIMIT: Final = "limit:"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations that were observed: `up_to` is how many were at most so many ms, by the edges
    of GENERATION_BUCKETS_MS in order; `count` and `sum_ms` are of all."""

    up_to: Mapping[int, int]
    count: int
    sum_ms: int

    @property
    def mean_ms(self) -> float | None:
        """The mean; None where there was none."""
        return self.sum_ms / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Counts since ever, of all teams, and what is so now.

    `started` counts attempts that began, so one whose worker left counts again; `failed` is by
    code and holds those too that never began. `limit_hits` counts the lanes that a claim found
    without a slot, and throttled submits. `wait` is from submit to each start, `duration` from
    the last start to the end. `cooldowns_ms` is what is left by target; `unreported` is how many
    events of usage still wait for the receiver."""

    started: int
    finished: int
    failed: Mapping[str, int]
    limit_hits: Mapping[str, int]
    wait: Histogram
    duration: Histogram
    slots_held: int
    cooldowns_ms: Mapping[str, int]
    unreported: int


def read_generation_stats(redis: Redis, now_ms: int) -> GenerationStats:
    """The figures at `now_ms`, which is Redis's clock: every code and every limit is there, with
    0 where it never came up. Raises StoreUnavailableError."""
    still = f"({now_ms}"
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        pipe.hgetall(keys.GENERATION_STATS())
        pipe.zcount(keys.SLOTS(), still, "+inf")
        pipe.zrevrangebyscore(
            keys.COOLDOWNS(), "+inf", still, start=0, num=COOLDOWNS_MAX, withscores=True
        )
        pipe.llen(keys.BILLING())
        counts, slots_held, cooldowns, unreported = pipe.execute()
    numbers = {name: int(value) for name, value in counts.items()}
    return GenerationStats(
        started=numbers.get("started", 0),
        finished=numbers.get("finished", 0),
        failed=_labelled(numbers, _FAILED, CODES_OF_FAILED),
        limit_hits=_labelled(numbers, _LIMIT, LIMITS),
        wait=_histogram(numbers, "wait:"),
        duration=_histogram(numbers, "duration:"),
        slots_held=slots_held,
        cooldowns_ms={target: int(until_ms) - now_ms for target, until_ms in cooldowns},
        unreported=unreported,
    )


def _labelled(numbers: Mapping[str, int], prefix: str, known: tuple[str, ...]) -> dict[str, int]:
    """The counts under `prefix`, `known` ones first; a newer release may count further ones."""
    found = {n.removeprefix(prefix): v for n, v in numbers.items() if n.startswith(prefix)}
    return {**{str(name): 0 for name in known}, **found}


def _histogram(numbers: Mapping[str, int], prefix: str) -> Histogram:
    """Counts that stand under an edge of another release count from the next edge of ours on."""
    found = {n.removeprefix(prefix): v for n, v in numbers.items() if n.startswith(prefix)}
    sum_ms = found.pop("sum", 0)
    by_edge = {math.inf if edge == "inf" else int(edge): n for edge, n in found.items()}
    return Histogram(
        up_to={
            most: sum(n for edge, n in by_edge.items() if edge <= most)
            for most in keys.GENERATION_BUCKETS_MS
        },
        count=sum(by_edge.values()),
        sum_ms=sum_ms,
    )
