"""What do the scripts know of RQ: suspension, shutdown, tickets? (decisions 1 and 2)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.store.queue import Queue
from tests.support.factories import claim, claim_one, new_job
from tests.support.job_states import reach
from tests.support.snapshot import snapshot

TICKETS = "rq:queue:genqueue"


@pytest.fixture(autouse=True)
def _rq_keys_end(redis: Redis) -> object:
    yield
    for name in list(redis.scan_iter(match="rq:*")):
        redis.delete(name)


def test_nothing_is_claimed_while_rq_is_suspended(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job())
    redis.set("rq:suspended", "1")
    before = snapshot(redis)

    got = claim(queue)

    assert (got.attempts, got.refused) == ((), "suspended")
    assert snapshot(redis) == before
    redis.delete("rq:suspended")
    assert claim_one(queue)


def test_a_worker_that_was_asked_to_stop_claims_nothing_others_do(
    redis: Redis, queue: Queue
) -> None:
    queue.submit(new_job())
    redis.hset("rq:worker:w1", "shutdown_requested_date", "2026-01-01T00:00:00Z")
    redis.hset("rq:worker:w2", "state", "busy")

    assert claim(queue, worker="w1").refused == "shutdown"
    assert len(claim(queue, worker="w2").attempts) == 1


def test_what_was_claimed_before_a_suspension_is_still_answered(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job())
    first = claim(queue, token="once")
    redis.set("rq:suspended", "1")

    assert claim(queue, token="once").attempts == first.attempts


def test_the_ticket_names_what_runs_under_it(redis: Redis, queue: Queue) -> None:
    for n in range(30):
        queue.submit(new_job(id=f"job-{n}"))
    redis.hset("rq:job:t1", "description", "take work")

    claim(queue, 2, ticket_id="t1")
    assert redis.hget("rq:job:t1", "description") == "prompt job-0, prompt job-1"
    claim(queue, 1, ticket_id="t1", ticket_names="prompt job-0")
    assert redis.hget("rq:job:t1", "description") == "prompt job-0, prompt job-2"
    claim(queue, 27, ticket_id="t1")
    assert redis.hget("rq:job:t1", "description").count("prompt") == 20


def test_a_ticket_that_is_gone_is_not_made_anew(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job())
    claim_one(queue, ticket_id="gone")

    assert not redis.exists("rq:job:gone")


def test_tickets_are_wanted_up_to_the_work_there_is(redis: Redis, queue: Queue) -> None:
    assert not queue.promote().ticket_wanted
    for n in range(3):
        assert queue.submit(new_job(org_id=f"org-{n % 2}")).ticket_wanted
        redis.lpush(TICKETS, f"t{n}")

    assert not queue.promote().ticket_wanted
    redis.lpop(TICKETS)
    assert queue.promote().ticket_wanted
    claim(queue, 2)
    assert not queue.promote().ticket_wanted


def test_no_ticket_is_wanted_beyond_the_cap(redis: Redis, queue: Queue) -> None:
    redis.lpush(TICKETS, *[f"t{n}" for n in range(16)])

    for _ in range(20):
        assert not queue.submit(new_job()).ticket_wanted
    redis.lpop(TICKETS)
    assert queue.submit(new_job()).ticket_wanted


def test_a_job_that_waits_for_its_time_wants_no_ticket_until_then(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.RUNNING)

    assert not queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 60_000).ticket_wanted
    assert not queue.promote().ticket_wanted
    redis.zadd("{gq}:scheduled", {job.job_id: 1})
    promoted = queue.promote()
    assert (promoted.promoted, promoted.ticket_wanted) == (1, True)


def test_work_behind_a_gate_wants_no_ticket(redis: Redis, queue: Queue) -> None:
    redis.hset("{gq}:quotas", "acme", "0")
    queue.submit(new_job())
    claim(queue)

    assert not queue.promote().ticket_wanted
    assert not queue.submit(new_job()).ticket_wanted
