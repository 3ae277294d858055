"""What does a claim give, and what do heartbeats say? (A5, A7, A17)"""

from __future__ import annotations

import time

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim, claim_one, new_job
from tests.support.job_states import now_ms, reach
from tests.support.snapshot import snapshot


@pytest.mark.req("A5", "A2")
@pytest.mark.case("LEASE-07")
def test_a_claim_gives_all_that_an_attempt_needs_and_stamps_the_record(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = new_job(execution_options={"temperature": 0.5}, prompt_text="Say hello.\x00 é\n")
    queue.submit(job)
    start_ms = now_ms(redis)

    attempt = claim_one(queue, window_ms=60_000)

    view = records.job(job.id)
    assert view is not None
    assert attempt.prompt_text == job.prompt_text
    assert attempt.job.execution_options == {"temperature": 0.5}
    assert attempt.job == view.job
    assert view.job.worker_claim == attempt.token
    stamps = {view.job.claimed_at_ms, view.job.started_at_ms, view.job.running_heartbeat_at_ms}
    (stamp,) = stamps
    assert stamp is not None
    assert start_ms <= stamp <= now_ms(redis)
    assert redis.zscore(keys.RUNNING(), job.id) == stamp + 60_000


@pytest.mark.req("A7")
def test_a_heartbeat_renews_its_stamp_and_its_lease(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    redis.hset(keys.JOB(job.job_id), "running_heartbeat_at", "1")

    assert queue.renew({job.job_id: job.token}, window_ms=90_000) == {}

    view = records.job(job.job_id)
    assert view is not None
    assert view.job.running_heartbeat_at_ms is not None
    assert now_ms(redis) - 10_000 < view.job.running_heartbeat_at_ms <= now_ms(redis)
    assert redis.zscore(keys.RUNNING(), job.job_id) > now_ms(redis) + 80_000


@pytest.mark.req("A7", "A14", "A17")
@pytest.mark.parametrize("verb", ["renew", "check"])
def test_a_heartbeat_is_told_which_attempts_are_lost_and_why(
    redis: Redis, queue: Queue, verb: str
) -> None:
    held = {}
    for _ in range(4):
        queue.submit(new_job())
    kept, cancelled, snoozed, failed = claim(queue, 4).attempts
    held = {a.job.id: a.token for a in (kept, cancelled, snoozed, failed)}
    queue.cancel(cancelled.job.id, "acme")
    queue.snooze(snoozed.job.id, snoozed.token, "busy", 60_000)
    queue.fail(failed.job.id, failed.token, ErrorKind.PARSE, "")
    held["gone"] = "token.1"
    before = snapshot(redis)

    lost = queue.renew(held, window_ms=60_000) if verb == "renew" else queue.check(held)

    assert lost == {
        cancelled.job.id: "cancelled",
        snoozed.job.id: "queued",
        failed.job.id: "failed",
        "gone": "",
    }
    if verb == "check":
        assert snapshot(redis) == before
    assert redis.zrange(keys.RUNNING(), 0, -1) == [kept.job.id]


def test_nothing_held_is_nothing_lost(redis: Redis, queue: Queue) -> None:
    assert queue.renew({}, window_ms=1) == {}
    assert queue.check({}) == {}


def test_one_heartbeat_carries_the_largest_worker(redis: Redis, queue: Queue) -> None:
    for _ in range(512):
        queue.submit(new_job(prompt_text=""))
    held = {a.job.id: a.token for a in claim(queue, 512).attempts}

    assert len(held) == 512
    assert queue.renew(held, window_ms=60_000) == {}


def test_a_claim_says_when_the_next_job_is_due(redis: Redis, queue: Queue) -> None:
    assert claim(queue).due_in_ms is None
    first, second = (reach(queue, State.RUNNING) for _ in range(2))
    for job, wait_ms in ((first, 60_000), (second, 30_000)):
        queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", wait_ms)

    got = claim(queue)

    assert got.attempts == ()
    assert got.due_in_ms is not None
    assert 20_000 < got.due_in_ms <= 30_000
    assert abs(queue.promote().due_in_ms - got.due_in_ms) < 10_000


def test_a_claim_takes_due_jobs_along_and_tells_the_one_after(redis: Redis, queue: Queue) -> None:
    jobs = [reach(queue, State.RUNNING) for _ in range(3)]
    for job in jobs:
        queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 60_000)
    redis.zadd(keys.SCHEDULED(), {jobs[0].job_id: 1, jobs[1].job_id: 2})

    got = claim(queue, 5)

    assert [a.job.id for a in got.attempts] == [job.job_id for job in jobs[:2]]
    assert all(a.job.run_at_ms is None for a in got.attempts)
    assert got.due_in_ms is not None
    assert 50_000 < got.due_in_ms <= 60_000


def test_more_due_jobs_than_one_claim_promotes_are_announced(redis: Redis, queue: Queue) -> None:
    for _ in range(130):
        queue.submit(new_job(prompt_text=""))
    for attempt in claim(queue, 130).attempts:
        queue.snooze(attempt.job.id, attempt.token, "later", 60_000)
        redis.zadd(keys.SCHEDULED(), {attempt.job.id: 1})

    first = claim(queue, 200)
    second = claim(queue, 200)

    assert (len(first.attempts), first.more) == (100, True)
    assert (len(second.attempts), second.more) == (30, False)


@pytest.mark.case("SCH-09")
@pytest.mark.parametrize("off_s", [300, -300])
def test_a_host_whose_clock_is_wrong_changes_no_stamp(
    redis: Redis,
    queue: Queue,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    off_s: int,
) -> None:
    if "fakeredis" in request.node.name:
        pytest.skip("fakeredis lives in this process: its clock is the host's")
    start_ms = now_ms(redis)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off_s)
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 5_000)

    view = records.job(job.job_id)
    end_ms = now_ms(redis)
    assert view is not None
    assert view.job.run_at_ms is not None
    assert start_ms + 5_000 <= view.job.run_at_ms <= end_ms + 5_000
    assert start_ms <= view.job.created_at_ms <= view.job.updated_at_ms <= end_ms
    assert claim(queue).attempts == ()


@pytest.mark.parametrize("verb", ["retry", "snooze"])
@pytest.mark.parametrize("after_ms", [0, -5_000])
def test_a_wait_of_nothing_is_ready_at_once(
    redis: Redis, queue: Queue, verb: str, after_ms: int
) -> None:
    job = reach(queue, State.RUNNING)
    if verb == "retry":
        settled = queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", after_ms)
    else:
        settled = queue.snooze(job.job_id, job.token, "busy", after_ms)

    assert settled.ticket_wanted
    assert claim_one(queue).job.run_at_ms is None


@pytest.mark.req("A2")
def test_only_retry_and_reclaim_count_an_attempt(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING)

    def attempt() -> int:
        view = records.job(job.job_id)
        assert view is not None
        return view.job.attempt

    seen = [attempt()]
    queue.snooze(job.job_id, job.token, "busy", 0)
    seen.append(attempt())
    token = claim_one(queue).token
    seen.append(attempt())
    queue.retry(job.job_id, token, ErrorKind.TIMEOUT, "slow", 0)
    seen.append(attempt())

    assert seen == [1, 1, 1, 2]
