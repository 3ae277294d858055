"""What does an organisation's quota of running jobs do to it and to others? (decision 3)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import Verb
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim, claim_one, new_job
from tests.support.job_states import apply, sweep
from tests.support.snapshot import SWEEP_STAMPS, snapshot


def submit(queue: Queue, count: int = 1, **changes: object) -> list[str]:
    jobs = [new_job(**changes) for _ in range(count)]
    for job in jobs:
        queue.submit(job)
    return [job.id for job in jobs]


def set_quota(redis: Redis, org_id: str, cap: int) -> None:
    redis.hset(keys.QUOTAS(), org_id, str(cap))


@pytest.mark.req("X9", "A5")
@pytest.mark.parametrize("batch", [1, 3, 50])
def test_a_quota_holds_one_team_and_lets_the_others_go_on(
    redis: Redis, queue: Queue, batch: int
) -> None:
    set_quota(redis, "capped", 2)
    submit(queue, 20, org_id="capped")
    submit(queue, 10, org_id="free")

    served: list[str] = []
    while got := claim(queue, batch).attempts:
        served += [attempt.job.org_id for attempt in got]

    assert (served.count("capped"), served.count("free")) == (2, 10)


def test_waiting_behind_a_quota_costs_no_event_and_no_attempt(
    redis: Redis, queue: Queue, records: Records
) -> None:
    set_quota(redis, "acme", 1)
    ids = submit(queue, 3)
    claim_one(queue)
    told = redis.xlen(keys.EVENTS("acme"))

    for _ in range(5):
        assert claim(queue, 5).attempts == ()

    assert redis.xlen(keys.EVENTS("acme")) == told
    for job_id in ids[1:]:
        view = records.job(job_id)
        assert view is not None
        assert (view.job.attempt, len(view.history)) == (1, 1)


def test_a_claim_before_a_shut_gate_changes_nothing(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 1)
    submit(queue, 3)
    claim_one(queue)
    assert claim(queue).attempts == ()
    before = snapshot(redis, ignore=SWEEP_STAMPS)

    assert claim(queue, 50).attempts == ()
    assert snapshot(redis, ignore=SWEEP_STAMPS) == before


@pytest.mark.parametrize(
    "verb", [Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.SNOOZE, Verb.CANCEL, Verb.RECLAIM]
)
def test_a_freed_slot_lets_the_next_job_through_at_once(
    redis: Redis, queue: Queue, verb: Verb
) -> None:
    set_quota(redis, "acme", 1)
    submit(queue, 4)
    attempt = claim_one(queue, window_ms=0)
    assert claim(queue).attempts == ()

    apply(verb, redis, queue, attempt.job.id, attempt.token)

    assert len(claim(queue, 5).attempts) == 1


def test_the_lanes_of_a_capped_team_share_its_slots_in_turns(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 1)
    for target in ("mock:a", "mock:b", "mock:c"):
        submit(queue, 3, target=target)

    served = []
    while got := claim(queue, 5).attempts:
        (attempt,) = got
        served.append(attempt.job.target)
        queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "")

    assert len(served) == 9
    assert all(len(set(served[n : n + 3])) == 3 for n in (0, 3, 6))


@pytest.mark.parametrize("change", ["raise", "remove"])
def test_a_raised_quota_is_seen_by_the_next_promotion(
    redis: Redis, queue: Queue, change: str
) -> None:
    set_quota(redis, "acme", 1)
    submit(queue, 4)
    claim_one(queue)
    claim(queue)
    if change == "raise":
        set_quota(redis, "acme", 3)
    else:
        redis.hdel(keys.QUOTAS(), "acme")

    assert queue.promote().reopened == 1
    assert len(claim(queue, 5).attempts) == (2 if change == "raise" else 3)


def test_a_lowered_quota_ends_nothing_that_runs(redis: Redis, queue: Queue) -> None:
    submit(queue, 5)
    running = claim(queue, 3).attempts
    set_quota(redis, "acme", 1)

    for attempt in running[:2]:
        queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "")
        assert claim(queue, 5).attempts == ()
    queue.fail(running[2].job.id, running[2].token, ErrorKind.PARSE, "")
    assert len(claim(queue, 5).attempts) == 1


def test_a_quota_of_nothing_stops_a_team_until_it_is_lifted(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 0)
    submit(queue, 2)
    assert claim(queue, 5).attempts == ()
    assert queue.promote().reopened == 0
    redis.hdel(keys.QUOTAS(), "acme")
    queue.promote()

    assert len(claim(queue, 5).attempts) == 2


def test_an_urgent_job_behind_a_gate_leads_when_the_gate_opens(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 1)
    submit(queue, 3)
    attempt = claim_one(queue)
    claim(queue)
    (urgent,) = submit(queue, priority=1)
    submit(queue, priority=20, org_id="other")

    queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "")

    assert claim_one(queue).job.id == urgent


def test_jobs_behind_a_gate_can_be_cancelled_to_the_last(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 1)
    ids = submit(queue, 3)
    attempt = claim_one(queue)
    claim(queue)

    for job_id in ids[1:]:
        queue.cancel(job_id, "acme")

    assert not redis.exists(keys.GATES(), keys.SHUT_BY(), keys.SHUT("org_quota:acme"))
    sweep(redis, queue)
    assert queue.check({attempt.job.id: attempt.token}) == {}


def test_many_lanes_of_a_full_team_are_passed_in_a_few_claims(redis: Redis, queue: Queue) -> None:
    set_quota(redis, "acme", 0)
    for n in range(450):
        submit(queue, target=f"mock:m{n}", priority=1)
    submit(queue, org_id="other")

    looks = 0
    while not (got := claim(queue)).attempts:
        assert got.more
        looks += 1
    assert looks == 2
    assert got.attempts[0].job.org_id == "other"
