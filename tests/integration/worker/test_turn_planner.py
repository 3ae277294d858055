"""Is a plan asked for, checked, and asked for again where it is of no use?"""

from __future__ import annotations

import pytest

from jobs.domain.entities import Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import Failure
from jobs.domain.turn_plan import Awaiting, Plan, Question, Task
from jobs.worker.turns.calls import CalledModel, Purpose
from jobs.worker.turns.executor import TurnExecutor
from jobs.worker.turns.tries import WorkflowFailedError
from tests.support.openai_server import OpenAIServer
from tests.support.turn_execution import (
    MESSAGE,
    USAGE,
    Watcher,
    asked,
    called,
    entry,
    last_message,
    plan_text,
    spoken,
)

UNKNOWN = Usage(None, None)
FAILED = entry(Failure(ErrorKind.PROVIDER_5XX, "reporting_api timed out"))


@pytest.mark.req("C1")
def test_a_plan_is_asked_for_under_a_strict_schema(
    server: OpenAIServer, planning: TurnExecutor
) -> None:
    server.answer_next(spoken(plan_text(("one", "Fetch."), ("two", "Chart."))))
    watch, calls = Watcher(), list[CalledModel]()

    plan = planning.plan(MESSAGE, (), watch, calls)

    assert plan == Plan((Task("one", "Fetch."), Task("two", "Chart.")))
    (request,) = [request.json for request in server.requests]
    assert request["model"] == "planner"
    schema = request["response_format"]["json_schema"]
    assert (schema["name"], schema["strict"]) == ("plan", True)
    assert MESSAGE in request["messages"][-1]["content"]
    assert [(call.purpose, call.usage) for call in calls] == [(Purpose.PLAN, USAGE)]
    assert watch.notes == []
    assert watch.activity >= 3


@pytest.mark.req("C1")
@pytest.mark.parametrize(
    "text",
    [
        "Sure! First fetch, then chart.",
        plan_text(("nobody", "Fetch.")),
        plan_text(),
        plan_text(("one", "Fetch."), awaiting="coffee"),
        '{"tasks": [NaN]}',
    ],
)
def test_a_plan_that_can_not_be_used_is_asked_for_again(
    server: OpenAIServer, planning: TurnExecutor, text: str
) -> None:
    server.answer_next(spoken(text), spoken(plan_text(("one", "Fetch."))))
    calls: list[CalledModel] = []

    plan = planning.plan(MESSAGE, (), Watcher(), calls)

    assert plan == Plan((Task("one", "Fetch."),))
    assert asked(server) == ["planner", "planner"]
    assert [(call.error, call.usage) for call in calls] == [("malformed", USAGE), ("", USAGE)]
    assert (calls[0].provider_request_id is None) == (calls[1].provider_request_id is None)


@pytest.mark.req("C1")
def test_the_default_model_plans_where_the_planners_own_fails(
    server: OpenAIServer, planning: TurnExecutor
) -> None:
    server.answer_model("planner", spoken("no plan"))
    server.answer_model("default", spoken(plan_text(("two", "Chart."))))

    plan = planning.plan(MESSAGE, (), Watcher(), [])

    assert plan == Plan((Task("two", "Chart."),))
    assert asked(server) == ["planner", "planner", "default"]


@pytest.mark.req("C1", "C2")
def test_without_any_plan_the_workflow_has_failed_and_its_calls_are_noted(
    server: OpenAIServer, planning: TurnExecutor
) -> None:
    server.default = spoken("a secret instead of a plan")
    calls: list[CalledModel] = []

    with pytest.raises(WorkflowFailedError) as caught:
        planning.plan(MESSAGE, (), Watcher(), calls)

    assert caught.value.plan is None
    failure = caught.value.failure
    assert failure.kind is ErrorKind.PARSE
    assert failure.reason.startswith("planner: no usable plan: ")
    assert failure.reason.endswith("(calls made in vain: 4)")
    assert "secret" not in str(caught.value)
    assert called(calls) == [("planner", "malformed")] * 2 + [("default", "malformed")] * 2


@pytest.mark.req("C3")
@pytest.mark.parametrize("awaiting", list(Awaiting))
def test_a_planner_may_ask_in_place_of_a_plan(
    server: OpenAIServer, planning: TurnExecutor, awaiting: Awaiting
) -> None:
    server.answer_next(spoken(plan_text(awaiting=awaiting, question="Which year?")))

    assert planning.plan(MESSAGE, (), Watcher(), []) == Question(awaiting, "Which year?")


@pytest.mark.req("C12")
def test_after_a_failure_the_planner_is_asked_and_told_what_failed(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_model("default", spoken(plan_text(("two", "Read the warehouse."))))

    plan = executor.plan(MESSAGE, (FAILED,), Watcher(), [])

    assert plan == Plan((Task("two", "Read the warehouse."),))
    assert asked(server) == ["default"]
    assert "reporting_api timed out" in last_message(server, 0)
