"""Does the world change once when a verb arrives twice? (decision 5)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer, State, Verb
from jobs.store import keys
from jobs.store.queue import Queue
from tests.support.factories import claim, claim_one, new_id, new_job
from tests.support.job_states import apply, now_ms, reach, sweep
from tests.support.snapshot import SWEEP_STAMPS, snapshot

STARTS = {
    Verb.SUCCEED: State.RUNNING,
    Verb.RETRY: State.RUNNING,
    Verb.SNOOZE: State.RUNNING,
    Verb.FAIL: State.RUNNING,
    Verb.EXPIRE: State.QUEUED,
    Verb.CANCEL: State.RUNNING,
    Verb.SUPERSEDE: State.FAILED,
}


@pytest.mark.req("A14")
@pytest.mark.parametrize(("verb", "state"), STARTS.items())
def test_a_verb_that_arrives_twice_answers_ok_twice_and_moves_once(
    redis: Redis, queue: Queue, verb: Verb, state: State
) -> None:
    job = reach(queue, state)
    assert apply(verb, redis, queue, job.job_id, job.token) is Answer.OK
    after_first = snapshot(redis)

    assert apply(verb, redis, queue, job.job_id, job.token) is Answer.OK
    assert snapshot(redis) == after_first


@pytest.mark.req("A14")
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE])
def test_a_late_repeat_does_not_touch_the_attempt_that_followed(
    redis: Redis, queue: Queue, verb: Verb
) -> None:
    job = reach(queue, State.RUNNING)
    apply(verb, redis, queue, job.job_id, job.token)
    second = claim_one(queue)
    before = snapshot(redis)

    assert apply(verb, redis, queue, job.job_id, job.token) is Answer.OK
    assert snapshot(redis) == before
    assert queue.check({job.job_id: second.token}) == {}


@pytest.mark.req("A1")
def test_a_submit_that_arrives_twice_is_one_job(redis: Redis, queue: Queue) -> None:
    job = new_job()
    first = queue.submit(job)
    after_first = snapshot(redis)

    assert queue.submit(job) == first
    assert snapshot(redis) == after_first


def test_a_submit_repeated_after_its_job_ended_makes_no_second_one(
    redis: Redis, queue: Queue
) -> None:
    job = new_job(idempotency_key="k", payload_hash="h")
    queue.submit(job)
    apply(Verb.CANCEL, redis, queue, job.id, "")
    before = snapshot(redis)

    assert queue.submit(job).job_id == job.id
    assert snapshot(redis) == before


@pytest.mark.parametrize("change", [{"org_id": "other"}, {"prompt_id": "another"}])
def test_an_id_that_is_another_jobs_is_refused_and_changes_nothing(
    redis: Redis, queue: Queue, change: dict[str, str]
) -> None:
    job = new_job()
    queue.submit(job)
    before = snapshot(redis)

    with pytest.raises(ValueError, match="another one's id"):
        queue.submit(new_job(**{"id": job.id, "prompt_id": job.prompt_id, **change}))
    assert snapshot(redis) == before


def test_a_prompt_is_never_written_over_by_a_new_job(redis: Redis, queue: Queue) -> None:
    job = new_job()
    queue.submit(job)
    before = snapshot(redis)

    with pytest.raises(ValueError, match="another one's id"):
        queue.submit(new_job(prompt_id=job.prompt_id, org_id="other", prompt_text="Mine."))
    assert snapshot(redis) == before


@pytest.mark.req("A5")
def test_a_claim_that_arrives_twice_answers_the_same_jobs_and_takes_none(
    redis: Redis, queue: Queue
) -> None:
    for _ in range(5):
        queue.submit(new_job())
    first = claim(queue, 3, token="once")
    after_first = snapshot(redis)

    again = claim(queue, 3, token="once")

    assert again.attempts == first.attempts
    assert len({attempt.token for attempt in first.attempts}) == 3
    assert snapshot(redis) == after_first


def test_a_repeated_claim_leaves_out_what_is_no_longer_held(redis: Redis, queue: Queue) -> None:
    for _ in range(3):
        queue.submit(new_job())
    first, second, third = claim(queue, 3, token="once").attempts
    queue.fail(first.job.id, first.token, ErrorKind.PARSE, "")
    queue.snooze(second.job.id, second.token, "busy", 0)
    claim_one(queue)

    assert [attempt.token for attempt in claim(queue, 3, token="once").attempts] == [third.token]


def test_a_claim_without_a_token_is_refused(queue: Queue) -> None:
    with pytest.raises(ValueError, match="token"):
        claim(queue, token="")


@pytest.mark.case("RQ-13")
def test_a_second_sweep_at_once_takes_nothing_more(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    assert sweep(redis, queue).requeued == 1
    before = snapshot(redis, ignore=SWEEP_STAMPS)

    again = queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)

    assert (again.requeued, again.failed, again.renewed) == (0, 0, False)
    assert snapshot(redis, ignore=SWEEP_STAMPS) == before
    assert redis.hget(keys.JOB(job.job_id), "attempt") == "2"


def test_a_renewal_that_arrives_twice_only_renews(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.RUNNING)

    assert queue.renew({job.job_id: job.token}, window_ms=90_000) == {}
    assert queue.renew({job.job_id: job.token}, window_ms=90_000) == {}
    assert redis.zscore(keys.RUNNING(), job.job_id) <= now_ms(redis) + 90_000
    assert redis.zcard(keys.RUNNING()) == 1


def test_a_promotion_that_arrives_twice_promotes_once(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 60_000)
    redis.zadd(keys.SCHEDULED(), {job.job_id: 1})

    assert queue.promote().promoted == 1
    before = snapshot(redis)
    assert queue.promote().promoted == 0
    assert snapshot(redis) == before


@pytest.mark.req("A16", "X16")
def test_a_job_has_one_successor_whoever_asks_again(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.FAILED)
    first, other = new_id(), new_id()
    assert queue.supersede(job.job_id, first, "acme", "ada").answer is Answer.OK
    before = snapshot(redis)

    late = queue.supersede(job.job_id, other, "acme", "ada")

    assert (late.answer, late.superseded_by) == (Answer.WRONG_STATE, first)
    assert snapshot(redis) == before


def test_a_job_cannot_be_superseded_by_itself_or_by_one_that_exists(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.FAILED)
    other = reach(queue, State.QUEUED, org_id="other")
    before = snapshot(redis)

    for taken in (job.job_id, other.job_id):
        assert queue.supersede(job.job_id, taken, "acme", "ada").answer is Answer.WRONG_STATE
    assert snapshot(redis) == before
