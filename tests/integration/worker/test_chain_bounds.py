"""Is an attempt that hangs ended, one that works left alone, and a chain that is cancelled over?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobs.domain.escalation import ChainState
from jobs.domain.job import Kind
from jobs.domain.states import Answer, State
from jobs.retry_events import tell_ended
from jobs.store import keys
from jobs.store.turns import RequestStatus
from jobs.worker.assembly import assemble, handlers_of
from jobs.worker.attempt import AttemptRunner
from tests.support.chains import (
    ARCHIVE,
    CLIENT,
    USER,
    WAREHOUSE,
    Stage,
    is_planning,
    is_task,
    plan,
    reasons,
    says,
)
from tests.support.factories import claim_one
from tests.support.invariants import problems_of
from tests.support.openai_server import (
    Fault,
    Reply,
    fault,
    status,
)
from tests.support.waiting import wait_until

REFUSED = status(400)
HANGS = fault(Fault.HANG)


@pytest.mark.req("C6")
def test_a_hung_attempt_is_ended_by_the_idle_bound_while_a_busy_one_runs_on(
    make: Callable[..., Stage],
) -> None:
    stage = make(retry_async={"attempt_idle_timeout": "1s", "max_attempts": 1})
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    busy = Reply(pieces=["Here ", "is ", "your ", "chart ", "now."], piece_every_s=0.5)
    stage.server.answer_when(
        lambda body: is_task(body) and "hangs" not in str(body["messages"]), REFUSED, busy
    )
    stage.server.answer_when(
        lambda body: is_task(body) and "hangs" in str(body["messages"]), REFUSED, HANGS
    )

    with stage.at_work(slots=2):
        working = stage.submit()
        wait_until(lambda: stage.read(working).escalated, 10, "the busy one is in the background")
        hanging = stage.submit("This one hangs.")
        hung, done = stage.ended(hanging), stage.ended(working)

    assert hung.state is ChainState.BUDGET_EXHAUSTED
    assert "nothing happened for 1 s" in reasons(hung.entries)[-1]
    assert (done.state, done.result) == (ChainState.ACHIEVED, "Here is your chart now.")
    assert done.ended_at_ms is not None
    assert done.ended_at_ms - done.created_at_ms > 2000, "longer than the bound of idleness"


@pytest.mark.req("C6")
def test_the_idle_bound_holds_for_replanning_too(make: Callable[..., Stage]) -> None:
    stage = make(retry_async={"attempt_idle_timeout": "300ms", "max_attempts": 1})
    stage.server.answer_when(is_planning, HANGS)
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert view.entries[1].plan is None
    assert "nothing happened for 0.3 s" in reasons(view.entries)[1]


@pytest.mark.req("C7", "C11")
def test_the_deadline_ends_the_second_background_attempt_and_not_the_first(
    make: Callable[..., Stage],
) -> None:
    stage = make(retry_async={"deadline": "400ms", "max_attempts": 5})
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE))
    slow = Reply(status=400, body=b"{}", delay_s=0.8)
    stage.server.answer_when(is_task, REFUSED, slow, HANGS)

    view = stage.outcome()

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert view.detail == "the deadline of 400ms has passed"
    assert [entry.number for entry in view.entries] == [1, 2, 3]
    assert "400" in reasons(view.entries)[1]
    assert "deadline" in reasons(view.entries)[2]


@pytest.mark.req("C6", "C7")
def test_the_clock_of_the_deadline_starts_before_the_second_background_attempt_is_planned(
    make: Callable[..., Stage],
) -> None:
    stage = make(retry_async={"deadline": "400ms", "max_attempts": 5})
    stage.server.answer_when(is_planning, plan(WAREHOUSE), HANGS)
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert view.detail == "the deadline of 400ms has passed"
    assert [entry.number for entry in view.entries] == [1, 2, 3]
    assert view.entries[2].plan is None
    assert [event[:2] for event in stage.events()] == [
        ("response.retry.escalated", 1),
        ("response.retry.attempt", 2),
        ("response.retry.attempt", 3),
        ("response.retry.terminal", 3),
    ]


@pytest.mark.req("C6")
def test_a_pause_between_two_tries_is_no_idleness(make: Callable[..., Stage]) -> None:
    stage = make(
        retry_async={"attempt_idle_timeout": "500ms", "max_attempts": 1},
        workflow={"retry": {"max_attempts": 2, "initial_delay": "1ms"}},
    )
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    busy = status(429, headers=(("Retry-After", "1"),))
    stage.server.answer_when(is_task, REFUSED, busy, says("Done."))

    view = stage.outcome()

    assert (view.state, view.result) == (ChainState.ACHIEVED, "Done.")


@pytest.mark.req("X15")
def test_the_provider_that_asked_for_a_pause_gets_it_and_no_other(
    make: Callable[..., Stage],
) -> None:
    stage = make(agents=2)
    stage.server.answer_model("writer", status(429, headers=(("Retry-After", "3600"),)))
    stage.server.answer_model("second", status(529))
    stage.server.answer_when(is_planning, HANGS)

    with stage.at_work():
        job_id = stage.submit()
        wait_until(lambda: stage.read(job_id).escalated, 10, "the turn has escalated")
    now_ms = stage.runtime.redis.time()[0] * 1000
    until = dict(stage.runtime.redis.zrange(keys.COOLDOWNS(), 0, -1, withscores=True))

    assert until["local:writer"] - now_ms > 3_000_000
    assert until["local:second"] - now_ms < 11_000


@pytest.mark.req("C18")
def test_the_end_of_a_chain_is_logged_once_whoever_ended_it(
    make: Callable[..., Stage], caplog: pytest.LogCaptureFixture
) -> None:
    stage = make()
    stage.server.answer_when(is_task, status(503))
    with stage.at_work():
        job_id = stage.submit()
        wait_until(lambda: stage.read(job_id).escalated, 10, "the next attempt waits")
    for _ in range(2):
        tell_ended(stage.runtime.turns.cancel(job_id, CLIENT, USER).ended_chains)

    told = [r for r in caplog.records if "response.retry.terminal" in r.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]


@pytest.mark.req("C7")
def test_a_deadline_that_passes_while_the_next_attempt_waits_ends_the_chain(
    make: Callable[..., Stage],
) -> None:
    stage = make(retry_async={"deadline": "1s", "max_attempts": 5})
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE))
    stage.server.answer_when(is_task, REFUSED, status(404), status(422))
    runtime = stage.runtime
    with stage.at_work(slots=1):
        job_id = stage.submit()
        wait_until(lambda: len(stage.read(job_id).entries) == 2, 10, "two attempts failed")
        wait_until(
            lambda: runtime.redis.hexists(keys.REQUEST(job_id), "deadline_at"), 10, "the clock runs"
        )
        runtime.redis.set("rq:suspended", 1, px=60_000)
        wait_until(lambda: not runtime.redis.exists(keys.RUNNING()), 10, "nothing runs")
    view = stage.read(job_id)
    if not view.has_ended:
        wait_until(lambda: _promoted(stage, job_id), 10, "the tick ends it")
    view = stage.read(job_id)
    runtime.redis.delete("rq:suspended")

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert "deadline" in view.detail
    assert problems_of(runtime.redis) == []


def _promoted(stage: Stage, job_id: str) -> bool:
    stage.runtime.queue.promote()
    return stage.read(job_id).has_ended


@pytest.mark.req("C11", "C15", "A17")
def test_a_cancel_while_an_attempt_runs_abandons_the_chain_and_aborts_the_call(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, HANGS)
    with stage.at_work():
        job_id = stage.submit()
        wait_until(lambda: len(stage.server.requests) == 3, 10, "the attempt hangs in its call")
        began_s = time.monotonic()
        done = stage.runtime.turns.cancel(job_id, CLIENT, USER)
        assert stage.server.requests[2].left.wait(4), "the call was not aborted"
        assert time.monotonic() - began_s < 3.5

    _is_abandoned(stage, job_id, done, "cancelled while attempt 2 ran")


@pytest.mark.req("C11", "C15")
def test_a_cancel_while_an_attempt_is_planned_abandons_the_chain(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.server.answer_when(is_planning, HANGS)
    stage.server.answer_when(is_task, REFUSED)
    with stage.at_work():
        job_id = stage.submit()
        wait_until(lambda: len(stage.server.requests) == 2, 10, "the planner hangs")
        done = stage.runtime.turns.cancel(job_id, CLIENT, USER)

    _is_abandoned(stage, job_id, done, "cancelled while attempt 2 was being planned")


@pytest.mark.req("C11", "C15")
def test_a_cancel_while_an_attempt_is_queued_abandons_the_chain(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.server.answer_when(is_task, status(503))
    with stage.at_work():
        job_id = stage.submit()
        wait_until(lambda: stage.read(job_id).escalated, 10, "the next attempt waits")
        done = stage.runtime.turns.cancel(job_id, CLIENT, USER)

    _is_abandoned(stage, job_id, done, "cancelled while attempt 2 was queued")
    assert not stage.runtime.redis.exists(keys.SCHEDULED())


def _is_abandoned(stage: Stage, job_id: str, done: Any, detail: str) -> None:
    view = stage.read(job_id)
    assert done.answer is Answer.OK
    assert [(chain.state, chain.detail) for chain in done.ended_chains] == [
        (ChainState.ABANDONED, detail)
    ]
    assert (view.status, view.state, view.detail) == (
        RequestStatus.CANCELLED,
        ChainState.ABANDONED,
        detail,
    )
    assert stage.events()[-1] == ("response.retry.terminal", 1, "abandoned")
    assert stage.runtime.turns.cancel(job_id, CLIENT, USER).answer is Answer.OK
    assert problems_of(stage.runtime.redis) == []


@pytest.mark.req("C3", "C15")
def test_a_cancelled_turn_does_not_escalate(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.server.answer_when(is_task, HANGS)
    with stage.at_work():
        job_id = stage.submit()
        assert stage.server.arrivals.acquire(timeout=10)
        done = stage.runtime.turns.cancel(job_id, CLIENT, USER)
        view = stage.ended(job_id)

    assert (done.answer, done.ended_chains) == (Answer.OK, ())
    assert (view.status, view.escalated, view.state) == (RequestStatus.CANCELLED, False, None)
    assert stage.events() == []


@pytest.mark.req("C21")
def test_nobody_else_sees_or_cancels_a_request(make: Callable[..., Stage]) -> None:
    stage = make()
    turns, job_id = stage.runtime.turns, stage.submit()

    for client, user in ((CLIENT, "bob"), (CLIENT, ""), ("d" * 16, USER)):
        assert turns.view(job_id, client, user) is None
        assert turns.cancel(job_id, client, user).answer is Answer.MISSING
    assert turns.view(job_id, CLIENT, USER) is not None
    assert turns.cancel(job_id, CLIENT, USER).answer is Answer.OK


@pytest.mark.req("C3")
def test_a_turn_that_fails_while_its_worker_stops_goes_on_elsewhere(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.server.answer_when(is_task, REFUSED, says("Done elsewhere."))
    stopping = threading.Event()
    crew = assemble(stage.runtime, concurrency=1)
    runner = AttemptRunner(
        stage.runtime.queue,
        handlers_of(stage.runtime, is_stopping=stopping.is_set),
        crew.heartbeat,
        patience_s=5,
        jitter=lambda _spread_s: 0.0,
        issue_ticket=lambda: None,
    )
    job_id = stage.submit()
    stopping.set()
    attempt = claim_one(stage.runtime.queue)
    runner.run(attempt, runner.scope(attempt))
    crew.heartbeat.stop()
    after = stage.read(job_id)

    assert (after.status, after.escalated) == (RequestStatus.QUEUED, False)
    with stage.at_work():
        assert stage.ended(job_id).result == "Done elsewhere."


@pytest.mark.req("C20", "A8")
def test_an_attempt_that_lost_its_worker_is_run_again_with_its_plan_and_no_entry(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE))
    stage.server.answer_when(is_task, REFUSED, says("Done."))
    with stage.at_work(slots=1):
        job_id = stage.submit()
        wait_until(lambda: stage.read(job_id).has_ended, 10, "it ended")
    first = stage.read(job_id)
    assert first.state is ChainState.ACHIEVED

    other = stage.submit()
    chat = claim_one(stage.runtime.queue)
    stage.runtime.redis.zadd(keys.RUNNING(), {chat.job.id: 1})
    stage.runtime.queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)
    stage.runtime.redis.zadd(keys.RUNNING(), {chat.job.id: 1})
    swept = stage.runtime.queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)

    assert (swept.requeued, swept.failed) == (1, 0)
    again = claim_one(stage.runtime.queue)
    assert (again.job.id, again.job.kind, again.job.attempt) == (other, Kind.CHAT, 1)
    assert stage.runtime.queue.complete(chat.job.id, chat.token).answer is Answer.LEASE_LOST
    turn = stage.runtime.turns.load(again)
    assert turn is not None
    assert (turn.runs, turn.entries) == (2, ())


@pytest.mark.req("C11", "C20")
def test_an_attempt_that_ends_every_worker_is_given_up(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.server.answer_when(is_task, REFUSED)
    with stage.at_work(slots=1):
        job_id = stage.submit()
        stage.server.answer_when(is_planning, HANGS)
        wait_until(lambda: stage.read(job_id).escalated, 10, "it has escalated")
    redis = stage.runtime.redis
    current = str(redis.hget(keys.REQUEST(job_id), "job"))
    assert redis.hget(keys.JOB(current), "state") in {State.QUEUED, State.RUNNING}
    redis.hset(keys.REQUEST(job_id), "runs", 40)
    redis.hset(keys.REQUEST(job_id), "deaths", 20)
    redis.zadd(keys.RUNNING(), {current: 1}, xx=True)
    for _ in range(2):
        stage.runtime.queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)
        redis.zadd(keys.RUNNING(), {current: 1}, xx=True)
    with stage.at_work(slots=1):
        view = stage.ended(job_id)

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert view.detail.startswith("the chain itself broke: 20 workers died of attempt 2")
