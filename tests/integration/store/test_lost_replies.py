"""Does the world change once when Redis did the work and the reply got lost? (decision 5)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.domain.states import Answer, State, Verb
from jobs.store import keys
from jobs.store.connection import RESEND_TIMES, connect
from jobs.store.queue import Queue
from jobs.store.scripts import VERBS, Scripts
from jobs.store.steps import StepNote, Steps, Woken
from jobs.store.upkeep import Upkeep
from tests.support.factories import claim, claim_one, new_id, new_job
from tests.support.invariants import problems_of
from tests.support.job_states import Reached, apply, now_ms, reach, some_response, sweep
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.snapshot import snapshot
from tests.support.stored_steps import new_step

STARTS = {
    Verb.SUCCEED: State.RUNNING,
    Verb.RETRY: State.RUNNING,
    Verb.SNOOZE: State.RUNNING,
    Verb.FAIL: State.RUNNING,
    Verb.EXPIRE: State.QUEUED,
    Verb.CANCEL: State.RUNNING,
    Verb.SUPERSEDE: State.FAILED,
}
CALL = "EVALSHA"
READERS = {"seq_at", "waiting", "last_wake", "read_request"}
OF_CREDITS = {"raise_cap", "write_off"}
OF_THE_CLOCK = {"fire", "ticked"}
"""Their repeats are the scheduler's tests; those of credits are in test_generation_scripts."""

OF_DELIVERIES = {"take_deliveries", "settle_delivery", "replay_delivery"}
"""Their repeats are in tests/integration/delivery, those of turns in test_turns."""


@pytest.fixture
def proxy(redis_url: str) -> Iterator[LossyProxy]:
    port = urlsplit(redis_url).port
    assert port is not None
    with lossy_proxy(port) as proxy:
        yield proxy


@pytest.fixture
def lossy(proxy: LossyProxy, redis: Redis, queue: Queue) -> Iterator[Queue]:
    """A queue whose replies get lost; Redis knows all scripts, so each verb is one EVALSHA."""
    warm_up(redis, queue)
    client = connect(proxy.url)
    client.ping()
    yield Queue(Scripts(client, queue_name="genqueue"), ticket_cap=16)
    client.close()


def warm_up(redis: Redis, queue: Queue) -> None:
    for verb in STARTS:
        apply(verb, redis, queue, "none", "none.1")
    queue.submit(new_job())
    claim(queue)
    sweep(redis, queue)
    queue.promote()
    queue.renew({}, window_ms=1)
    queue.check({})
    redis.flushall()


def sent_twice(proxy: LossyProxy, act: Callable[[], Any]) -> Any:
    """The answer of `act`, whose first reply is lost."""
    proxy.lose_reply_to(CALL)
    answer = act()
    assert proxy.lost_replies == 1
    assert proxy.count_of(CALL) == 2
    return answer


def moves_of(redis: Redis, job: Reached) -> list[str]:
    return [row.split("|")[2] for row in redis.lrange(keys.HISTORY(job.job_id), 0, -1)]


def test_all_verbs_are_covered_here() -> None:
    others = {"submit", "submit_generation", "claim", "renew", "check", "promote", "reclaim"}
    upkeep = {"book", "archive", "repair", "quota"}
    of_steps = {"note_step", "wake"}
    of_turns = {"note_turn", "say"}
    elsewhere = READERS | OF_CREDITS | OF_THE_CLOCK | OF_DELIVERIES
    assert {*STARTS, *others, *upkeep, *of_steps, *of_turns} == set(VERBS) - elsewhere


@pytest.mark.req("A14")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize(("verb", "state"), STARTS.items())
def test_a_verb_whose_reply_got_lost_answers_ok_and_moved_once(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy, verb: Verb, state: State
) -> None:
    job = reach(queue, state)
    before = moves_of(redis, job)

    answer = sent_twice(proxy, lambda: apply(verb, redis, lossy, job.job_id, job.token))

    assert answer is Answer.OK
    assert moves_of(redis, job) == before + [verb] * (2 if verb is Verb.EXPIRE else 1)
    assert problems_of(redis) == []


@pytest.mark.req("A1", "X4")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize("key", [None, "k"])
def test_a_submit_whose_reply_got_lost_stores_one_job(
    redis: Redis, lossy: Queue, proxy: LossyProxy, key: str | None
) -> None:
    job = new_job(idempotency_key=key, payload_hash="h")

    submitted = sent_twice(proxy, lambda: lossy.submit(job))

    assert (submitted.job_id, submitted.replayed, submitted.ticket_wanted) == (job.id, False, True)
    assert redis.zcard(keys.CHANGED("acme")) == redis.xlen(keys.EVENTS("acme")) == 1
    assert problems_of(redis) == []


@pytest.mark.req("A5")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize("count", [1, 3])
def test_a_claim_whose_reply_got_lost_leases_no_job_that_nobody_knows(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy, count: int
) -> None:
    ids = [new_id() for _ in range(5)]
    for job_id in ids:
        queue.submit(new_job(id=job_id))

    claimed = sent_twice(proxy, lambda: claim(lossy, count))

    assert [attempt.job.id for attempt in claimed.attempts] == ids[:count]
    assert redis.zcard(keys.RUNNING()) == count
    assert queue.check({a.job.id: a.token for a in claimed.attempts}) == {}


@pytest.mark.req("A17")
def test_a_job_cancelled_before_the_claim_is_sent_again_is_not_handed_out(
    redis: Redis, queue: Queue
) -> None:
    job = new_job()
    queue.submit(job)
    claim(queue, token="lost")
    queue.cancel(job.id, "acme")

    assert claim(queue, token="lost").attempts == ()


@pytest.mark.req("A8")
@pytest.mark.case("RED-07")
def test_a_sweep_whose_reply_got_lost_reclaims_once(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy
) -> None:
    job = reach(queue, State.RUNNING, window_ms=0)
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 15_000)

    sent_twice(
        proxy, lambda: lossy.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)
    )

    assert moves_of(redis, job) == ["claim", "reclaim"]
    assert redis.hget(keys.JOB(job.job_id), "attempt") == "2"


@pytest.mark.case("RED-07")
def test_a_promotion_whose_reply_got_lost_promotes_once(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy
) -> None:
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 60_000)
    redis.zadd(keys.SCHEDULED(), {job.job_id: 1})

    assert sent_twice(proxy, lossy.promote).ticket_wanted
    assert problems_of(redis) == []
    assert [a.job.id for a in claim(queue, 5).attempts] == [job.job_id]


@pytest.mark.case("RED-07")
@pytest.mark.parametrize("verb", ["renew", "check"])
def test_a_question_whose_reply_got_lost_is_answered_all_the_same(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy, verb: str
) -> None:
    job = reach(queue, State.RUNNING)
    held = {job.job_id: job.token}
    ignore = (keys.RUNNING(), keys.JOB(job.job_id))
    before = snapshot(redis, ignore=ignore)
    acts: dict[str, Callable[[], Any]] = {
        "renew": lambda: lossy.renew(held, window_ms=90_000),
        "check": lambda: lossy.check(held),
    }

    assert not sent_twice(proxy, acts[verb])
    assert snapshot(redis, ignore=ignore) == before
    assert queue.check(held) == {}


@pytest.mark.req("X16")
@pytest.mark.case("RED-07")
def test_usage_whose_booking_got_no_reply_is_booked_once(
    redis: Redis, queue: Queue, lossy: Queue, proxy: LossyProxy
) -> None:
    job = reach(queue, State.CANCELLED)

    sent_twice(proxy, lambda: lossy.book(job.job_id, 1, some_response("late")))

    assert redis.llen(keys.LEDGER(job.prompt_id)) == 1


@pytest.mark.req("B26")
@pytest.mark.case("RED-07", "PARK-01")
def test_a_step_is_noted_and_woken_once_where_the_replies_got_lost(
    redis: Redis, queue: Queue, proxy: LossyProxy
) -> None:
    known = Steps(redis, Scripts(redis, queue_name="genqueue"), queue, ticket_cap=16)
    known.note("none", "none", StepNote(bounces=1))
    new = new_step()
    known.submit(new)
    attempt = claim_one(queue)
    token = f"{new.id}.secret"
    client = connect(proxy.url)
    steps = Steps(client, Scripts(client, queue_name="genqueue"), queue, ticket_cap=16)

    note = StepNote(token=token, bounces=2)
    assert sent_twice(proxy, lambda: steps.note(new.id, attempt.token, note)) is Answer.OK
    queue.snooze(new.id, attempt.token, "parked", 60_000)
    proxy.lose_reply_to(CALL)
    word, _ = steps.wake(token)

    assert word is Woken.OK
    assert [a.job.id for a in claim(queue, 5).attempts] == [new.id]
    assert redis.hget(keys.STEP(new.id), "executions") == "2"
    client.close()


@pytest.mark.req("A24", "A31", "A8")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize("verb", ["archive", "quota", "repair"])
def test_upkeep_whose_reply_got_lost_is_done_once(
    redis: Redis, queue: Queue, proxy: LossyProxy, verb: str
) -> None:
    ended = reach(queue, State.FAILED)
    waiting = reach(queue, State.QUEUED)
    client = connect(proxy.url)
    acts: dict[str, Callable[[Upkeep], Any]] = {
        "archive": lambda upkeep: upkeep.archive([ended.job_id]),
        "quota": lambda upkeep: upkeep.set_quota("acme", 0),
        "repair": lambda upkeep: upkeep.repair(window_ms=90_000),
    }
    known = Upkeep(Scripts(redis, queue_name="genqueue"), ticket_cap=16)
    known.archive([])
    known.set_quota("other", None)
    known.repair(window_ms=90_000)

    sent_twice(
        proxy,
        lambda: acts[verb](Upkeep(Scripts(client, queue_name="genqueue"), ticket_cap=16)),
    )

    assert redis.exists(keys.JOB(ended.job_id)) == (verb != "archive")
    assert redis.hget(keys.JOB(waiting.job_id), "state") == State.QUEUED
    assert redis.hget(keys.QUOTAS(), "acme") == ("0" if verb == "quota" else None)
    assert problems_of(redis) == []
    client.close()


@pytest.mark.case("RED-07")
def test_a_script_that_redis_forgot_may_lose_each_of_its_replies(
    redis: Redis, lossy: Queue, proxy: LossyProxy
) -> None:
    redis.script_flush()
    job = new_job()
    proxy.lose_reply_to("EVAL", times=2)

    assert lossy.submit(job).job_id == job.id
    assert redis.xlen(keys.EVENTS("acme")) == 1


@pytest.mark.case("RED-07")
def test_a_link_that_loses_every_reply_ends_in_an_error_and_one_job(
    redis: Redis, lossy: Queue, proxy: LossyProxy
) -> None:
    proxy.lose_reply_to(CALL, times=1_000)
    job = new_job()

    with pytest.raises(StoreUnavailableError) as caught:
        lossy.submit(job)

    assert caught.value.retry_after_s >= 1
    assert proxy.count_of(CALL) == RESEND_TIMES + 1
    assert redis.xlen(keys.EVENTS("acme")) == 1
    assert problems_of(redis) == []
