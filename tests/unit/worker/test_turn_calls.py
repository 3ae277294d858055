"""Who hears of a call, and what is noted of it, whatever way it ends?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jobs.domain.abort import AbortScope, current, entered
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault
from jobs.domain.formation import Agent
from jobs.domain.turn_plan import Plan, Task
from jobs.providers.base import Call
from jobs.worker.turns.calls import CalledModel, Purpose
from jobs.worker.turns.tries import WorkflowFailedError
from tests.support.turn_execution import (
    MESSAGE,
    PLAN,
    USAGE,
    Clock,
    NotedScope,
    Watcher,
    called,
    formation_of,
    plan_text,
    scripted,
)

Say = Callable[[str], None]
TWO_TASKS = Plan((Task("one", "Fetch."), Task("two", "Chart.")))


@pytest.mark.req("C1")
def test_an_answer_names_its_model_and_carries_its_completion() -> None:
    executor, providers = scripted(lambda _call, _say: "An answer.")
    calls: list[CalledModel] = []

    answer = executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert (answer.text, answer.spec.id) == ("An answer.", "first")
    assert (answer.completion.usage, answer.completion.provider_request_id) == (USAGE, "req-1")
    (call,) = calls
    assert (call.spec, call.usage, call.provider_request_id) == (answer.spec, USAGE, "req-1")
    assert (call.purpose, call.error) == (Purpose.TASK, "")
    assert providers.calls[0].json_schema is None


@pytest.mark.req("C1")
def test_what_a_call_took_is_noted_in_milliseconds() -> None:
    clock = Clock()

    def complete(_call: Call, _say: Say) -> str:
        clock.now_s += 1.25
        return "An answer."

    executor, _ = scripted(complete, clock=clock)
    calls: list[CalledModel] = []
    executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert [call.latency_ms for call in calls] == [1250]


@pytest.mark.req("C1")
@pytest.mark.parametrize(
    ("error", "word", "usage"),
    [
        (AttemptError(ErrorKind.PROVIDER_4XX, "no"), "provider_4xx", Usage(None, None)),
        (
            AttemptError(ErrorKind.PARSE, "cut", fault=Fault.CUT_OFF, usage=Usage(5, 9)),
            "cut_off",
            Usage(5, 9),
        ),
        (AttemptError(ErrorKind.TIMEOUT, "late", usage=Usage(0, 0)), "timeout", Usage(0, 0)),
    ],
)
def test_a_failed_call_is_noted_with_its_word_and_what_it_used(
    error: AttemptError, word: str, usage: Usage
) -> None:
    def complete(_call: Call, _say: Say) -> str:
        raise error

    executor, _ = scripted(complete, formation_of(Agent("one", "first")))
    calls: list[CalledModel] = []

    with pytest.raises(WorkflowFailedError):
        executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert {(call.error, call.usage, call.provider_request_id) for call in calls} == {
        (word, usage, None)
    }


@pytest.mark.req("C2")
@pytest.mark.parametrize(
    ("error", "word"),
    [(AttemptAbortedError("cancelled"), "aborted"), (ZeroDivisionError(), "unknown")],
)
def test_what_ends_a_turn_passes_through_and_its_call_is_noted(error: Exception, word: str) -> None:
    def complete(_call: Call, _say: Say) -> str:
        raise error

    executor, _ = scripted(complete)
    calls: list[CalledModel] = []

    with pytest.raises(type(error)):
        executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert called(calls) == [("first", word)]


@pytest.mark.req("C9")
def test_only_the_text_of_the_last_task_is_passed_on() -> None:
    def complete(call: Call, say: Say) -> str:
        for piece in (call.model, "", " ", "said"):
            say(piece)
        return f"{call.model} said"

    executor, _ = scripted(complete)
    watch = Watcher()

    answer = executor.run(TWO_TASKS, MESSAGE, watch, [])

    assert watch.notes == [
        ("progress", 1, 2, "one"),
        ("progress", 2, 2, "two"),
        ("text", "second"),
        ("text", " "),
        ("text", "said"),
    ]
    assert watch.text == answer.text
    assert watch.activity == 2 * (4 + 2)


@pytest.mark.req("C9")
def test_text_of_a_call_that_fails_is_taken_back() -> None:
    def complete(call: Call, say: Say) -> str:
        say(f"by {call.model}")
        if call.model == "first":
            raise AttemptError(ErrorKind.PROVIDER_5XX, "it broke off")
        return f"by {call.model}"

    executor, _ = scripted(complete)
    watch = Watcher()

    executor.run(PLAN, MESSAGE, watch, [])

    assert watch.words == ["progress", "text", "restart", "text", "restart", "text"]
    assert watch.text == "by backup"


@pytest.mark.req("C9")
def test_where_nothing_was_passed_on_nothing_is_taken_back() -> None:
    def complete(call: Call, say: Say) -> str:
        say("")
        if call.model == "first":
            raise AttemptError(ErrorKind.PROVIDER_5XX, "it broke off")
        return "done"

    executor, _ = scripted(complete)
    watch = Watcher()

    executor.run(PLAN, MESSAGE, watch, [])

    assert watch.words == ["progress"]


@pytest.mark.req("C9")
def test_text_of_an_earlier_task_that_fails_was_never_passed_on() -> None:
    def complete(call: Call, say: Say) -> str:
        say("some")
        if call.model == "first":
            raise AttemptError(ErrorKind.PROVIDER_4XX, "no")
        return "done"

    executor, _ = scripted(complete)
    watch = Watcher()

    executor.run(TWO_TASKS, MESSAGE, watch, [])

    assert watch.words == ["progress", "progress", "text"]


@pytest.mark.req("C6")
def test_a_call_gets_a_bound_of_its_own_within_that_of_the_turn() -> None:
    bounds_s: list[float] = []

    def complete(_call: Call, _say: Say) -> str:
        scope = current()
        assert scope is not None
        bounds_s.append(scope.remaining_s())
        return "done"

    executor, _ = scripted(complete, call_budget_s=30.0)
    for turn_s in (math.inf, 10.0):
        with entered(NotedScope(Clock(), turn_s)) as scope:
            executor.run(PLAN, MESSAGE, Watcher(), [])
            assert current() is scope

    assert bounds_s == [30.0, 10.0]


@pytest.mark.req("C6")
def test_a_call_that_takes_too_long_is_a_failure_like_another() -> None:
    clock = Clock()

    def complete(call: Call, _say: Say) -> str:
        if call.model == "first":
            clock.now_s += 30.0
            scope = current()
            assert scope is not None
            scope.check()
        return "done"

    executor, _ = scripted(complete, call_budget_s=30.0)
    calls: list[CalledModel] = []
    with entered(NotedScope(clock, 900.0)):
        answer = executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert answer.spec.id == "backup"
    assert called(calls) == [("first", "no_answer"), ("first", "no_answer"), ("backup", "")]


@pytest.mark.req("C6")
def test_a_turn_that_shows_activity_may_take_as_long_as_it_needs() -> None:
    clock = Clock()
    idle = AbortScope(20.0, clock, "nothing moved for 20 s")

    def complete(_call: Call, say: Say) -> str:
        for piece in ("", "a", ""):
            clock.now_s += 15.0
            say(piece)
            idle.check()
        clock.now_s += 15.0
        return "a"

    executor, _ = scripted(complete, call_budget_s=math.inf)
    watch = Watcher(lambda note: idle.touch() if note == ("activity",) else None)
    with entered(idle):
        answer = executor.run(TWO_TASKS, MESSAGE, watch, [])

    assert answer.text == "a"
    assert clock.now_s == 100.0 + 2 * 60.0


@pytest.mark.req("C6", "C7")
@pytest.mark.parametrize("kind", [ErrorKind.TIMEOUT, ErrorKind.PROVIDER_5XX])
def test_where_the_turns_own_time_is_up_that_is_raised_and_nothing_more_is_called(
    kind: ErrorKind,
) -> None:
    clock = Clock()
    scope = AbortScope(20.0, clock, "nothing moved for 20 s")

    def complete(_call: Call, say: Say) -> str:
        say("some")
        clock.now_s += 20.0
        raise AttemptError(kind, "something else")

    executor, _ = scripted(complete, call_budget_s=30.0)
    calls: list[CalledModel] = []
    watch = Watcher(lambda note: scope.touch() if note == ("activity",) else None)
    with entered(scope), pytest.raises(AttemptError) as caught:
        executor.run(PLAN, MESSAGE, watch, calls)

    assert (caught.value.kind, caught.value.message) == (
        ErrorKind.TIMEOUT,
        "nothing moved for 20 s",
    )
    assert len(calls) == 1
    assert "restart" not in watch.words


@pytest.mark.req("C6", "C7")
def test_a_pause_that_the_turn_has_no_time_for_ends_the_turn() -> None:
    def complete(_call: Call, _say: Say) -> str:
        raise AttemptError(ErrorKind.RATE_LIMIT, "busy", retry_after_s=0.005)

    clock = Clock()
    executor, _ = scripted(complete, clock=clock)
    calls: list[CalledModel] = []
    with entered(NotedScope(clock, 0.004)), pytest.raises(AttemptError) as caught:
        executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert caught.value.kind is ErrorKind.TIMEOUT
    assert len(calls) == 1


@pytest.mark.req("C15")
@pytest.mark.parametrize(("when", "called_before"), [("progress", 0), ("activity", 1), ("text", 1)])
def test_after_an_abort_nothing_more_is_called(when: str, called_before: int) -> None:
    scope = AbortScope(60.0)

    def stop(note: tuple[Any, ...]) -> None:
        if note[0] == when:
            scope.abort("cancelled")

    def complete(_call: Call, say: Say) -> str:
        say("some")
        raise AttemptError(ErrorKind.PROVIDER_5XX, "it broke off")

    executor, providers = scripted(complete)
    watch = Watcher(stop)
    with entered(scope), pytest.raises(AttemptAbortedError, match="cancelled"):
        executor.run(PLAN, MESSAGE, watch, [])

    assert len(providers.calls) == called_before
    assert "restart" not in watch.words


@pytest.mark.req("C1")
def test_later_tasks_read_what_earlier_ones_answered_and_by_whom() -> None:
    def complete(call: Call, _say: Say) -> str:
        if call.model == "first":
            raise AttemptError(ErrorKind.PROVIDER_4XX, "no")
        return f"found by {call.model}"

    executor, providers = scripted(
        complete, formation_of(Agent("one", "first"), Agent("two", "second"))
    )

    answer = executor.run(TWO_TASKS, MESSAGE, Watcher(), [])

    assert answer.text == "found by second"
    asked = [call.messages[-1].content for call in providers.calls]
    assert len(asked) == 3
    assert "found by" not in asked[0] + asked[1]
    assert "From two:\nfound by second" in asked[2]
    assert all(MESSAGE in text for text in asked)


@pytest.mark.req("C1")
def test_what_is_handed_on_is_bounded() -> None:
    plan = Plan(tuple(Task("one", f"Do {number}.") for number in range(6)))
    executor, providers = scripted(lambda _call, _say: "y" * 150_000)

    answer = executor.run(plan, MESSAGE, Watcher(), [])

    assert len(answer.text) == 150_000
    assert providers.calls[1].messages[-1].content.count("y" * 1000) == 100
    assert max(len(call.messages[-1].content) for call in providers.calls) < 210_000


@pytest.mark.req("C1")
def test_a_formation_that_does_not_plan_has_one_task_and_needs_no_call() -> None:
    executor, providers = scripted(lambda _call, _say: "")

    assert executor.plan(MESSAGE, (), Watcher(), []) == PLAN
    assert providers.calls == []


@pytest.mark.req("C1")
def test_a_planner_is_noted_as_one_and_says_nothing_to_the_reader() -> None:
    def complete(call: Call, say: Say) -> str:
        say(plan_text(("two", "Chart.")))
        return plan_text(("two", "Chart."))

    executor, _ = scripted(complete, formation_of(plans=True, planner_model="planner"))
    watch, calls = Watcher(), list[CalledModel]()

    plan = executor.plan(MESSAGE, (), watch, calls)

    assert plan == Plan((Task("two", "Chart."),))
    assert [(call.spec.id, call.purpose, call.error) for call in calls] == [
        ("planner", Purpose.PLAN, "")
    ]
    assert (watch.notes, watch.activity) == ([], 3)
