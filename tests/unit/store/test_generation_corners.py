"""Generations in the corners: other releases, late bookings, lanes that leave, clocks that step."""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, ThrottledError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import NewGeneration
from jobs.domain.outcome import Cooldown
from jobs.store import keys
from jobs.store.credits import CreditBalance
from jobs.store.generations import Generations
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts, SlotCaps
from jobs.store.upkeep import Upkeep
from tests.support.factories import claim, claim_one, new_id, new_job
from tests.support.job_states import now_ms
from tests.support.stored_generations import (
    CAP_USD_MICROS,
    ENVELOPE,
    RESERVED_USD_MICROS,
    billed,
    call_of,
    credits_of,
    ledger,
    new_generation,
)

DIGEST = "d" * 64


@pytest.fixture
def upkeep(redis: Redis) -> Upkeep:
    return Upkeep(Scripts(redis, queue_name="genqueue"), ticket_cap=16)


def accepted(generations: Generations, **changes: object) -> NewGeneration:
    new = new_generation(**changes)
    generations.submit(new)
    return new


@pytest.mark.req("A33")
def test_a_worker_of_the_release_before_leaves_it_to_one_that_knows_it(
    redis: Redis, generations: Generations
) -> None:
    new = accepted(generations)
    prompt = new_job()
    Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=16).submit(prompt)
    versions = [redis.hget(keys.JOB(one.id), "schema_version") for one in (new, prompt)]
    assert versions == ["2", "1"]


@pytest.mark.req("B19", "B17")
def test_what_such_a_worker_ended_all_the_same_is_put_right(
    redis: Redis, generations: Generations, upkeep: Upkeep
) -> None:
    new = accepted(generations, wake_token="token-of-a-step")
    redis.zrem(keys.READY(keys.lane("acme", "generation", "mock:mock-1", "1")), new.id)
    redis.delete(keys.TURNS(), keys.TEAM_LANES("acme/1"))
    redis.hset(keys.JOB(new.id), mapping={"state": "failed", "error_kind": "unknown"})

    assert upkeep.repair(window_ms=90_000).mended == 1

    assert generations.get(new.id, "1").code is GenerationCode.CAPACITY_UNAVAILABLE
    assert credits_of(redis).of_org("acme") == CreditBalance(CAP_USD_MICROS, 0, 0, 0)
    assert redis.xlen(keys.WAKES()) == 1
    assert upkeep.repair(window_ms=90_000).mended == 0
    redis.flushall()


@pytest.mark.req("B11", "B6")
def test_the_time_in_which_it_ran_is_not_time_in_the_queue(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = accepted(generations)
    attempt = claim_one(queue)
    deadline = int(redis.hget(keys.JOB(new.id), "expires_at") or 0)
    redis.hset(keys.JOB(new.id), "started_at", now_ms(redis) - 60_000)

    queue.snooze(new.id, attempt.token, "worker_shutdown", 0)

    moved = redis.zscore(keys.EXPIRING(), new.id)
    assert moved is not None
    assert moved - deadline == pytest.approx(60_000, abs=500)


@pytest.mark.req("B11", "B6")
@pytest.mark.parametrize("look", ["claim", "promote"])
def test_what_was_put_back_and_ran_out_of_time_is_not_called_free(
    redis: Redis, queue: Queue, generations: Generations, look: str
) -> None:
    new = accepted(generations)
    attempt = claim_one(queue)
    queue.snooze(new.id, attempt.token, "leaving", 0, billed(attempt.job, call_of(7)))
    redis.hset(keys.JOB(new.id), "expires_at", 1)
    redis.zadd(keys.EXPIRING(), {new.id: 1})
    if look == "claim":
        assert claim(queue).attempts == ()
    else:
        queue.promote()

    view = generations.get(new.id, "1")
    assert view.code is GenerationCode.DEADLINE_EXCEEDED
    assert "costs nothing" not in (view.message or "")
    assert credits_of(redis).of_org("acme") == CreditBalance(CAP_USD_MICROS, 7, 0, 0)


@pytest.mark.req("B10")
def test_what_was_asked_for_ends_with_the_record(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = accepted(generations)
    attempt = claim_one(queue)
    queue.succeed_generation(new.id, attempt.token, ENVELOPE, "")
    assert 598 <= redis.ttl(keys.OPTIONS(new.id)) <= 600


@pytest.mark.req("B9", "B10")
def test_a_live_generation_answers_its_resubmits_however_long_it_lives(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = accepted(generations, digest=DIGEST)
    attempt = claim_one(queue)
    redis.delete(keys.GENERATION(new.id))
    assert redis.ttl(keys.GENERATION_OF(DIGEST)) == -1

    again = generations.submit(new_generation(digest=DIGEST, wake_token="token-of-a-step"))

    assert (again.view.id, again.view.status, again.replayed) == (new.id, "pending", True)
    assert 598 <= redis.ttl(keys.GENERATION(new.id)) <= 600
    assert redis.scard(keys.WAITERS(new.id)) == 1
    redis.delete(keys.GENERATION(new.id))
    queue.succeed_generation(new.id, attempt.token, ENVELOPE, "")
    last = generations.submit(new_generation(digest=DIGEST)).view
    assert (last.id, last.status) == (new.id, "succeeded")


@pytest.mark.req("B9")
def test_a_cancelled_generation_answers_no_resubmit(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = accepted(generations, digest=DIGEST)
    queue.cancel(new.id, "acme")
    again = new_generation(digest=DIGEST)
    assert generations.submit(again).view.id == again.id
    assert generations.get(new.id, "1").status == "failed"


@pytest.mark.req("B18")
def test_a_claim_that_is_repeated_holds_its_slots_for_a_whole_call(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    accepted(generations)
    token = new_id()
    claim(queue, token=token)
    for key in (keys.SLOTS(), keys.TEAM_SLOTS("1")):
        for member, score in redis.zrange(key, 0, -1, withscores=True):
            redis.zadd(key, {member: score - 55_000})

    assert len(claim(queue, token=token).attempts) == 1

    for key in (keys.SLOTS(), keys.TEAM_SLOTS("1")):
        ((_, ends_at),) = redis.zrange(key, 0, -1, withscores=True)
        assert ends_at - now_ms(redis) > 118_000


@pytest.mark.req("B17")
def test_a_late_booking_takes_nothing_of_what_is_unsettled_since_a_write_off(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    first = accepted(generations)
    attempt = claim_one(queue)
    queue.cancel(first.id, "acme")
    assert credits_of(redis).write_off("acme", ["1"]) == RESERVED_USD_MICROS
    second = accepted(generations)
    claim_one(queue)
    queue.cancel(second.id, "acme")

    queue.book_generation(first.id, "1", attempt.token, billed(attempt.job, call_of(7)))

    for balance in (credits_of(redis).of_org("acme"), credits_of(redis).of_team("1")):
        assert (balance.spent_usd_micros, balance.unsettled_usd_micros) == (7, RESERVED_USD_MICROS)
    rows = [row for row in ledger(redis) if row["event"] == "credits_written_off"]
    assert [row["properties"]["usd_micros"] for row in rows] == [RESERVED_USD_MICROS]


@pytest.mark.req("B18")
def test_the_call_of_an_archived_generation_frees_its_slots(
    redis: Redis, queue: Queue, generations: Generations, upkeep: Upkeep
) -> None:
    new = accepted(generations)
    attempt = claim_one(queue)
    queue.cancel(new.id, "acme")
    assert upkeep.archive([new.id]) == [new.id]
    queue.book_generation(new.id, "1", attempt.token, "")
    assert redis.exists(keys.SLOTS(), keys.TEAM_SLOTS("1")) == 0


@pytest.fixture
def freed(redis: Redis, generations: Generations) -> tuple[Queue, dict[str, str]]:
    """Two slots in all, a and b ran, x and y wait; one slot came free, so x is in the turn."""
    queue = Queue(Scripts(redis, queue_name="genqueue", slots=SlotCaps(5, 2)), ticket_cap=16)
    waiting = {t: accepted(generations, team_id=t, target=f"mock:{t}").id for t in "abxy"}
    got = claim(queue, 10).attempts
    queue.fail(got[0].job.id, got[0].token, ErrorKind.AUTH, "x")
    assert redis.zrange(keys.TURNS(), 0, -1) == ["acme/x|generation|mock:x"]
    return queue, waiting


@pytest.mark.req("B18")
@pytest.mark.parametrize("way", ["cancelled", "expired", "cooled down"])
def test_a_lane_that_leaves_without_its_slot_lets_the_next_one_in(
    redis: Redis, freed: tuple[Queue, dict[str, str]], records: Records, way: str
) -> None:
    queue, waiting = freed
    if way == "cancelled":
        queue.cancel(waiting["x"], "acme")
    elif way == "expired":
        redis.hset(keys.JOB(waiting["x"]), "expires_at", 1)
    else:
        queue.submit(new_job(target="mock:x", org_id="o", priority=0))
        attempt = claim_one(queue)
        cooldown = Cooldown("mock:x", 60_000)
        queue.retry(attempt.job.id, attempt.token, ErrorKind.RATE_LIMIT, "busy", 60_000, cooldown)

    assert [a.job.team_id for a in claim(queue, 10).attempts] == ["y"]


@pytest.mark.req("B8")
@pytest.mark.case("RED-11")
def test_no_throttle_lasts_longer_than_its_window_where_the_clock_stepped_back(
    redis: Redis, generations: Generations
) -> None:
    future = now_ms(redis) + 3_600_000
    redis.zadd(keys.SUBMITS("1"), {f"s{n}": future for n in range(60)})
    redis.pexpire(keys.SUBMITS("1"), 60_000)
    try:
        generations.submit(new_generation())
    except ThrottledError as error:
        pytest.fail(f"throttled for {error.retry_after_s} s by what did not come yet")
