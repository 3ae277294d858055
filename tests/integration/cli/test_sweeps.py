"""Does the sweep from a shell take what is stuck, and say what it did not take? (A8, A12)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.factories import claim_one
from tests.support.invariants import problems_of
from tests.support.waiting import wait_until

ReadJson = Callable[..., Any]


def now_ms(redis: Redis) -> int:
    second, microsecond = redis.time()
    return int(second) * 1000 + int(microsecond) // 1000


def hold_a_dead_lease(queue: Queue, redis: Redis) -> str:
    """A job whose worker is gone and whose lease has ended."""
    attempt = claim_one(queue, window_ms=1)
    wait_until(
        lambda: redis.zscore(keys.RUNNING(), attempt.job.id) < now_ms(redis), 5, "the lease ends"
    )
    return attempt.job.id


@pytest.mark.req("A8", "A22")
def test_what_a_dead_worker_held_is_queued_again(
    shell: Shell, submit: Submit, queue: Queue, redis: Redis, records: Records
) -> None:
    submit()
    redis.set(keys.SWEPT_AT(), now_ms(redis))
    job_id = hold_a_dead_lease(queue, redis)

    done = shell("reclaim-stuck-jobs")
    assert done.returncode == 0, done.stderr
    assert "Took back 1 attempts, failed 0 jobs as stuck" in done.stdout
    view = records.job(job_id)
    assert view is not None
    assert (view.job.state, view.job.attempt) == (State.QUEUED, 2)
    assert view.history[-1].reason == "worker_crash"


@pytest.mark.req("A8")
def test_more_than_one_batch_is_taken_in_one_call(
    invoke_json: ReadJson, submit: Submit, queue: Queue, redis: Redis
) -> None:
    for _ in range(230):
        submit()
    redis.set(keys.SWEPT_AT(), now_ms(redis))
    for _ in range(230):
        claim_one(queue, window_ms=1)
    wait_until(
        lambda: redis.zcount(keys.RUNNING(), "-inf", now_ms(redis)) == 230, 5, "all leases end"
    )
    swept = invoke_json("reclaim-stuck-jobs")
    assert (swept["renewed"], swept["requeued"]) == (False, 230)


@pytest.mark.req("A8")
def test_a_sweep_that_renewed_says_that_it_took_nothing_and_why(
    invoke: Invoke, submit: Submit, queue: Queue, redis: Redis, records: Records
) -> None:
    submit()
    job_id = hold_a_dead_lease(queue, redis)
    first = invoke("reclaim-stuck-jobs")
    assert first.exit_code == 0
    assert "Took nothing: nobody swept before" in first.stdout
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 300_000)
    redis.zadd(keys.RUNNING(), {job_id: now_ms(redis) - 1})
    late = invoke("reclaim-stuck-jobs")
    assert "Took nothing: the last sweep was 5 min ago" in late.stdout
    assert "every 15 s" in late.stdout
    view = records.job(job_id)
    assert view is not None
    assert view.job.state is State.RUNNING


@pytest.mark.req("A6", "A8")
def test_cron_that_says_how_often_it_calls_does_take(
    invoke_json: ReadJson, submit: Submit, queue: Queue, redis: Redis
) -> None:
    submit()
    hold_a_dead_lease(queue, redis)
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 300_000)
    swept = invoke_json("reclaim-stuck-jobs", "--every", "300")
    assert (swept["renewed"], swept["requeued"]) == (False, 1)


@pytest.mark.req("A8")
@pytest.mark.case("RQ-03", "RQ-11")
def test_repair_looks_over_every_job_and_puts_right_what_is_wrong(
    invoke: Invoke, invoke_json: ReadJson, submit: Submit, redis: Redis
) -> None:
    job_ids = [submit(org_id=org) for org in ("acme", "umbrella") for _ in range(3)]
    lane = keys.READY(keys.lane("umbrella", "prompt", "mock:mock-1"))
    redis.zrem(lane, job_ids[4])
    # Where a tick stopped in the middle of its round.
    redis.hset(keys.REPAIR_AT(), mapping={"org": "umbrella", "seq": redis.get(keys.SEQ())})
    swept = invoke_json("reclaim-stuck-jobs", "--repair")
    assert (swept["looked_at"], swept["mended"], swept["dangling_ids"]) == (6, 1, 0)
    assert problems_of(redis) == []
    redis.delete(keys.JOB(job_ids[0]))
    assert "removed 1 ids that name no job" in invoke("reclaim-stuck-jobs", "--repair").stdout


def test_repair_of_an_empty_store_ends(invoke_json: ReadJson) -> None:
    assert invoke_json("reclaim-stuck-jobs", "--repair")["looked_at"] == 0
