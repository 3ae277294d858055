"""Does a claim stay as cheap when a million jobs wait, or 100,000 lanes, or behind a gate?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jobs.domain.job import NewJob
from jobs.runtime import Runtime
from jobs.store import keys
from tests.bench.bulk import load, multiply
from tests.bench.figures import Figure, at_most, noted
from tests.bench.fleet import runtime_for, script_costs
from tests.bench.stage import Stage
from tests.support.factories import claim_one, new_job

WARM_UP = 50
SAMPLES = 300
TIMES_WANTED = 1.5
SMALL = 1_000
QUOTA = 2
GATED_LANES = 5


@dataclass
class Case:
    """A store of some shape, and the claim times that it gave, in microseconds."""

    name: str
    runtime: Runtime
    samples_us: list[float] = field(default_factory=list)
    first_us: float = 0.0

    def claim(self) -> None:
        """Claim one job and note how long it took."""
        started_s = time.perf_counter()
        claim_one(self.runtime.queue)
        self.samples_us.append((time.perf_counter() - started_s) * 1e6)


def run(stage: Stage) -> list[Figure]:
    """Medians of claims taken in turns from all stores, so that noise hits all alike."""
    lanes = stage.amount(100_000, 10_000)
    gated = stage.amount(10_000, 2_000)
    deep = stage.amount(1_000_000, 50_000)
    base = _case(stage, "1,000 queued", lambda runtime: load(runtime, _jobs(SMALL)))
    others = [
        _case(stage, f"{lanes:,} lanes", lambda runtime: load(runtime, _lanes(lanes))),
        _case(stage, f"{gated:,} behind a shut gate", lambda runtime: _load_gated(runtime, gated)),
        _case(stage, f"{deep:,} queued", lambda runtime: _load_deep(runtime, deep)),
    ]
    cases = [base, *others]
    for case in cases:
        case.claim()
        case.first_us = case.samples_us[0]
        for _ in range(WARM_UP):
            case.claim()
        case.samples_us.clear()
        case.runtime.redis.config_resetstat()
    for _ in range(SAMPLES):
        for case in cases:
            case.claim()
    return [*_figures(base, others), *_server_figures(cases)]


def _figures(base: Case, others: list[Case]) -> Iterator[Figure]:
    base_us = statistics.median(base.samples_us)
    yield noted(f"claim with {base.name}", base_us, "µs", "median, in one process")
    for case in others:
        median_us = statistics.median(case.samples_us)
        note = f"{median_us:.0f} µs, the first {case.first_us:.0f} µs"
        name = f"claim with {case.name}"
        yield at_most(name, median_us / base_us, "times", TIMES_WANTED, note)


def _server_figures(cases: list[Case]) -> Iterator[Figure]:
    base_us = _script_us(cases[0])
    for case in cases:
        cost_us = _script_us(case)
        times = f"{cost_us / base_us:.2f} times"
        yield noted(f"server time of a claim with {case.name}", cost_us, "µs", times)


def _script_us(case: Case) -> float:
    return script_costs(case.runtime.redis)["evalsha"][1]


def _case(stage: Stage, name: str, fill: Callable[[Runtime], object]) -> Case:
    stage.say(f"loading {name}")
    runtime = runtime_for(stage.redis())
    fill(runtime)
    return Case(name, runtime)


def _jobs(count: int) -> Iterator[NewJob]:
    return (new_job() for _ in range(count))


def _lanes(count: int) -> Iterator[NewJob]:
    return (new_job(org_id=f"org-{number}") for number in range(count))


def _load_deep(runtime: Runtime, count: int) -> None:
    """Most as copies; the last fill the event stream by the real submit."""
    submitted = min(count // 2, keys.EVENTS_KEPT)
    multiply(runtime, count - submitted)
    load(runtime, _jobs(submitted))
    lane = keys.READY(keys.lane("acme", "prompt", "mock:mock-1"))
    if (waiting := runtime.redis.zcard(lane)) != count:
        raise RuntimeError(f"{waiting} of {count} jobs wait")


def _load_gated(runtime: Runtime, count: int) -> None:
    """Urgent jobs of an org that may not run more, at the head, and ordinary ones of another."""
    urgent = (
        new_job(org_id="shut", priority=0, target=f"mock:model-{number % GATED_LANES}")
        for number in range(count + QUOTA)
    )
    load(runtime, urgent)
    load(runtime, _jobs(SMALL))
    for _ in range(QUOTA):
        claim_one(runtime.queue)
    runtime.redis.hset(keys.QUOTAS(), "shut", QUOTA)
