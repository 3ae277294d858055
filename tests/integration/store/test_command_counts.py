"""How many commands does a verb cost, and does the cost stay the same in a crowd? (A1, A19)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from tests.support.factories import claim, claim_one, new_job, response_for
from tests.support.job_states import reach

NOT_OURS = {"config|resetstat", "info", "client|setinfo", "hello", "select", "ping"}


def commands(redis: Redis, act: Callable[[], Any]) -> dict[str, int]:
    """What Redis ran for `act`, by command, scripts' own commands included."""
    redis.config_resetstat()
    act()
    stats = redis.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    return {name: n for name, n in calls.items() if name not in NOT_OURS}


def inner(counts: dict[str, int]) -> int:
    return sum(n for name, n in counts.items() if name != "evalsha")


@pytest.fixture(autouse=True)
def _scripts_are_known(redis: Redis, queue: Queue) -> None:
    reach(queue, State.SUCCEEDED)
    redis.lpush("rq:queue:genqueue", *["t"] * 16)


@pytest.mark.req("A1", "A5", "A19")
def test_submit_claim_and_settle_are_one_round_trip_each(redis: Redis, queue: Queue) -> None:
    job = new_job()
    attempts: list[Any] = []

    submitted = commands(redis, lambda: queue.submit(job))
    all_of_it = new_job(idempotency_key="k", payload_hash="h", metadata={"a": 1})
    replay = new_job(idempotency_key="k", payload_hash="h")
    crowded = commands(redis, lambda: queue.submit(all_of_it))
    replayed = commands(redis, lambda: queue.submit(replay))
    claimed = commands(redis, lambda: attempts.append(claim_one(queue)))
    succeeded = commands(
        redis, lambda: queue.succeed(job.id, attempts[0].token, response_for(attempts[0]))
    )

    every = (submitted, crowded, replayed, claimed, succeeded)
    assert [counts["evalsha"] for counts in every] == [1] * 5
    ran = [inner(counts) for counts in every]
    assert all(n <= most for n, most in zip(ran, (24, 22, 5, 34, 26), strict=True)), ran


@pytest.mark.req("A19")
def test_all_rows_of_a_success_are_written_by_one_script(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job())
    attempt = claim_one(queue)

    counts = commands(
        redis, lambda: queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
    )

    assert counts["evalsha"] == 1
    assert (counts["hset"], counts["rpush"], counts["xadd"]) == (3, 4, 1)


@pytest.mark.req("A4")
@pytest.mark.parametrize("org", ["acme", "other"])
def test_a_claim_costs_the_same_among_thousands(redis: Redis, queue: Queue, org: str) -> None:
    for n in range(20):
        queue.submit(new_job(priority=n))
    few = inner(commands(redis, lambda: claim_one(queue)))
    for n in range(3000):
        queue.submit(new_job(org_id=org if n % 2 else f"org-{n % 100}", prompt_text=""))
    many = inner(commands(redis, lambda: claim_one(queue)))

    assert many <= few


@pytest.mark.req("X9")
def test_ten_thousand_capped_jobs_at_the_head_cost_a_claim_nothing(
    redis: Redis, queue: Queue
) -> None:
    for _ in range(5):
        queue.submit(new_job(org_id="free"))
    before = inner(commands(redis, lambda: claim_one(queue)))
    redis.hset(keys.QUOTAS(), "capped", 0)
    with redis.pipeline(transaction=False) as pipe:
        lane = keys.lane("capped", "prompt", "mock:mock-1")
        for n in range(10_000):
            pipe.zadd(keys.READY(lane), {f"job-{n}": n})
        pipe.zadd(keys.TURNS(), {lane: 0})
        pipe.sadd(keys.TEAM_LANES("capped"), lane)
        pipe.execute()

    first = inner(commands(redis, lambda: claim_one(queue)))
    second = inner(commands(redis, lambda: claim_one(queue)))

    # The first one shuts the lane; the others never meet it.
    assert first <= before + 8
    assert second <= before
    redis.flushall()


def test_an_empty_look_is_cheap(redis: Redis, queue: Queue) -> None:
    counts = commands(redis, lambda: claim(queue))

    assert counts["evalsha"] == 1
    assert inner(counts) <= 7


def test_a_batch_of_claims_costs_less_than_each_alone(redis: Redis, queue: Queue) -> None:
    for _ in range(60):
        queue.submit(new_job())
    one = inner(commands(redis, lambda: claim_one(queue)))
    batch = inner(commands(redis, lambda: claim(queue, 32)))

    assert batch < 32 * one * 0.8
