"""However a generation ends: is there a record, are its credits right, is everyone woken? (B19)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.states import Answer, State
from jobs.store import keys
from jobs.store.credits import CreditBalance
from jobs.store.generations import Generations
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim, claim_one, new_id
from tests.support.invariants import problems_of
from tests.support.job_states import now_ms, sweep
from tests.support.stored_generations import (
    CAP_USD_MICROS,
    ENVELOPE,
    RESERVED_USD_MICROS,
    billed,
    call_of,
    credits_of,
    figures,
    ledger,
    new_generation,
    wakes,
)

End = Callable[[Redis, Queue, str], None]


def succeed(redis: Redis, queue: Queue, job_id: str) -> None:
    attempt = claim_one(queue)
    bill = billed(attempt.job, call_of(7), call_of(5, pass_number=2))
    queue.succeed_generation(job_id, attempt.token, ENVELOPE, bill)


def fail(redis: Redis, queue: Queue, job_id: str) -> None:
    attempt = claim_one(queue)
    queue.fail(
        job_id,
        attempt.token,
        ErrorKind.PROVIDER_4XX,
        "no",
        code=GenerationCode.MODEL_REFUSED,
        bill=billed(attempt.job, call_of(7)),
    )


def lose_the_answer(redis: Redis, queue: Queue, job_id: str) -> None:
    attempt = claim_one(queue)
    queue.fail(
        job_id,
        attempt.token,
        ErrorKind.TIMEOUT,
        "too slow",
        code=GenerationCode.DEADLINE_EXCEEDED,
        bill=billed(attempt.job, call_of(7), call_of(None, held_usd_micros=300)),
    )


def surprise(redis: Redis, queue: Queue, job_id: str) -> None:
    queue.fail(job_id, claim_one(queue).token, ErrorKind.UNKNOWN, "no")


def lose_the_worker(redis: Redis, queue: Queue, job_id: str) -> None:
    claim_one(queue, window_ms=-1)
    sweep(redis, queue)


def cancel_queued(redis: Redis, queue: Queue, job_id: str) -> None:
    queue.cancel(job_id, "acme")


def cancel_running(redis: Redis, queue: Queue, job_id: str) -> None:
    claim_one(queue)
    queue.cancel(job_id, "acme")


def wait_too_long(redis: Redis, queue: Queue, job_id: str) -> None:
    age(redis, job_id)
    queue.promote()


def be_claimed_too_late(redis: Redis, queue: Queue, job_id: str) -> None:
    age(redis, job_id)
    assert claim(queue).attempts == ()


def age(redis: Redis, job_id: str) -> None:
    """As if it had been submitted 90 s ago."""
    at = now_ms(redis) - 1
    redis.hset(keys.JOB(job_id), "expires_at", str(at))
    redis.zadd(keys.EXPIRING(), {job_id: at})


ENDS: tuple[tuple[End, State, GenerationCode | None, int, int], ...] = (
    (succeed, State.SUCCEEDED, None, 12, 0),
    (fail, State.FAILED, GenerationCode.MODEL_REFUSED, 7, 0),
    (lose_the_answer, State.FAILED, GenerationCode.DEADLINE_EXCEEDED, 7, 300),
    (surprise, State.FAILED, GenerationCode.GATEWAY_UNAVAILABLE, 0, 0),
    (lose_the_worker, State.FAILED, GenerationCode.DEADLINE_EXCEEDED, 0, RESERVED_USD_MICROS),
    (cancel_queued, State.CANCELLED, GenerationCode.CAPACITY_UNAVAILABLE, 0, 0),
    (cancel_running, State.CANCELLED, GenerationCode.CAPACITY_UNAVAILABLE, 0, RESERVED_USD_MICROS),
    (wait_too_long, State.FAILED, GenerationCode.CAPACITY_UNAVAILABLE, 0, 0),
    (be_claimed_too_late, State.FAILED, GenerationCode.CAPACITY_UNAVAILABLE, 0, 0),
)


@pytest.mark.req("B6", "B10", "B11", "B17", "B19", "A8")
@pytest.mark.parametrize(("end", "state", "code", "spent", "unsettled"), ENDS)
def test_every_end_leaves_a_record_right_credits_and_wakes(
    redis: Redis,
    queue: Queue,
    generations: Generations,
    records: Records,
    end: End,
    state: State,
    code: GenerationCode | None,
    spent: int,
    unsettled: int,
) -> None:
    new = new_generation(wake_token="token-of-the-step")
    generations.submit(new)

    end(redis, queue, new.id)

    view = generations.get(new.id, "1")
    job = records.job(new.id)
    assert job is not None
    assert (job.job.state, view.code) == (state, code)
    assert view.status == ("failed" if code else "succeeded")
    assert bool(view.message) == (code is not None)
    ttl = 300 if code else 600
    for key in (keys.GENERATION(new.id), keys.OPTIONS(new.id), keys.TEXT(new.prompt_id)):
        assert ttl - 2 <= redis.ttl(key) <= ttl
    stands_for_it = redis.ttl(keys.GENERATION_OF(new.digest))
    assert stands_for_it == (-2 if state is State.CANCELLED else pytest.approx(ttl, abs=2))
    assert wakes(redis) == [(new.id, "token-of-the-step")]
    expected = CreditBalance(CAP_USD_MICROS, spent, 0, unsettled)
    assert credits_of(redis).of_org("acme") == expected
    team = credits_of(redis).of_team("1")
    assert (team.spent_usd_micros, team.unsettled_usd_micros) == (spent, unsettled)
    assert redis.exists(keys.EXPIRING(), keys.WAITERS(new.id)) == 0
    assert problems_of(redis) == []


@pytest.mark.req("B22")
@pytest.mark.parametrize(("end", "state", "code", "spent", "unsettled"), ENDS)
def test_every_end_is_counted(
    redis: Redis,
    queue: Queue,
    generations: Generations,
    end: End,
    state: State,
    code: GenerationCode | None,
    spent: int,
    unsettled: int,
) -> None:
    new = new_generation()
    generations.submit(new)
    end(redis, queue, new.id)

    is_started = end not in (cancel_queued, wait_too_long, be_claimed_too_late)
    counts = {f"failed:{code}" if code else "finished": 1} | ({"started": 1} if is_started else {})
    assert figures(redis) == counts
    stats = redis.hgetall(keys.GENERATION_STATS())
    for name in ("wait", "duration"):
        observed = sum(
            int(v) for n, v in stats.items() if n.startswith(f"{name}:") and n != f"{name}:sum"
        )
        assert observed == int(is_started), name


@pytest.mark.req("B11")
def test_what_waited_too_long_is_not_run_and_costs_no_attempt(
    redis: Redis, queue: Queue, generations: Generations, records: Records
) -> None:
    new = new_generation()
    generations.submit(new)
    deadline = redis.zscore(keys.EXPIRING(), new.id)
    view = records.job(new.id)
    assert view is not None
    assert deadline == view.job.created_at_ms + 90_000

    wait_too_long(redis, queue, new.id)

    view = records.job(new.id)
    assert view is not None
    assert [move.verb for move in view.history] == ["submit", "expire", "expire"]
    assert view.job.attempt == 1


@pytest.mark.req("B17")
def test_the_ledger_has_a_row_for_each_call_with_the_listed_properties(
    redis: Redis, queue: Queue, generations: Generations, records: Records
) -> None:
    new = new_generation(options={"invocation_id": "run-7", "output_fields": {}})
    generations.submit(new)
    succeed(redis, queue, new.id)

    second, first = ledger(redis)
    for number, event in ((1, first), (2, second)):
        assert (
            event["properties"].items()
            >= {
                "ai_product": "workflows",
                "feature": "llm_action",
                "$ai_billable": True,
                "team_id": "1",
                "$ai_trace_id": "run-7",
                "pass": number,
            }.items()
        )
    prompt = records.prompt(new.prompt_id)
    assert prompt is not None
    assert [row.usage["cost_usd_micros"] for row in prompt.ledger] == [7, 5]
    assert redis.exists(keys.BILLING()) == 0


@pytest.mark.req("B17")
def test_events_wait_for_a_reporter_only_where_there_is_one(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = new_generation()
    generations.submit(new)
    attempt = claim_one(queue)
    bill = billed(attempt.job, call_of(), call_of(), is_captured=True)
    queue.succeed_generation(new.id, attempt.token, ENVELOPE, bill)
    assert redis.llen(keys.BILLING()) == 2


@pytest.mark.req("B17", "B18", "X16")
@pytest.mark.parametrize("lose", [cancel_running, lose_the_worker])
def test_a_call_that_was_taken_away_is_settled_when_it_is_over(
    redis: Redis, queue: Queue, generations: Generations, records: Records, lose: End
) -> None:
    new = new_generation()
    generations.submit(new)
    lose(redis, queue, new.id)
    token = redis.zrange(keys.SLOTS(), 0, -1)[0]
    view = records.job(new.id)
    assert view is not None
    bill = billed(view.job, call_of(9), call_of(None, held_usd_micros=100))
    record = redis.hgetall(keys.GENERATION(new.id))

    for _ in range(2):
        assert queue.book_generation(new.id, "1", token, bill).answer is Answer.OK

    assert credits_of(redis).of_org("acme") == CreditBalance(CAP_USD_MICROS, 9, 0, 100)
    assert redis.exists(keys.SLOTS(), keys.TEAM_SLOTS("1")) == 0
    assert redis.hgetall(keys.GENERATION(new.id)) == record


@pytest.mark.req("B17")
def test_what_was_written_off_is_not_taken_back_twice(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = new_generation()
    generations.submit(new)
    cancel_running(redis, queue, new.id)
    token = redis.zrange(keys.SLOTS(), 0, -1)[0]
    assert credits_of(redis).write_off("acme") == RESERVED_USD_MICROS

    queue.book_generation(new.id, "1", token, "")

    assert credits_of(redis).of_org("acme").unsettled_usd_micros == 0


@pytest.mark.req("B11")
@pytest.mark.case("K8S-01")
def test_a_worker_that_leaves_hands_back_uncharged_and_the_queue_time_goes_on(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = new_generation()
    generations.submit(new)
    deadline = redis.zscore(keys.EXPIRING(), new.id)
    attempt = claim_one(queue)
    assert redis.zscore(keys.EXPIRING(), new.id) is None

    bill = billed(attempt.job, call_of(4), call_of(None, held_usd_micros=50))
    queue.snooze(new.id, attempt.token, "worker_shutdown", 0, bill)

    assert redis.zscore(keys.EXPIRING(), new.id) == pytest.approx(deadline, abs=200)
    assert generations.get(new.id, "1").status == "pending"
    assert redis.exists(keys.SLOTS()) == 0
    balance = credits_of(redis).of_org("acme")
    assert balance == CreditBalance(CAP_USD_MICROS, 4, RESERVED_USD_MICROS, 50)
    succeed(redis, queue, new.id)
    assert credits_of(redis).of_org("acme") == CreditBalance(CAP_USD_MICROS, 16, 0, 50)


@pytest.mark.req("B11", "A16")
@pytest.mark.parametrize("end", [succeed, fail, cancel_queued])
def test_a_generation_is_submitted_anew_and_never_retried(
    redis: Redis, queue: Queue, generations: Generations, end: End
) -> None:
    new = new_generation()
    generations.submit(new)
    end(redis, queue, new.id)

    assert queue.supersede(new.id, new_id(), "acme", "ann").answer is Answer.FINAL
    assert redis.exists(keys.MIRROR()) == 0


@pytest.mark.req("A14", "B19")
def test_a_stale_token_changes_no_record_and_no_credits(
    redis: Redis, queue: Queue, generations: Generations
) -> None:
    new = new_generation()
    generations.submit(new)
    attempt = claim_one(queue)
    queue.cancel(new.id, "acme")
    before = redis.hgetall(keys.GENERATION(new.id)), redis.hgetall(keys.CREDITS("acme"))

    bill = billed(attempt.job, call_of())
    late = queue.succeed_generation(new.id, attempt.token, ENVELOPE, bill)

    assert late.answer is Answer.WRONG_STATE
    assert before == (redis.hgetall(keys.GENERATION(new.id)), redis.hgetall(keys.CREDITS("acme")))
