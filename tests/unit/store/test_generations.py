"""How does a generation get through the gates, and what answers for it afterwards? (B7 to B11)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import (
    FeatureUnavailableError,
    GenerationMissingError,
    ThrottledError,
)
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.job import Kind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.generations import Generations
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim_one, new_id, new_job
from tests.support.invariants import problems_of
from tests.support.snapshot import snapshot
from tests.support.stored_generations import (
    ENVELOPE,
    RESERVED_USD_MICROS,
    billed,
    call_of,
    credits_of,
    figures,
    generations_of,
    new_generation,
    open_to,
    wakes,
)


def ttl_s(redis: Redis, key: str) -> int:
    return round(redis.pttl(key) / 1000)


@pytest.mark.req("B4", "B9", "B10")
def test_a_submit_is_pending_under_its_own_id_for_ten_minutes(
    redis: Redis, generations: Generations, records: Records
) -> None:
    new = new_generation(second_target="mock:mock-2")

    accepted = generations.submit(new)

    assert (accepted.replayed, accepted.ticket_wanted) == (False, True)
    assert accepted.view == generations.get(new.id, "1")
    assert (accepted.view.id, accepted.view.status) == (new.id, "pending")
    assert ttl_s(redis, keys.GENERATION(new.id)) == 600
    # Never shorter than the job lives: its end ends it.
    assert redis.ttl(keys.GENERATION_OF(new.digest)) == -1
    view = records.job(new.id)
    assert view is not None
    assert (view.job.kind, view.job.state, view.job.team_id) == (
        Kind.GENERATION,
        State.QUEUED,
        "1",
    )
    assert (view.job.max_attempts, view.job.execution_options) == (1, new.options)
    assert problems_of(redis) == []


@pytest.mark.req("B9")
def test_the_same_digest_answers_the_same_handle_and_starts_nothing(
    redis: Redis, generations: Generations
) -> None:
    first = new_generation()
    generations.submit(first)
    before = redis.zcard(keys.CHANGED("acme"))

    again = generations.submit(new_generation(digest=first.digest))

    assert (again.view.id, again.replayed, again.ticket_wanted) == (first.id, True, False)
    assert redis.zcard(keys.CHANGED("acme")) == before
    assert credits_of(redis).of_org("acme").reserved_usd_micros == RESERVED_USD_MICROS


@pytest.mark.req("B9", "B10")
def test_the_record_answers_resubmits_with_the_outcome_until_it_ends(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    first = new_generation()
    generations.submit(first)
    attempt = claim_one(queue)
    queue.succeed_generation(first.id, attempt.token, ENVELOPE, billed(attempt.job, call_of()))

    again = generations.submit(new_generation(digest=first.digest)).view
    assert (again.id, again.result) == (first.id, {"text": "Hello.", "fields": {}})
    assert ttl_s(redis, keys.GENERATION(first.id)) == 600
    assert ttl_s(redis, keys.GENERATION_OF(first.digest)) == 600

    redis.delete(keys.GENERATION(first.id))
    anew = new_generation(digest=first.digest)
    assert generations.submit(anew).view.id == anew.id


@pytest.mark.req("B8")
def test_the_throttle_names_the_exact_wait(redis: Redis) -> None:
    open_to(redis, "acme")
    generations = generations_of(redis, per_minute=3)
    for _ in range(3):
        generations.submit(new_generation())
    # As if they had come 20, 19 and 18.5 s ago.
    for job_id, back_ms in zip(
        redis.zrange(keys.SUBMITS("1"), 0, -1), (20_000, 19_000, 18_500), strict=True
    ):
        redis.zincrby(keys.SUBMITS("1"), -back_ms, job_id)

    with pytest.raises(ThrottledError) as caught:
        generations.submit(new_generation())
    assert caught.value.retry_after_s == 40

    first = redis.zrange(keys.SUBMITS("1"), 0, 0)[0]
    redis.zincrby(keys.SUBMITS("1"), -40_000, first)
    assert generations.submit(new_generation()).view.status == "pending"
    with pytest.raises(ThrottledError) as caught:
        generations.submit(new_generation())
    assert caught.value.retry_after_s in (41, 40)
    assert figures(redis)["limit:throttle"] == 2


@pytest.mark.req("B8")
@pytest.mark.case("SEC-09")
def test_a_throttled_team_holds_up_no_other_and_reads_on(redis: Redis) -> None:
    open_to(redis, "acme")
    generations = generations_of(redis, per_minute=1)
    first = new_generation()
    generations.submit(first)
    with pytest.raises(ThrottledError):
        generations.submit(new_generation(digest=first.digest))

    assert generations.submit(new_generation(team_id="2")).view.status == "pending"
    assert generations.get(first.id, "1").status == "pending"
    assert ttl_s(redis, keys.SUBMITS("1")) == 60


@pytest.mark.req("B21")
def test_without_the_flag_nothing_is_stored_and_what_runs_goes_on(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    running = new_generation()
    generations.submit(running)
    attempt = claim_one(queue)
    Flags(redis).disable(WORKFLOWS_LLM_ACTION, "acme")
    before = snapshot(redis, ignore={keys.SUBMITS("1")})

    with pytest.raises(FeatureUnavailableError):
        generations.submit(new_generation())

    assert snapshot(redis, ignore={keys.SUBMITS("1")}) == before
    queue.succeed_generation(running.id, attempt.token, ENVELOPE, "")
    assert generations.get(running.id, "1").status == "succeeded"


@pytest.mark.req("B7", "B9")
def test_used_up_credits_fail_at_once_and_the_next_submit_looks_anew(
    redis: Redis, generations: Generations
) -> None:
    credits_of(redis).set_cap("acme", RESERVED_USD_MICROS - 1)
    refused = new_generation()

    view = generations.submit(refused).view

    assert (view.status, view.code) == ("failed", GenerationCode.QUOTA_EXCEEDED)
    assert generations.get(refused.id, "1") == view
    assert ttl_s(redis, keys.GENERATION(refused.id)) == 300
    assert redis.exists(keys.JOB(refused.id), keys.TURNS(), keys.PROMPT(refused.prompt_id)) == 0
    credits_of(redis).set_cap("acme", RESERVED_USD_MICROS)
    again = new_generation(digest=refused.digest)
    assert (generations.submit(again).view.id, again.id) == (again.id, again.id)
    assert generations.get(again.id, "1").status == "pending"


@pytest.mark.req("B7", "B17")
@pytest.mark.case("LIM-05")
@pytest.mark.parametrize("cap", [None, 0])
def test_an_organisation_without_credits_gets_nothing_be_it_free(
    redis: Redis, generations: Generations, cap: int | None
) -> None:
    credits_of(redis).set_cap("acme", cap)
    view = generations.submit(new_generation(reserve_usd_micros=0)).view
    assert view.code is GenerationCode.QUOTA_EXCEEDED


@pytest.mark.req("B17")
def test_reservations_never_exceed_the_cap(redis: Redis, generations: Generations) -> None:
    credits_of(redis).set_cap("acme", 5 * RESERVED_USD_MICROS + 1)
    codes = [generations.submit(new_generation(team_id=str(n))).view.code for n in range(8)]

    assert codes == [None] * 5 + [GenerationCode.QUOTA_EXCEEDED] * 3
    balance = credits_of(redis).of_org("acme")
    assert (balance.reserved_usd_micros, balance.left_usd_micros) == (5 * RESERVED_USD_MICROS, 1)


@pytest.mark.req("B5", "B6")
def test_a_refusal_comes_after_flag_and_dedupe_and_costs_nothing(
    redis: Redis, generations: Generations
) -> None:
    refused = new_generation(refusal=GenerationCode.INVALID_MODEL)

    view = generations.submit(refused).view

    assert (view.status, view.code, view.message) == (
        "failed",
        GenerationCode.INVALID_MODEL,
        COPY[GenerationCode.INVALID_MODEL],
    )
    assert redis.exists(keys.JOB(refused.id)) == 0
    assert credits_of(redis).of_org("acme").reserved_usd_micros == 0
    again = generations.submit(new_generation(digest=refused.digest))
    assert (again.view.id, again.replayed) == (refused.id, True)
    Flags(redis).disable(WORKFLOWS_LLM_ACTION, "acme")
    with pytest.raises(FeatureUnavailableError):
        generations.submit(new_generation(refusal=GenerationCode.INVALID_MODEL))


@pytest.mark.req("B21")
def test_the_throttle_comes_before_the_flag(redis: Redis) -> None:
    generations = generations_of(redis, per_minute=1)
    with pytest.raises(FeatureUnavailableError):
        generations.submit(new_generation())
    with pytest.raises(ThrottledError):
        generations.submit(new_generation())


@pytest.mark.req("B2", "B5")
def test_another_teams_generation_is_one_that_never_was(generations: Generations) -> None:
    new = new_generation()
    generations.submit(new)
    for generation_id, team in ((new.id, "2"), (new.id, ""), (new_id(), "1")):
        with pytest.raises(GenerationMissingError):
            generations.get(generation_id, team)


def test_another_kind_of_job_is_no_generation(queue: Queue, generations: Generations) -> None:
    job = new_job()
    queue.submit(job)
    with pytest.raises(GenerationMissingError):
        generations.get(job.id, "acme")


@pytest.mark.req("B10")
def test_a_generation_that_outlives_its_record_is_pending_all_the_same(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = new_generation()
    generations.submit(new)
    redis.delete(keys.GENERATION(new.id))
    assert generations.get(new.id, "1").status == "pending"
    with pytest.raises(GenerationMissingError):
        generations.get(new.id, "2")

    attempt = claim_one(queue)
    queue.succeed_generation(new.id, attempt.token, ENVELOPE, "")
    assert generations.get(new.id, "1").status == "succeeded"
    redis.delete(keys.GENERATION(new.id))
    with pytest.raises(GenerationMissingError):
        generations.get(new.id, "1")


@pytest.mark.req("B9", "B11")
def test_everyone_who_asked_is_woken_once_and_sixteen_at_most(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    first = new_generation(wake_token="token-0")
    generations.submit(first)
    for n in (*range(20), 0, 1):
        generations.submit(new_generation(digest=first.digest, wake_token=f"token-{n}"))
    assert redis.scard(keys.WAITERS(first.id)) == 16

    attempt = claim_one(queue)
    queue.succeed_generation(first.id, attempt.token, ENVELOPE, "")
    queue.succeed_generation(first.id, attempt.token, ENVELOPE, "")

    assert sorted(wakes(redis)) == sorted((first.id, f"token-{n}") for n in range(16))
    assert "Hello" not in str(redis.xrange(keys.WAKES()))
    assert redis.exists(keys.WAITERS(first.id)) == 0
