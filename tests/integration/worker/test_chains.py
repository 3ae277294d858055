"""Does a turn that failed go on with another plan, and end in the state that its history says?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState
from jobs.domain.job import Kind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.turns import RequestStatus
from tests.support.chains import (
    ARCHIVE,
    CLIENT,
    MESSAGE,
    USER,
    WAREHOUSE,
    Stage,
    is_planning,
    is_task,
    plan,
    reasons,
    says,
)
from tests.support.invariants import problems_of
from tests.support.openai_server import status
from tests.support.waiting import wait_until

REFUSED = status(400)
WRONG_KEY = status(401)


@pytest.fixture
def stage(make: Callable[..., Stage]) -> Stage:
    return make()


@pytest.mark.req("C2", "C5", "C11", "C18")
def test_a_second_plan_that_works_is_achieved_on_attempt_2(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, says("Here is your chart."))

    view = stage.outcome()

    assert (view.status, view.state) == (RequestStatus.COMPLETED, ChainState.ACHIEVED)
    assert (view.result, view.escalated, view.attempts) == ("Here is your chart.", True, 2)
    assert [entry.number for entry in view.entries] == [1]
    assert stage.events() == [
        ("response.retry.escalated", 1, ""),
        ("response.retry.attempt", 2, ""),
        ("response.retry.terminal", 2, "achieved"),
    ]
    told = [(r.levelname, r.getMessage().split(":")[0]) for r in caplog.records]
    assert [one for one in told if one[1].startswith("response.retry")] == [
        ("INFO", "response.retry.escalated"),
        ("INFO", "response.retry.attempt"),
        ("INFO", "response.retry.terminal"),
    ]
    assert problems_of(stage.runtime.redis) == []


@pytest.mark.req("C5", "C11", "C13", "C18")
def test_two_background_attempts_that_fail_use_the_budget_up_and_give_three_entries(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE))
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert (view.status, view.state) == (RequestStatus.FAILED, ChainState.BUDGET_EXHAUSTED)
    assert view.detail == "all 2 async attempt(s) failed"
    assert [entry.number for entry in view.entries] == [1, 2, 3]
    plans = [entry.plan.tasks[0].instruction for entry in view.entries if entry.plan]
    assert plans == [MESSAGE, WAREHOUSE, ARCHIVE]
    terminal = [r for r in caplog.records if "response.retry.terminal" in r.getMessage()]
    assert [record.levelname for record in terminal] == ["WARNING"]
    assert stage.events()[-1] == ("response.retry.terminal", 3, "budget_exhausted")


@pytest.mark.req("C3", "C11")
def test_a_wrong_key_in_the_middle_of_a_chain_makes_it_impossible(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, WRONG_KEY)

    view = stage.outcome()

    assert (view.status, view.state) == (RequestStatus.FAILED, ChainState.IMPOSSIBLE)
    assert [entry.number for entry in view.entries] == [1, 2]
    assert view.entries[1].failure.kind is ErrorKind.AUTH


@pytest.mark.req("C12")
def test_the_same_plan_against_the_same_wall_is_stuck_with_budget_left(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert (view.status, view.state) == (RequestStatus.FAILED, ChainState.STUCK)
    assert [entry.number for entry in view.entries] == [1, 2]
    tasks = [request for request in stage.server.requests if is_task(request.json)]
    assert len(tasks) == 2, "the third attempt was planned and not run"


@pytest.mark.req("C12")
def test_an_outage_is_never_stuck_and_waits_like_any_retry(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, status(503))

    with stage.at_work():
        job_id = stage.submit()
        for number in (2, 3):
            waiting = _scheduled(stage)
            assert stage.read(job_id).status is RequestStatus.QUEUED, number
            assert waiting > 0
            stage.due_now()
        view = stage.ended(job_id)

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert len(view.entries) == 3


def _scheduled(stage: Stage) -> float:
    redis = stage.runtime.redis
    wait_until(lambda: redis.zcount(keys.SCHEDULED(), 1, "+inf") == 1, 10, "the next attempt waits")
    return float(redis.zrange(keys.SCHEDULED(), 0, 0, withscores=True)[0][1])


@pytest.mark.req("C12")
def test_the_same_plan_goes_on_where_the_failure_changed(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, status(404), says("At last."))

    view = stage.outcome()

    assert (view.state, view.result, view.attempts) == (ChainState.ACHIEVED, "At last.", 3)


@pytest.mark.req("C3", "C4")
def test_a_formation_that_does_not_escalate_answers_with_the_error(
    make: Callable[..., Stage],
) -> None:
    stage = make(retry_async={"enabled": False})
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert (view.status, view.escalated, view.state) == (RequestStatus.FAILED, False, None)
    assert view.error_kind is ErrorKind.PROVIDER_4XX
    assert view.error_message
    assert stage.events() == []


@pytest.mark.req("C3")
@pytest.mark.parametrize("reply", [WRONG_KEY, status(403)], ids=["401", "403"])
def test_a_blocker_is_returned_directly_and_costs_no_budget(stage: Stage, reply: Any) -> None:
    stage.server.answer_when(is_task, reply)

    view = stage.outcome()

    assert (view.status, view.escalated) == (RequestStatus.FAILED, False)
    assert len(stage.server.requests) == 1


@pytest.mark.req("C3")
@pytest.mark.parametrize("what", ["clarification", "approval", "credential"])
def test_a_turn_that_waits_for_a_human_asks_and_does_not_escalate(
    make: Callable[..., Stage], what: str
) -> None:
    stage = make(workflow={"planning": True})
    stage.server.answer_when(
        is_planning, plan(WAREHOUSE, awaiting=what, question="Which quarter?", tasks=[])
    )

    view = stage.outcome()

    assert view.status == f"awaiting_{what}"
    assert (view.awaiting, view.question) == (what, "Which quarter?")
    assert (view.escalated, stage.events()) == (False, [])


@pytest.mark.req("C11", "C13")
def test_a_background_plan_that_needs_a_human_is_impossible_without_its_words(
    stage: Stage,
) -> None:
    stage.server.answer_when(
        is_planning, plan(WAREHOUSE, awaiting="approval", question="May I pay?", tasks=[])
    )
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert view.state is ChainState.IMPOSSIBLE
    assert "approval" in view.detail
    assert "May I pay" not in view.detail + "".join(reasons(view.entries))


@pytest.mark.req("C5", "C7")
def test_with_one_attempt_a_deadline_never_starts(make: Callable[..., Stage]) -> None:
    stage = make(retry_async={"max_attempts": 1, "deadline": "1ms"})
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    assert (view.state, view.detail) == (
        ChainState.BUDGET_EXHAUSTED,
        "all 1 async attempt(s) failed",
    )
    assert stage.runtime.redis.hget(keys.REQUEST(view.job_id), "deadline_at") is None


@pytest.mark.req("C19")
def test_a_retry_that_fails_begins_no_chain_of_its_own(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE))
    stage.server.answer_when(is_task, REFUSED)

    view = stage.outcome()

    escalated = [event for event in stage.events() if event[0] == "response.retry.escalated"]
    assert len(escalated) == 1
    prompt_id = stage.runtime.redis.hget(keys.REQUEST(view.job_id), "prompt_id")
    prompt = stage.runtime.records.prompt(str(prompt_id), "acme")
    assert prompt is not None
    kinds = [(job.kind, job.state, job.root_id) for job in prompt.jobs]
    assert kinds == [
        (Kind.CHAT, State.FAILED, view.job_id),
        (Kind.ESCALATION, State.FAILED, view.job_id),
        (Kind.ESCALATION, State.FAILED, view.job_id),
    ]


@pytest.mark.req("C2")
def test_a_plan_that_can_not_be_made_escalates_as_well(make: Callable[..., Stage]) -> None:
    stage = make(workflow={"planning": True})
    stage.server.answer_when(is_planning, says("no plan"), says("none"), plan(WAREHOUSE))
    stage.server.answer_when(is_task, says("Done."))

    view = stage.outcome()

    assert (view.state, view.result) == (ChainState.ACHIEVED, "Done.")
    assert view.entries[0].plan is None


@pytest.mark.req("C11")
def test_a_chain_whose_record_breaks_ends_as_exhausted(stage: Stage) -> None:
    stage.server.answer_when(is_task, REFUSED)
    job_id = stage.submit()
    with stage.at_work(slots=1):
        _escalated(stage, job_id)
        stage.runtime.redis.hset(keys.REQUEST(job_id), "max_attempts", "many")
        view = stage.ended(job_id)

    assert view.state is ChainState.BUDGET_EXHAUSTED
    assert view.detail.startswith("the chain itself broke")


def _escalated(stage: Stage, job_id: str) -> None:
    wait_until(lambda: stage.read(job_id).escalated, 10, "the turn has escalated")


@pytest.mark.req("C14")
def test_what_could_not_be_done_is_one_line_in_the_users_log_of_the_day(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE), plan(ARCHIVE), plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, REFUSED, REFUSED, REFUSED, says("Done."))

    failed = stage.outcome()
    achieved = stage.outcome()

    assert achieved.state is ChainState.ACHIEVED
    assert failed.ended_at_ms is not None
    day = datetime.fromtimestamp(failed.ended_at_ms / 1000, UTC).date()
    (line,) = stage.runtime.turns.captains_log(CLIENT, USER, day).entries
    assert (line.request_job_id, line.state, line.attempts) == (
        failed.job_id,
        ChainState.BUDGET_EXHAUSTED,
        3,
    )
    assert line.reasons == tuple(dict.fromkeys(reasons(failed.entries)))
    assert stage.runtime.turns.captains_log(CLIENT, "bob", day).entries == ()


@pytest.mark.req("X16")
def test_every_call_of_every_attempt_is_in_the_ledger(stage: Stage) -> None:
    stage.server.answer_when(is_planning, plan(WAREHOUSE))
    stage.server.answer_when(is_task, REFUSED, says("Done."))

    view = stage.outcome()

    prompt_id = str(stage.runtime.redis.hget(keys.REQUEST(view.job_id), "prompt_id"))
    prompt = stage.runtime.records.prompt(prompt_id, "acme")
    assert prompt is not None
    rows = [(row.usage["purpose"], row.usage["error"]) for row in prompt.ledger]
    assert rows == [("task", "provider_4xx"), ("plan", None), ("task", None)]
    assert prompt.ledger[2].usage["cost_usd_micros"] == 10
