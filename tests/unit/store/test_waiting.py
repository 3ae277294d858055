"""Does a job wait for what it should, say why, and go on when that came? (A29, A30, X14)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, RelatedEntityMissingError
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records, WaitingOn
from tests.support.factories import claim, claim_one, new_id, new_job, response_for
from tests.support.invariants import problems_of
from tests.support.job_states import reach

HOUR_MS = 3_600_000


def now_ms(redis: Redis) -> int:
    seconds, micros = redis.time()
    return seconds * 1000 + micros // 1000


def job_of(records: Records, job_id: str):  # type: ignore[no-untyped-def]
    view = records.job(job_id)
    assert view is not None
    return view.job


def finish(queue: Queue, job_id: str) -> None:
    attempt = claim_one(queue)
    assert attempt.job.id == job_id
    queue.succeed(job_id, attempt.token, response_for(attempt))


@pytest.mark.req("A29", "X14")
def test_a_scheduled_job_waits_for_its_time_and_says_so(
    redis: Redis, queue: Queue, records: Records
) -> None:
    at_ms = now_ms(redis) + HOUR_MS
    job = new_job(scheduled_for_ms=at_ms)
    queue.submit(job)

    assert claim(queue).attempts == ()
    assert records.waiting_on(job.id) == WaitingOn("schedule", at_ms, None)
    stored = job_of(records, job.id)
    assert (stored.scheduled_for_ms, stored.run_at_ms) == (at_ms, at_ms)
    assert problems_of(redis) == []

    redis.zadd(keys.SCHEDULED(), {job.id: now_ms(redis)})
    assert claim_one(queue).job.id == job.id


@pytest.mark.req("A29")
def test_a_time_that_has_passed_is_now(redis: Redis, queue: Queue) -> None:
    job = new_job(scheduled_for_ms=now_ms(redis) - HOUR_MS)
    queue.submit(job)

    assert claim_one(queue).job.id == job.id


@pytest.mark.req("A29")
def test_the_next_scheduled_job_wants_a_ticket_so_that_a_worker_learns_of_it(
    redis: Redis, queue: Queue
) -> None:
    soon, later = now_ms(redis) + HOUR_MS, now_ms(redis) + 2 * HOUR_MS

    assert queue.submit(new_job(scheduled_for_ms=later)).ticket_wanted
    assert queue.submit(new_job(scheduled_for_ms=soon)).ticket_wanted
    assert not queue.submit(new_job(scheduled_for_ms=later)).ticket_wanted
    assert 0 < claim(queue).due_in_ms <= HOUR_MS  # type: ignore[operator]


@pytest.mark.req("A30", "X14")
def test_a_dependent_job_starts_after_the_other_succeeded(
    redis: Redis, queue: Queue, records: Records
) -> None:
    first = reach(queue, State.QUEUED)
    second = new_job(depends_on=first.job_id)
    queue.submit(second)
    assert records.waiting_on(second.id) == WaitingOn("dependency", None, None)

    attempt = claim_one(queue)
    assert claim(queue).attempts == ()
    assert queue.succeed(first.job_id, attempt.token, response_for(attempt)).ticket_wanted

    assert problems_of(redis) == []
    assert claim_one(queue).job.id == second.id


@pytest.mark.req("A30")
@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_dependent_job_fails_as_blocked_where_the_other_did_not_succeed(
    redis: Redis, queue: Queue, records: Records, end: str
) -> None:
    first = reach(queue, State.RUNNING)
    second, third = new_job(depends_on=first.job_id), new_id()
    queue.submit(second)
    queue.submit(new_job(id=third, depends_on=second.id))

    if end == "fail":
        queue.fail(first.job_id, first.token, ErrorKind.AUTH, "no")
    else:
        queue.cancel(first.job_id, "acme")
    queue.promote()

    for job_id in (second.id, third):
        ended = job_of(records, job_id)
        assert (ended.state, ended.error_kind, ended.attempt) == (State.FAILED, "blocked", 1)
    assert problems_of(redis) == []
    assert redis.exists(keys.DEPENDENTS(first.job_id), keys.RELEASED()) == 0


@pytest.mark.req("A30")
@pytest.mark.parametrize(
    ("state", "ends"), [(State.SUCCEEDED, State.QUEUED), (State.FAILED, State.FAILED)]
)
def test_depending_on_a_job_that_ended_already_is_decided_at_submit(
    redis: Redis, queue: Queue, records: Records, state: State, ends: State
) -> None:
    first = reach(queue, state)
    second = new_job(depends_on=first.job_id)
    queue.submit(second)

    assert job_of(records, second.id).state is ends
    assert problems_of(redis) == []


@pytest.mark.req("A30", "A16")
def test_a_job_that_was_replaced_is_waited_for_in_its_successor(
    redis: Redis, queue: Queue, records: Records
) -> None:
    first = reach(queue, State.FAILED)
    successor = new_id()
    queue.supersede(first.job_id, successor, "acme", "ada")
    second = new_job(depends_on=first.job_id, priority=90)
    queue.submit(second)
    assert records.waiting_on(second.id) == WaitingOn("dependency", None, None)

    finish(queue, successor)

    assert claim_one(queue).job.id == second.id
    assert problems_of(redis) == []


@pytest.mark.req("A30")
def test_a_crowd_of_dependents_goes_on_in_bounded_steps(redis: Redis, queue: Queue) -> None:
    first = reach(queue, State.RUNNING)
    for _ in range(130):
        queue.submit(new_job(depends_on=first.job_id))
    queue.cancel(first.job_id, "acme")

    assert redis.zcard(keys.BLOCKED()) > 0
    for _ in range(3):
        queue.promote()
    assert redis.zcard(keys.BLOCKED()) == 0
    assert problems_of(redis) == []


@pytest.mark.req("A30")
@pytest.mark.parametrize("depends_on", ["other", "unknown"])
def test_nothing_can_wait_for_another_orgs_job_or_for_none(
    redis: Redis, queue: Queue, depends_on: str
) -> None:
    theirs = new_job(org_id="umbrella")
    queue.submit(theirs)
    before = redis.dbsize()

    with pytest.raises(RelatedEntityMissingError, match="depends_on"):
        queue.submit(new_job(depends_on=theirs.id if depends_on == "other" else new_id()))
    assert redis.dbsize() == before


@pytest.mark.req("A29", "A30")
def test_a_job_may_wait_for_another_and_then_for_its_time(
    redis: Redis, queue: Queue, records: Records
) -> None:
    first = reach(queue, State.QUEUED)
    at_ms = now_ms(redis) + HOUR_MS
    second = new_job(depends_on=first.job_id, scheduled_for_ms=at_ms)
    queue.submit(second)
    finish(queue, first.job_id)

    assert records.waiting_on(second.id) == WaitingOn("schedule", at_ms, None)
    assert problems_of(redis) == []


@pytest.mark.req("X14")
def test_a_waiting_job_says_what_for(redis: Redis, queue: Queue, records: Records) -> None:
    ahead = [new_job() for _ in range(3)]
    for job in ahead:
        queue.submit(job)
    assert records.waiting_on(ahead[2].id) == WaitingOn("queue", None, 2)

    attempt = claim_one(queue)
    assert records.waiting_on(attempt.job.id) is None
    queue.retry(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "slow", 60_000)
    backoff = records.waiting_on(attempt.job.id)
    assert backoff is not None
    assert backoff.reason == "backoff"
    assert backoff.until_ms is not None

    redis.hset(keys.QUOTAS(), "acme", 0)
    assert claim(queue).attempts == ()
    assert records.waiting_on(ahead[2].id) == WaitingOn("org_quota", None, 1)
    assert records.waiting_on(new_id()) is None
