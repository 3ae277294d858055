"""Is what is stored of a chat turn written once, by its holder alone, and gone with its prompt?"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, IdempotencyKeyReusedError
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Delivery,
    Failure,
    NextAttempt,
)
from jobs.domain.job import Attempt, Kind
from jobs.domain.outcome import Cooldown
from jobs.domain.plan_likeness import is_different
from jobs.domain.states import Answer, State
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan, Task, summary
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.turns import RequestStanding, RequestStatus
from tests.support.chains import CLIENT, USER, new_turn
from tests.support.factories import claim_one, new_job, response_for
from tests.support.invariants import keys_without_end, problems_of

PLAN = Plan((Task("writer", "Do it."),))
FAILURE = Failure(ErrorKind.PARSE, "writer: it can't be read")
POLICY = ChainPolicy(2, 900.0, 60.0)
WEBHOOK = {"delivery": Delivery.WEBHOOK, "target_url": "https://example.com/hook"}


def escalated(runtime: Runtime, attempt: Attempt) -> None:
    """The turn fails and goes on at once."""
    entry = AttemptEntry(1, PLAN, FAILURE)
    turn = TurnLeft(entry=entry, next=NextAttempt(0), policy=POLICY)
    done = runtime.queue.fail(
        attempt.job.id, attempt.token, ErrorKind.PARSE, FAILURE.reason, turn=turn
    )
    assert (done.answer, done.ticket_wanted) == (Answer.OK, True)


def chain(runtime: Runtime, **changes: object) -> tuple[str, Attempt]:
    """A request whose first background attempt is claimed."""
    new = new_turn(**changes)
    runtime.turns.submit(new)
    escalated(runtime, claim_one(runtime.queue))
    return new.id, claim_one(runtime.queue)


@pytest.mark.req("C15", "C20")
def test_a_request_is_escalated_in_the_script_that_ends_its_turn(runtime: Runtime) -> None:
    new = new_turn()
    runtime.turns.submit(new)
    first = claim_one(runtime.queue)
    escalated(runtime, first)

    view = runtime.turns.read(new.id)
    assert view is not None
    assert (view.escalated, view.status, view.ended_at_ms) == (True, RequestStatus.QUEUED, None)
    second = claim_one(runtime.queue)
    assert (second.job.kind, second.job.root_id, second.prompt_text) == (
        Kind.ESCALATION,
        new.id,
        new.message,
    )
    turn = runtime.turns.load(second)
    assert turn is not None
    assert (turn.policy, turn.number, turn.runs) == (POLICY, 2, 1)


@pytest.mark.req("C20")
@pytest.mark.case("RED-07")
def test_a_failure_that_is_written_twice_makes_one_next_attempt(
    runtime: Runtime, redis: Redis
) -> None:
    new = new_turn()
    runtime.turns.submit(new)
    first = claim_one(runtime.queue)
    escalated(runtime, first)
    escalated(runtime, first)

    assert redis.llen(keys.REQUEST_ATTEMPTS(new.id)) == 1
    assert redis.hget(keys.STATS("acme"), "submitted") == "2"
    assert problems_of(redis) == []


@pytest.mark.req("C18", "C20")
@pytest.mark.case("RED-07")
def test_a_plan_that_is_noted_twice_stays_and_tells_one_event(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, attempt = chain(runtime)
    other = Plan((Task("writer", "Something else."),))

    assert runtime.turns.note(attempt, PLAN, 2) is Answer.OK
    assert runtime.turns.note(attempt, other, 2) is Answer.OK

    turn = runtime.turns.load(attempt)
    assert turn is not None
    assert turn.plan == PLAN
    types = [event.get("type") for _, event in redis.xrange(keys.EVENTS("acme"))]
    assert types.count("response.retry.attempt") == 1
    assert redis.hget(keys.REQUEST(job_id), "deadline_at") is None


@pytest.mark.req("C20")
def test_only_the_holder_of_the_lease_notes_says_and_ends(runtime: Runtime, redis: Redis) -> None:
    job_id, attempt = chain(runtime)
    stranger = Attempt(attempt.job, "another.1", attempt.prompt_text)

    assert runtime.turns.note(stranger, PLAN, 2) is Answer.LEASE_LOST
    assert runtime.tokens.say(stranger, 1, 1, [("text", "Hi")]) is Answer.LEASE_LOST
    end = TurnLeft(end=ChainEnd(ChainState.STUCK, "stuck"))
    ended = runtime.queue.fail(attempt.job.id, "another.1", ErrorKind.PARSE, "no", turn=end)

    assert ended.answer is Answer.LEASE_LOST
    assert redis.exists(keys.REQUEST_PLAN(job_id), keys.TOKENS(job_id)) == 0
    view = runtime.turns.read(job_id)
    assert view is not None
    assert not view.has_ended


@pytest.mark.req("C9")
@pytest.mark.case("RED-07")
def test_pieces_that_are_said_twice_are_heard_once(runtime: Runtime) -> None:
    _, attempt = chain(runtime)
    job_id = attempt.job.root_id
    runtime.tokens.say(attempt, 1, 1, [("text", "a"), ("text", "b")])
    runtime.tokens.say(attempt, 1, 1, [("text", "a"), ("text", "b")])
    runtime.tokens.say(attempt, 1, 2, [("text", "b"), ("text", "c")])
    runtime.tokens.say(attempt, 2, 1, [("restart", "")])

    heard = runtime.tokens.read(job_id)

    assert [said.text for said in heard if said.what == "text"] == ["a", "b", "c"]
    assert heard[-1].what == "restart"
    assert runtime.tokens.read(job_id, heard[1].position)[0].text == "c"
    assert 0 < runtime.redis.pttl(keys.TOKENS(job_id)) <= keys.TOKENS_TTL_MS


@pytest.mark.req("C7")
def test_the_clock_of_the_deadline_starts_once_and_bounds_the_next_attempts(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, attempt = chain(runtime)
    assert redis.hget(keys.REQUEST(job_id), "deadline_at") is None
    began = []
    for number in (3, 4):
        left = TurnLeft(entry=AttemptEntry(number - 1, PLAN, FAILURE), next=NextAttempt(0))
        runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=left)
        attempt = claim_one(runtime.queue)
        began.append(redis.hget(keys.REQUEST(job_id), "deadline_at"))
        assert redis.hget(keys.JOB(attempt.job.id), "expires_at") == began[-1]
        turn = runtime.turns.load(attempt)
        assert turn is not None
        assert turn.deadline_at_ms == int(began[-1] or 0)

    assert began[0] == began[1]


@pytest.mark.req("C7")
def test_an_attempt_that_went_back_to_the_queue_ends_at_its_deadline_without_a_worker(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, attempt = chain(runtime)
    left = TurnLeft(entry=AttemptEntry(2, PLAN, FAILURE), next=NextAttempt(0))
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=left)
    third = claim_one(runtime.queue)
    runtime.queue.snooze(third.job.id, third.token, "worker_shutdown", 0)
    redis.zadd(keys.EXPIRING(), {third.job.id: 1}, xx=True)

    ended = runtime.queue.promote().ended_chains

    assert [(chain.request_job_id, chain.state) for chain in ended] == [
        (job_id, ChainState.BUDGET_EXHAUSTED)
    ]
    assert "deadline" in ended[0].detail
    assert problems_of(redis) == []


@pytest.mark.req("X15")
def test_each_provider_that_was_too_busy_pauses_for_as_long_as_it_asked(
    runtime: Runtime, redis: Redis
) -> None:
    _, attempt = chain(runtime)
    now_ms = redis.time()[0] * 1000
    left = TurnLeft(cooldowns=(Cooldown("p:one", 600_000), Cooldown("p:two", 10_000)))
    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt), left)

    until = dict(redis.zrange(keys.COOLDOWNS(), 0, -1, withscores=True))
    assert abs(until["p:one"] - now_ms - 600_000) < 5_000
    assert abs(until["p:two"] - now_ms - 10_000) < 5_000


@pytest.mark.req("X4")
def test_an_idempotency_key_lasts_a_day_from_the_end_of_the_chain(
    runtime: Runtime, redis: Redis
) -> None:
    _, attempt = chain(runtime, idempotency_key="k", payload_hash="h")
    (record,) = redis.scan_iter(match=keys.IDEMPOTENCY("*"))
    assert redis.pttl(record) == -1

    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt), TurnLeft())

    assert 0 < redis.pttl(record) <= keys.IDEMPOTENCY_TTL_MS


@pytest.mark.req("X4", "A24")
def test_an_idempotency_key_ends_also_where_its_job_is_archived_before_the_chain_ends(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, _ = chain(runtime, idempotency_key="k", payload_hash="h")
    runtime.upkeep.archive([job_id])

    (record,) = redis.scan_iter(match=keys.IDEMPOTENCY("*"))
    assert redis.pttl(record) > 0


@pytest.mark.req("A17", "C15")
def test_only_a_request_is_cancelled_by_the_id_of_a_job_that_has_ended(runtime: Runtime) -> None:
    job_id, _ = chain(runtime)

    assert runtime.queue.cancel(job_id, "acme").answer is Answer.WRONG_STATE
    done = runtime.queue.cancel(job_id, "acme", is_request=True)
    assert [chain.state for chain in done.ended_chains] == [ChainState.ABANDONED]
    again = runtime.queue.cancel(job_id, "acme", is_request=True)
    assert (again.answer, again.ended_chains) == (Answer.OK, ())


@pytest.mark.req("C10", "C11", "C17")
@pytest.mark.case("WH-07")
def test_the_end_of_a_chain_and_its_delivery_are_one_write(runtime: Runtime, redis: Redis) -> None:
    job_id, attempt = chain(runtime, **WEBHOOK)
    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt), TurnLeft())
    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt), TurnLeft())

    view = runtime.turns.read(job_id)
    assert view is not None
    assert (view.state, view.result) == (ChainState.ACHIEVED, "Hello.")
    (delivery,) = runtime.deliveries.list(CLIENT, USER)
    assert (delivery.ref, delivery.url) == (job_id, WEBHOOK["target_url"])


@pytest.mark.req("C10", "C15")
def test_neither_a_poll_nor_an_abandoned_chain_is_delivered(runtime: Runtime) -> None:
    _, polled = chain(runtime)
    runtime.queue.succeed(polled.job.id, polled.token, response_for(polled), TurnLeft())
    job_id, _ = chain(runtime, **WEBHOOK)

    assert runtime.turns.cancel(job_id, CLIENT, USER).ended_chains
    assert not runtime.deliveries.list(CLIENT, USER)


@pytest.mark.req("C15")
def test_a_chain_that_has_ended_can_not_be_cancelled(runtime: Runtime) -> None:
    job_id, attempt = chain(runtime)
    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt), TurnLeft())

    assert runtime.turns.cancel(job_id, CLIENT, USER).answer is Answer.WRONG_STATE


@pytest.mark.req("X4", "C21")
def test_an_idempotency_key_is_one_users_of_one_client(runtime: Runtime) -> None:
    first = new_turn(idempotency_key="k", payload_hash="h")
    again = new_turn(idempotency_key="k", payload_hash="h")
    bobs = new_turn(idempotency_key="k", payload_hash="h", user_id="bob")
    assert not runtime.turns.submit(first).replayed

    replayed = runtime.turns.submit(again)
    assert (replayed.job_id, replayed.replayed) == (first.id, True)
    assert runtime.turns.submit(bobs).job_id == bobs.id
    with pytest.raises(IdempotencyKeyReusedError):
        runtime.turns.submit(new_turn(idempotency_key="k", payload_hash="other"))


@pytest.mark.req("A24", "C20")
def test_a_request_goes_with_its_prompts_last_job(runtime: Runtime, redis: Redis) -> None:
    job_id, attempt = chain(runtime, **WEBHOOK)
    runtime.turns.note(attempt, PLAN, 2)
    runtime.tokens.say(attempt, 1, 1, [("text", "Hi")])
    entry = AttemptEntry(2, PLAN, FAILURE)
    end = TurnLeft(entry=entry, end=ChainEnd(ChainState.STUCK, "stuck"))
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=end)

    assert runtime.upkeep.archive([job_id]) == [job_id]
    assert runtime.turns.read(job_id) is not None
    assert runtime.upkeep.archive([attempt.job.id]) == [attempt.job.id]
    assert runtime.turns.read(job_id) is None
    assert list(redis.scan_iter(match=keys.REQUEST("*"))) == []
    assert keys_without_end(redis) == set()


@pytest.mark.req("A16", "X7")
@pytest.mark.parametrize("is_chain", [False, True])
def test_neither_a_turn_nor_an_attempt_of_its_chain_is_retried_as_a_job(
    runtime: Runtime, is_chain: bool
) -> None:
    job_id, attempt = chain(runtime)
    old = attempt.job.id if is_chain else job_id
    if is_chain:
        runtime.turns.cancel(job_id, CLIENT, USER)

    done = runtime.queue.supersede(old, new_turn().id, "acme", "ada")

    assert done.answer is Answer.FINAL
    view = runtime.records.job(old)
    assert view is not None
    assert view.job.state is (State.CANCELLED if is_chain else State.FAILED)


@pytest.mark.req("A17")
def test_a_stray_job_of_a_chain_leaves_no_record_of_a_request(
    runtime: Runtime, redis: Redis
) -> None:
    stray = new_job(kind=Kind.ESCALATION)
    runtime.queue.submit(stray)
    attempt = claim_one(runtime.queue)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=TurnLeft())

    assert redis.exists(keys.REQUEST(stray.id)) == 0
    assert problems_of(redis) == []


@pytest.mark.req("C20", "X12")
def test_a_long_message_is_stored_once_and_its_plan_is_read_whole(
    runtime: Runtime, redis: Redis
) -> None:
    message = "Chart this: " + "x" * 1_000_000
    new = new_turn(message=message)
    plan = Plan((Task("writer", message),))
    runtime.turns.submit(new)
    attempt = claim_one(runtime.queue)
    before_bytes = redis.info("memory")["used_memory"]

    assert runtime.turns.note(attempt, plan, 1) is Answer.OK
    turn = runtime.turns.load(attempt)
    assert turn is not None
    assert turn.plan == plan
    assert redis.info("memory")["used_memory"] - before_bytes < 200_000
    entry = AttemptEntry(1, plan, FAILURE)
    left = TurnLeft(entry=entry, next=NextAttempt(0), policy=POLICY)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=left)

    assert redis.info("memory")["used_memory"] - before_bytes < 200_000
    view = runtime.turns.read(new.id)
    assert view is not None
    (kept,) = view.entries
    assert kept.plan is not None
    assert summary(kept.plan) == summary(plan)
    assert not is_different(plan, [kept.plan])


@pytest.mark.req("C20")
def test_what_an_entry_holds_is_bounded_whatever_was_planned(
    runtime: Runtime, redis: Redis
) -> None:
    plan = Plan((Task("writer", "y" * 20_000),) * 20)
    entry = AttemptEntry(1, plan, Failure(ErrorKind.PARSE, "z" * 100_000))
    new = new_turn()
    runtime.turns.submit(new)
    attempt = claim_one(runtime.queue)
    left = TurnLeft(entry=entry, next=NextAttempt(0), policy=POLICY)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=left)
    (row,) = redis.lrange(keys.REQUEST_ATTEMPTS(new.id), 0, -1)
    assert len(row) < 50_000


@pytest.mark.req("C9", "C21")
def test_how_a_request_stands_is_told_to_its_own_alone_and_costs_nothing(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, _ = chain(runtime, message="x" * 1_000_000)
    before = redis.info("stats")["total_net_output_bytes"]
    standing = runtime.turns.standing(job_id, CLIENT, USER)
    assert redis.info("stats")["total_net_output_bytes"] - before < 20_000
    assert standing == RequestStanding(RequestStatus.PROCESSING, escalated=True)
    for client, user in ((CLIENT, "bob"), ("d" * 16, USER)):
        assert runtime.turns.standing(job_id, client, user) is None
    assert runtime.turns.standing(new_job().id, CLIENT, USER) is None


@pytest.mark.req("C20", "A33")
def test_a_request_that_a_release_without_turns_left_open_is_ended_by_repair(
    runtime: Runtime, redis: Redis
) -> None:
    job_id, attempt = chain(runtime)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "unreadable")
    redis.hdel(keys.REQUEST(job_id), "ended_at", "state", "status")
    runtime.upkeep.repair(window_ms=90_000)

    view = runtime.turns.read(job_id)
    assert view is not None
    assert (view.status, view.state) == (RequestStatus.FAILED, ChainState.BUDGET_EXHAUSTED)
    assert view.detail == "the chain itself broke: parse"
