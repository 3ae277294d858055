"""Does the store mend itself, keep its counts, and let go of what is old? (A8, A23, A24, A33)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.job import SCHEMA_VERSION
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts
from jobs.store.stats import Stats
from jobs.store.upkeep import Upkeep
from tests.support.factories import claim, claim_one, new_id, new_job, response_for
from tests.support.invariants import problems_of
from tests.support.job_states import reach, sweep


@pytest.fixture
def upkeep(redis: Redis) -> Upkeep:
    return Upkeep(Scripts(redis, queue_name="genqueue"), ticket_cap=16)


def whole_round(upkeep: Upkeep) -> tuple[int, int]:
    mended = dangling = 0
    for _ in range(50):
        done = upkeep.repair(window_ms=60_000, limit=7)
        mended += done.mended
        dangling += done.dangling
        if done.is_round_done:
            return mended, dangling
    raise AssertionError("a round does not end")


@pytest.mark.req("A8")
@pytest.mark.case("RQ-11")
def test_live_jobs_that_are_in_no_set_are_put_back(
    redis: Redis, queue: Queue, upkeep: Upkeep
) -> None:
    for org in ("acme", "umbrella", "wayne"):
        for _ in range(10):
            queue.submit(new_job(org_id=org))
    running = reach(queue, State.RUNNING, priority=0)
    waiting = reach(queue, State.QUEUED, depends_on=running.job_id)
    for name in redis.scan_iter(match=keys.READY("*")):
        redis.delete(name)
    redis.delete(keys.TURNS(), keys.BLOCKED(), keys.RUNNING())
    for team in ("acme", "umbrella", "wayne"):
        redis.delete(keys.TEAM_LANES(team))

    mended, _ = whole_round(upkeep)

    assert mended == 32
    assert problems_of(redis) == []
    assert redis.zrange(keys.BLOCKED(), 0, -1) == [waiting.job_id]
    assert len(claim(queue, 50).attempts) == 30
    assert whole_round(upkeep) == (0, 0)


@pytest.mark.case("RQ-03")
def test_ids_that_name_no_job_are_counted_and_removed(
    redis: Redis, queue: Queue, upkeep: Upkeep
) -> None:
    running = reach(queue, State.RUNNING, window_ms=0)
    ready, ended = reach(queue, State.QUEUED), reach(queue, State.CANCELLED)
    for gone in (running, ready, ended):
        redis.delete(keys.JOB(gone.job_id))

    assert sweep(redis, queue).dangling == 1
    assert claim(queue).attempts == ()
    assert whole_round(upkeep)[1] == 3
    assert problems_of(redis) == []
    assert redis.exists(keys.ENDED(), keys.RUNNING(), keys.RUNNING_BY_ORG()) == 0


@pytest.mark.req("A33")
def test_a_record_that_is_too_old_to_run_fails_as_migration(
    redis: Redis, queue: Queue, records: Records
) -> None:
    old, new = reach(queue, State.QUEUED), reach(queue, State.QUEUED)
    redis.hset(keys.JOB(old.job_id), "schema_version", 0)

    assert claim_one(queue).job.id == new.job_id
    view = records.job(old.job_id)
    assert view is not None
    assert (view.job.state, view.job.error_kind) == (State.FAILED, "migration")
    assert [move.target for move in view.history] == ["queued", "running", "failed"]
    assert problems_of(redis) == []


@pytest.mark.req("A33")
def test_a_record_of_a_newer_release_is_left_for_one(redis: Redis, queue: Queue) -> None:
    newer = reach(queue, State.QUEUED)
    redis.hset(keys.JOB(newer.job_id), "schema_version", SCHEMA_VERSION + 1)

    assert claim(queue).attempts == ()
    assert redis.hget(keys.JOB(newer.job_id), "state") == State.QUEUED
    assert problems_of(redis) == []


@pytest.mark.req("A23")
def test_counts_by_state_kind_and_latency_follow_every_move(redis: Redis, queue: Queue) -> None:
    for state in reversed(State):
        reach(queue, state, priority=0)
    queue.submit(new_job(org_id="umbrella"))

    stats = Stats(redis).by_org()

    stored = [redis.hget(name, "state") for name in redis.scan_iter(match=keys.JOB("*"))
              if redis.type(name) == "hash" and redis.hget(name, "org_id") == "acme"]  # fmt: skip
    assert stats["acme"].states == {state: stored.count(state) for state in State}
    assert stats["acme"].failures == {"parse": 2}
    assert stats["acme"].succeeded_ever == 1
    assert stats["acme"].latency_ms_mean is not None
    assert stats["umbrella"].states[State.QUEUED] == 1


@pytest.mark.req("A24")
def test_only_ended_jobs_are_archived_and_a_prompt_goes_with_its_last(
    redis: Redis, queue: Queue, upkeep: Upkeep, records: Records
) -> None:
    old = reach(queue, State.SUCCEEDED, metadata={"a": 1}, execution_options={"b": 1})
    newer = new_id()
    queue.supersede(old.job_id, newer, "acme", "ada")
    attempt = claim_one(queue)
    live = reach(queue, State.QUEUED)

    assert upkeep.archive([old.job_id, live.job_id, newer, new_id()]) == [old.job_id]
    assert records.job(old.job_id) is None
    view = records.prompt(old.prompt_id)
    assert view is not None
    assert [job.id for job in view.jobs] == [newer]
    assert problems_of(redis) == []

    queue.succeed(newer, attempt.token, response_for(attempt))
    assert upkeep.archive([newer]) == [newer]
    left = [name for name in redis.scan_iter() if old.prompt_id in name or newer in name]
    assert left == [keys.TOMBSTONE(newer)]
    assert list(redis.scan_iter(match=keys.RESPONSE("*"))) == []
    assert Stats(redis).by_org()["acme"].states == {
        state: int(state is State.QUEUED) for state in State
    }


@pytest.mark.req("A24")
@pytest.mark.case("API-03")
def test_an_archived_job_leaves_word_that_it_is_gone(
    redis: Redis, queue: Queue, upkeep: Upkeep, records: Records
) -> None:
    gone = reach(queue, State.CANCELLED)
    upkeep.archive([gone.job_id])

    stone = records.tombstone(gone.job_id, "acme")
    assert stone is not None
    assert stone.state is State.CANCELLED
    assert records.tombstone(gone.job_id, "umbrella") is None
    assert 0 < redis.pttl(keys.TOMBSTONE(gone.job_id)) <= keys.TOMBSTONE_TTL_MS


def test_the_oldest_ended_jobs_are_named_first(
    redis: Redis, queue: Queue, records: Records
) -> None:
    ended = [reach(queue, State.CANCELLED).job_id for _ in range(3)]
    reach(queue, State.RUNNING)
    redis.zadd(keys.ENDED(), {job_id: 1000 + n for n, job_id in enumerate(ended)})

    assert records.ended_before(1002) == ended[:2]
    assert records.ended_before(10**15, limit=1) == ended[:1]


@pytest.mark.req("A31")
def test_a_quota_that_is_raised_lets_waiting_lanes_through(queue: Queue, upkeep: Upkeep) -> None:
    upkeep.set_quota("acme", 1)
    for _ in range(3):
        queue.submit(new_job())
    queue.submit(new_job(org_id="umbrella"))
    assert {a.job.org_id for a in claim(queue, 9).attempts} == {"acme", "umbrella"}

    assert upkeep.set_quota("acme", 2)
    assert len(claim(queue, 9).attempts) == 1
    assert upkeep.set_quota("acme", None)
    assert len(claim(queue, 9).attempts) == 1


def test_failed_jobs_are_noted_for_their_copy_at_rq(redis: Redis, queue: Queue) -> None:
    failed = reach(queue, State.FAILED)
    cancelled = reach(queue, State.CANCELLED)
    assert redis.lrange(keys.MIRROR(), 0, -1) == [failed.job_id]

    queue.supersede(failed.job_id, new_id(), "acme", "ada")
    assert redis.lrange(keys.MIRROR(), 0, -1) == [failed.job_id] * 2
    assert cancelled.job_id not in redis.lrange(keys.MIRROR(), 0, -1)
    assert redis.hget(keys.JOB(failed.job_id), "error_kind") == ErrorKind.PARSE


@pytest.mark.req("A8")
def test_a_look_goes_over_as_many_small_orgs_as_its_limit_allows(
    queue: Queue, upkeep: Upkeep
) -> None:
    for n in range(12):
        queue.submit(new_job(org_id=f"org-{n:02}"))

    first = upkeep.repair(window_ms=60_000, limit=10)
    assert (first.looked_at, first.is_round_done) == (10, False)
    second = upkeep.repair(window_ms=60_000, limit=10)
    assert (second.looked_at, second.is_round_done) == (2, True)
