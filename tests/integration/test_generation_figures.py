"""Can an operator see how generations fare, and what holds them up? (B22, X15)"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, ThrottledError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Cooldown
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.generation_stats import COOLDOWNS_MAX, read_generation_stats
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts, SlotCaps
from service.app import create_app
from tests.integration.service.round_trips import counting_proxy
from tests.support.factories import claim, claim_one
from tests.support.job_states import now_ms
from tests.support.stored_generations import (
    ENVELOPE,
    billed,
    call_of,
    generations_of,
    new_generation,
    open_to,
)

pytestmark = pytest.mark.req("B22", "X10")

DURATION = "genqueue_generation_duration_seconds"
WAIT = "genqueue_generation_queue_wait_seconds"
LIMITS = ("team_slots", "global_slots", "throttle")


def samples(runtime: Runtime) -> dict[str, float]:
    """Every sample of a scrape by its name and labels."""
    page = create_app(runtime).test_client().get("/metrics").text
    lines = (line.rpartition(" ") for line in page.splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in lines}


def test_all_figures_are_there_from_the_start(runtime: Runtime) -> None:
    found = samples(runtime)
    counts = ["genqueue_generations_started_total", "genqueue_generations_finished_total"]
    refusals = {"feature_unavailable", "throttled"}  # with which no generation is ever made
    codes = set(GenerationCode) - refusals
    counts += [f'genqueue_generations_failed_total{{code="{code}"}}' for code in codes]
    counts += [f'genqueue_generation_limit_hits_total{{limit="{limit}"}}' for limit in LIMITS]
    for name in (DURATION, WAIT):
        edges = [str(edge / 1000) for edge in keys.GENERATION_BUCKETS_MS]
        counts += [f'{name}_bucket{{le="{edge}"}}' for edge in (*edges, "+Inf")]
        counts += [f"{name}_count", f"{name}_sum"]
    counts += ["genqueue_generation_slots_held", "genqueue_usage_unreported"]

    assert {name: found.get(name) for name in counts} == dict.fromkeys(counts, 0.0)
    for code in refusals:
        assert f'genqueue_generations_failed_total{{code="{code}"}}' not in found
    assert found["genqueue_generation_slots"] == 30
    assert not any(name.startswith("genqueue_provider_cooldown_seconds") for name in found)


def run_some(redis: Redis, queue: Queue) -> None:
    """One that succeeded, one whose provider asked for a pause, one over quota, one that runs."""
    open_to(redis, "acme")
    generations = generations_of(redis)
    for _ in range(3):
        generations.submit(new_generation())
    first, second, _ = claim(queue, 3).attempts
    bill = billed(first.job, call_of(), call_of(), is_captured=True)
    queue.succeed_generation(first.job.id, first.token, ENVELOPE, bill)
    queue.fail(
        second.job.id,
        second.token,
        ErrorKind.RATE_LIMIT,
        "busy",
        code=GenerationCode.GATEWAY_UNAVAILABLE,
        cooldown=Cooldown("mock:busy", 60_000),
    )
    generations.submit(new_generation(reserve_usd_micros=10**9))


@pytest.mark.req("X15")
def test_a_scrape_tells_how_generations_began_and_ended_and_what_they_hold(
    runtime: Runtime, redis: Redis, queue: Queue
) -> None:
    run_some(redis, queue)

    found = samples(runtime)

    assert found["genqueue_generations_started_total"] == 3
    assert found["genqueue_generations_finished_total"] == 1
    failed = {n: v for n, v in found.items() if n.startswith("genqueue_generations_failed") and v}
    assert failed == {
        'genqueue_generations_failed_total{code="gateway_unavailable"}': 1,
        'genqueue_generations_failed_total{code="quota_exceeded"}': 1,
    }
    assert (found[f"{WAIT}_count"], found[f"{DURATION}_count"]) == (3, 2)
    assert 0 <= found[f"{DURATION}_sum"] < 60
    assert found["genqueue_generation_slots_held"] == 1
    assert 55 < found['genqueue_provider_cooldown_seconds{target="mock:busy"}'] <= 60
    assert found["genqueue_usage_unreported"] == 2


def test_limits_that_hold_generations_up_are_counted_by_which(
    runtime: Runtime, redis: Redis
) -> None:
    capped = Queue(
        Scripts(redis, queue_name="genqueue", slots=SlotCaps(team=1, all=2)), ticket_cap=16
    )
    open_to(redis, "acme")
    generations = generations_of(redis, per_minute=2)
    for team in "123":
        for _ in range(2):
            generations.submit(new_generation(team_id=team))
    with pytest.raises(ThrottledError):
        generations.submit(new_generation(team_id="3"))
    while claim(capped).attempts:
        pass

    found = samples(runtime)

    hits = {limit: f'genqueue_generation_limit_hits_total{{limit="{limit}"}}' for limit in LIMITS}
    assert found[hits["throttle"]] == 1
    assert found[hits["team_slots"]] == 2
    assert found[hits["global_slots"]] == 1
    assert found["genqueue_generation_slots_held"] == 2


def test_histograms_are_cumulative_and_in_seconds(runtime: Runtime, redis: Redis) -> None:
    counts = {"100": 3, "1000": 2, "90000": 1, "inf": 4, "sum": 500_250}
    redis.hset(
        keys.GENERATION_STATS(), mapping={f"duration:{edge}": n for edge, n in counts.items()}
    )

    found = samples(runtime)

    edges = ("0.1", "0.25", "0.5", "1.0", "60.0", "90.0", "+Inf")
    buckets = [found[f'{DURATION}_bucket{{le="{edge}"}}'] for edge in edges]
    assert buckets == [3, 3, 3, 5, 5, 6, 10]
    assert (found[f"{DURATION}_count"], found[f"{DURATION}_sum"]) == (10, 500.25)
    assert found[f"{WAIT}_count"] == 0


def test_counts_under_the_edges_and_codes_of_another_release_are_not_lost(
    runtime: Runtime, redis: Redis
) -> None:
    counts = {"wait:300": 2, "wait:500": 1, "wait:sum": 900, "failed:of_another_release": 5}
    redis.hset(keys.GENERATION_STATS(), mapping=counts)

    found = samples(runtime)

    buckets = [found[f'{WAIT}_bucket{{le="{edge}"}}'] for edge in ("0.25", "0.5", "+Inf")]
    assert buckets == [0, 3, 3]
    assert found['genqueue_generations_failed_total{code="of_another_release"}'] == 5


@pytest.mark.req("B18")
def test_a_slot_whose_time_is_over_is_held_by_nobody(runtime: Runtime, redis: Redis) -> None:
    at_ms = now_ms(redis)
    redis.zadd(keys.SLOTS(), {"gone": at_ms - 1, "held": at_ms + 60_000})
    redis.zadd(keys.COOLDOWNS(), {"mock:over": at_ms - 1, "mock:on": at_ms + 60_000})
    for name in (keys.SLOTS(), keys.COOLDOWNS()):
        redis.pexpire(name, 60_000)

    found = samples(runtime)

    assert found["genqueue_generation_slots_held"] == 1
    cooling = [name for name in found if name.startswith("genqueue_provider_cooldown_seconds")]
    assert cooling == ['genqueue_provider_cooldown_seconds{target="mock:on"}']


def test_of_many_cooling_targets_those_are_told_of_that_pause_longest(redis: Redis) -> None:
    at_ms = now_ms(redis)
    redis.zadd(keys.COOLDOWNS(), {f"mock:{n}": at_ms + 1000 * n for n in range(1, 131)})
    redis.pexpire(keys.COOLDOWNS(), 200_000)

    cooling = read_generation_stats(redis, at_ms).cooldowns_ms

    assert len(cooling) == COOLDOWNS_MAX
    assert (min(cooling.values()), max(cooling.values())) == (31_000, 130_000)


def test_they_cost_a_scrape_one_round_trip_however_many_there_were(
    make_runtime: Callable[..., Runtime], redis: Redis, redis_url: str, queue: Queue
) -> None:
    counts = []
    open_to(redis, "acme")
    generations = generations_of(redis, per_minute=1000)
    for more in (1, 50):
        for _ in range(more):
            generations.submit(new_generation())
            attempt = claim_one(queue)
            queue.succeed_generation(attempt.job.id, attempt.token, ENVELOPE, "")
        with counting_proxy(urlsplit(redis_url).port or 0) as proxy:
            slow = make_runtime(redis_url=f"redis://127.0.0.1:{proxy.port}/0").redis
            read_generation_stats(slow, now_ms(slow))
            before = proxy.round_trips
            read_generation_stats(slow, 1)
            counts.append(proxy.round_trips - before)
    assert counts == [1, 1]
