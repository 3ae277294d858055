"""Which attempts does a sweep take back, and when does it keep its hands off? (A8, A12)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.job import Kind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import JobView, Records
from tests.support.factories import claim, claim_one, new_job
from tests.support.job_states import now_ms, reach, sweep
from tests.support.snapshot import snapshot


def view_of(records: Records, job_id: str) -> JobView:
    view = records.job(job_id)
    assert view is not None
    return view


def age_attempt(redis: Redis, job_id: str, age_ms: int) -> None:
    """Let the running attempt have started `age_ms` ago."""
    redis.hset(keys.JOB(job_id), "started_at", str(now_ms(redis) - age_ms))


@pytest.mark.req("A8")
def test_an_attempt_whose_lease_is_over_goes_back_to_the_queue_at_once(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)

    swept = sweep(redis, queue)

    view = view_of(records, job.job_id)
    assert (swept.requeued, swept.failed, swept.renewed) == (1, 0, False)
    assert swept.ticket_wanted
    assert swept.since_ms is not None
    assert 15_000 <= swept.since_ms < 20_000
    assert (view.job.state, view.job.attempt, view.job.run_at_ms) == (State.QUEUED, 2, None)
    assert (view.job.worker_claim, view.job.started_at_ms) == (None, None)
    assert (view.history[-1].verb, view.history[-1].reason) == ("reclaim", "worker_crash")
    assert claim_one(queue).job.id == job.job_id


@pytest.mark.req("A8", "A13")
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_job_that_kills_its_worker_each_time_ends_stuck(
    redis: Redis, queue: Queue, records: Records, max_attempts: int
) -> None:
    job = new_job(max_attempts=max_attempts)
    queue.submit(job)
    for _ in range(max_attempts):
        assert view_of(records, job.id).job.state is State.QUEUED
        claim_one(queue, window_ms=0)
        sweep(redis, queue)

    view = view_of(records, job.id)
    reclaimed = [row for row in view.history if row.verb == "reclaim"]
    assert (view.job.state, view.job.error_kind) == (State.FAILED, ErrorKind.STUCK)
    assert view.job.error_message
    assert view.job.attempt == max_attempts
    assert [row.reason for row in reclaimed] == ["worker_crash"] * max_attempts
    assert claim(queue).attempts == ()


@pytest.mark.req("A8", "A12")
@pytest.mark.parametrize(
    ("age_ms", "state"), [(880_000, State.QUEUED), (900_001, State.FAILED), (10**9, State.FAILED)]
)
def test_an_attempt_that_started_over_fifteen_minutes_ago_ends_stuck(
    redis: Redis, queue: Queue, records: Records, age_ms: int, state: State
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    age_attempt(redis, job.job_id, age_ms)

    sweep(redis, queue)

    view = view_of(records, job.job_id)
    assert view.job.state is state
    assert view.job.error_kind is (
        ErrorKind.STUCK if state is State.FAILED else ErrorKind.WORKER_CRASH
    )


@pytest.mark.req("A7", "A8")
@pytest.mark.case("LEASE-01", "LEASE-03")
def test_a_healthy_heartbeat_is_never_reclaimed_however_old_the_attempt(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    age_attempt(redis, job.job_id, 10**9)
    queue.renew({job.job_id: job.token}, window_ms=90_000)
    before = redis.hgetall(keys.JOB(job.job_id))

    for _ in range(3):
        swept = sweep(redis, queue)
        assert (swept.requeued, swept.failed) == (0, 0)
    assert redis.hgetall(keys.JOB(job.job_id)) == before


@pytest.mark.case("LEASE-01")
def test_waiting_for_a_time_is_no_lease_that_could_end(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 3_600_000)
    before = redis.hgetall(keys.JOB(job.job_id))

    swept = sweep(redis, queue)

    assert (swept.requeued, swept.failed, swept.ticket_wanted) == (0, 0, False)
    assert redis.hgetall(keys.JOB(job.job_id)) == before


@pytest.mark.case("LEASE-09")
def test_a_sweep_touches_only_the_attempts_of_the_dead_worker(redis: Redis, queue: Queue) -> None:
    for _ in range(60):
        queue.submit(new_job())
    dead = claim(queue, 5, window_ms=0).attempts
    alive = claim(queue, 5).attempts
    untouched = {keys.JOB(a.job.id): redis.hgetall(keys.JOB(a.job.id)) for a in alive}

    assert sweep(redis, queue).requeued == 5

    assert {name: redis.hgetall(name) for name in untouched} == untouched
    assert redis.zcard(keys.RUNNING()) == 5
    assert [a.job.id for a in claim(queue, 5).attempts] == [a.job.id for a in dead]


@pytest.mark.req("A8")
def test_an_escalation_runs_the_same_attempt_again_without_a_limit_of_age(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0, kind=Kind.ESCALATION, max_attempts=1)
    age_attempt(redis, job.job_id, 10**9)

    assert sweep(redis, queue).requeued == 1

    view = view_of(records, job.job_id)
    assert (view.job.state, view.job.attempt) == (State.QUEUED, 1)


@pytest.mark.req("A8")
@pytest.mark.case("LEASE-17")
@pytest.mark.parametrize("since_ms", [46_000, 10**7, -20_000, -(10**7)])
def test_a_sweep_that_comes_at_a_strange_time_takes_nothing_and_renews_all(
    redis: Redis, queue: Queue, since_ms: int
) -> None:
    """Redis was away, or its clock was stepped: the leases say nothing about the workers."""
    job = reach(queue, State.RUNNING, window_ms=0)
    record = redis.hgetall(keys.JOB(job.job_id))

    swept = sweep(redis, queue, since_ms=since_ms)

    assert (swept.renewed, swept.requeued, swept.failed) == (True, 0, 0)
    assert redis.hgetall(keys.JOB(job.job_id)) == record
    lease_end = redis.zscore(keys.RUNNING(), job.job_id)
    assert 80_000 < lease_end - now_ms(redis) <= 90_000
    assert abs(now_ms(redis) - int(redis.get(keys.SWEPT_AT()))) < 10_000


@pytest.mark.parametrize("since_ms", [0, 1_000, 15_000, 44_000, -10_000])
def test_a_sweep_that_is_a_little_early_or_late_takes_what_is_over(
    redis: Redis, queue: Queue, since_ms: int
) -> None:
    reach(queue, State.RUNNING, window_ms=0)

    assert sweep(redis, queue, since_ms=since_ms).requeued == 1


def test_a_sweep_soon_after_another_is_no_stepped_clock_where_sweeps_are_rare(
    redis: Redis, queue: Queue
) -> None:
    reach(queue, State.RUNNING, window_ms=0)
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 5_000)

    swept = queue.reclaim(window_ms=90_000, interval_ms=60_000, ceiling_ms=900_000)

    assert (swept.renewed, swept.requeued) == (False, 1)


def test_the_first_sweep_of_all_renews(redis: Redis, queue: Queue) -> None:
    reach(queue, State.RUNNING, window_ms=0)

    swept = queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)

    assert (swept.renewed, swept.requeued, swept.since_ms) == (True, 0, None)


def test_a_claim_says_how_long_ago_the_last_sweep_was(redis: Redis, queue: Queue) -> None:
    assert claim(queue).sweep_age_ms is None
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 50_000)

    age_ms = claim(queue).sweep_age_ms

    assert age_ms is not None
    assert 50_000 <= age_ms < 60_000


def test_a_sweep_is_bounded_and_the_next_one_goes_on(redis: Redis, queue: Queue) -> None:
    for _ in range(7):
        queue.submit(new_job())
    claim(queue, 7, window_ms=0)
    redis.set(keys.SWEPT_AT(), now_ms(redis))

    def swept() -> int:
        return queue.reclaim(
            window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000, limit=3
        ).requeued

    assert [swept(), swept(), swept(), swept()] == [3, 3, 1, 0]


@pytest.mark.req("A14")
def test_the_holder_of_a_reclaimed_lease_changes_nothing_any_more(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    sweep(redis, queue)
    second = claim_one(queue)
    before = snapshot(redis)

    answers = {
        queue.fail(job.job_id, job.token, ErrorKind.PARSE, "").answer,
        queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "", 0).answer,
        queue.snooze(job.job_id, job.token, "", 0).answer,
    }

    assert answers == {"LEASE_LOST"}
    assert snapshot(redis) == before
    assert queue.renew({job.job_id: job.token}, window_ms=90_000) == {job.job_id: "running"}
    assert queue.check({job.job_id: second.token}) == {}


def test_a_lease_that_is_over_but_not_swept_still_belongs_to_its_holder(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)

    assert queue.renew({job.job_id: job.token}, window_ms=90_000) == {}
    assert sweep(redis, queue).requeued == 0
