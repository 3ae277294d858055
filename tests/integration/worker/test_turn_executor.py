"""Does a turn do what its formation says, over real HTTP and by the mock?"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind
from jobs.domain.escalation import Failure
from jobs.domain.formation import Agent, TaskRetry
from jobs.domain.turn_plan import Plan, Task
from jobs.worker.turns.calls import CalledModel, Purpose
from jobs.worker.turns.executor import TurnExecutor
from jobs.worker.turns.tries import WorkflowFailedError
from tests.support.openai_server import Fault, OpenAIServer, answer, completion, fault, status
from tests.support.turn_execution import (
    MESSAGE,
    PLAN,
    USAGE,
    Watcher,
    asked,
    called,
    entry,
    executor_at,
    formation_of,
    last_message,
    run,
    spoken,
)

UNKNOWN = Usage(None, None)
FAILED = entry(Failure(ErrorKind.PROVIDER_5XX, "reporting_api timed out"))


@pytest.mark.req("C1")
def test_a_turn_is_the_message_to_the_agents_model(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_next(spoken("The ", "numbers."))
    watch = Watcher()

    text, calls = run(executor, watch=watch)

    assert text == watch.text == "The numbers."
    assert [note for note in watch.notes if note[0] == "text"] == [
        ("text", "The "),
        ("text", "numbers."),
    ]
    (request,) = server.requests
    assert request.json["messages"] == [{"role": "user", "content": MESSAGE}]
    assert (request.json["model"], request.json["stream"]) == ("first", True)
    assert [(call.spec.id, call.usage, call.error) for call in calls] == [("first", USAGE, "")]


@pytest.mark.req("C1")
def test_what_fails_for_a_moment_is_tried_again_and_both_calls_are_noted(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_next(status(503), spoken("Here."))

    text, calls = run(executor)

    assert (text, asked(server)) == ("Here.", ["first", "first"])
    assert [(call.error, call.usage) for call in calls] == [
        ("provider_5xx", UNKNOWN),
        ("", USAGE),
    ]


@pytest.mark.req("C1")
def test_fallbacks_and_alternate_agents_come_in_their_order(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_model("first", status(503))
    server.answer_model("backup", status(400))
    server.answer_model("second", spoken("By the other one."))
    watch = Watcher()

    text, calls = run(executor, watch=watch)

    assert text == "By the other one."
    assert asked(server) == ["first", "first", "backup", "second"]
    assert called(calls) == [
        ("first", "provider_5xx"),
        ("first", "provider_5xx"),
        ("backup", "provider_4xx"),
        ("second", ""),
    ]
    progress = [note[1:] for note in watch.notes if note[0] == "progress"]
    assert progress == [(1, 1, "one"), (1, 1, "two")]


@pytest.mark.req("C1", "C2")
def test_where_nobody_succeeds_one_failure_stands_for_all_and_every_call_is_noted(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_model("first", status(401))
    server.answer_model("backup", status(502))
    server.answer_model("second", answer(completion("cut", finish_reason="length")))
    calls: list[CalledModel] = []

    with pytest.raises(WorkflowFailedError) as caught:
        executor.run(PLAN, MESSAGE, Watcher(), calls)

    assert caught.value.plan == PLAN
    failure = caught.value.failure
    assert failure.kind is ErrorKind.PROVIDER_5XX
    assert (
        failure.reason
        == "one: provider answered 502, an error (some_error) (calls made in vain: 4)"
    )
    assert [(call.error, call.usage) for call in calls] == [
        ("auth", UNKNOWN),
        ("provider_5xx", UNKNOWN),
        ("provider_5xx", UNKNOWN),
        ("cut_off", USAGE),
    ]


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_short_wait_that_a_provider_names_is_honoured_over_http(server: OpenAIServer) -> None:
    retry = TaskRetry(initial_delay_s=0.001, max_delay_s=0.5)
    executor = executor_at(server.base_url, formation_of(Agent("one", "first"), retry=retry))
    server.answer_next(status(429, headers=(("retry-after-ms", "200"),)), spoken("Here."))

    text, calls = run(executor)

    assert (text, asked(server)) == ("Here.", ["first", "first"])
    assert called(calls)[0] == ("first", "rate_limit")


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_long_wait_that_a_provider_names_leads_to_the_next_model(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_model("first", status(429, headers=(("Retry-After", "3600"),)))
    server.answer_model("backup", spoken("Here."))

    text, _ = run(executor)

    assert (text, asked(server)) == ("Here.", ["first", "backup"])


@pytest.mark.req("C9")
@pytest.mark.parametrize(
    ("break_off", "word"),
    [
        (Fault.END_MID_STREAM, "no_answer"),
        (Fault.CLOSE_MID_BODY, "no_answer"),
        (Fault.RESET_MID_BODY, "no_answer"),
        (Fault.ERROR_MID_STREAM, "provider_5xx"),
    ],
)
def test_an_answer_that_breaks_in_the_middle_begins_anew(
    server: OpenAIServer, executor: TurnExecutor, break_off: Fault, word: str
) -> None:
    broken = spoken("The ", "numbers ", "are", fault=break_off)
    server.answer_next(broken, spoken("The ", "figures."))
    watch = Watcher()

    text, calls = run(executor, watch=watch)

    assert watch.words == ["progress", "text", "restart", "text"]
    assert text == watch.text == "The figures."
    assert called(calls) == [("first", word), ("first", "")]


@pytest.mark.req("C9")
def test_an_answer_that_was_cut_off_at_its_end_is_taken_back_too(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_model("first", answer(completion("cut", finish_reason="length")))
    server.answer_model("backup", spoken("Whole."))
    watch = Watcher()

    text, _ = run(executor, watch=watch)

    assert text == watch.text == "Whole."


@pytest.mark.req("C1")
def test_a_later_task_reads_the_results_of_those_before(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_next(spoken("Revenue was 7."), spoken("A chart of 7."))
    plan = Plan((Task("one", "Fetch Q3 revenue."), Task("two", "Build the chart.")))
    watch = Watcher()

    text, calls = run(executor, plan, watch)

    assert text == watch.text == "A chart of 7."
    assert asked(server) == ["first", "second"]
    assert "Fetch Q3 revenue." in last_message(server, 0)
    for words in (MESSAGE, "Build the chart.", "From one:\nRevenue was 7."):
        assert words in last_message(server, 1)
    assert [call.purpose for call in calls] == [Purpose.TASK, Purpose.TASK]


@pytest.mark.req("C15", "A17")
def test_an_abort_ends_a_call_that_hangs_and_nothing_more_is_called(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.default = fault(Fault.HANG)
    scope = AbortScope(60.0)
    calls: list[CalledModel] = []

    def abort_once_it_is_there() -> None:
        assert server.arrivals.acquire(timeout=10)
        scope.abort("cancelled")

    canceller = threading.Thread(target=abort_once_it_is_there)
    canceller.start()
    with entered(scope), pytest.raises(AttemptAbortedError, match="cancelled"):
        executor.run(PLAN, MESSAGE, Watcher(), calls)
    canceller.join()

    assert called(calls) == [("first", "aborted")]
    assert server.requests[0].left.wait(timeout=5)
    assert asked(server) == ["first"]


@pytest.mark.req("C15")
def test_an_abort_ends_a_pause_between_two_tries(server: OpenAIServer) -> None:
    retry = TaskRetry(initial_delay_s=60.0, max_delay_s=60.0)
    executor = executor_at(server.base_url, formation_of(retry=retry))
    server.default = status(503)
    scope = AbortScope(60.0)
    failed = Watcher(lambda note: timer.start() if watch.activity == 2 else None)
    watch, timer = failed, threading.Timer(0.1, scope.abort, ["cancelled"])

    with entered(scope), pytest.raises(AttemptAbortedError, match="cancelled"):
        executor.run(PLAN, MESSAGE, watch, [])

    assert asked(server) == ["first"]


@pytest.mark.req("C6")
def test_an_attempt_that_shows_no_activity_ends_as_idle_and_is_not_tried_again(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.default = fault(Fault.HANG)
    idle = AbortScope(0.3, message="nothing moved for 0.3 s")
    watch = Watcher(lambda note: idle.touch() if note == ("activity",) else None)
    calls: list[CalledModel] = []

    with entered(AbortScope(60.0)), entered(idle), pytest.raises(AttemptError) as caught:
        executor.run(PLAN, MESSAGE, watch, calls)

    assert caught.value.kind is ErrorKind.TIMEOUT
    assert caught.value.message == "nothing moved for 0.3 s"
    assert (len(calls), asked(server)) == (1, ["first"])


@pytest.mark.req("C6")
def test_an_answer_that_comes_slowly_is_activity_and_may_take_longer_than_the_idle_bound(
    server: OpenAIServer, executor: TurnExecutor
) -> None:
    server.answer_next(spoken(*"abcdefgh", piece_every_s=0.2))
    idle = AbortScope(1.0, message="nothing moved for 1 s")
    watch = Watcher(lambda note: idle.touch() if note == ("activity",) else None)
    began_s = time.monotonic()

    with entered(idle):
        text, calls = run(executor, watch=watch)

    assert text == "abcdefgh"
    assert called(calls) == [("first", "")]
    assert time.monotonic() - began_s > 1.0


@pytest.mark.req("C6")
def test_a_call_over_its_own_budget_is_tried_again_and_then_done_by_another(
    server: OpenAIServer,
) -> None:
    executor = executor_at(server.base_url, call_budget_s=0.3)
    server.answer_model("first", fault(Fault.HANG))
    server.answer_model("backup", spoken("Here."))

    with entered(AbortScope(60.0)):
        text, calls = run(executor)

    assert (text, asked(server)) == ("Here.", ["first", "first", "backup"])
    assert [call.error for call in calls] == ["no_answer", "no_answer", ""]


@pytest.mark.req("C1")
def test_one_executor_serves_many_threads(server: OpenAIServer, executor: TurnExecutor) -> None:
    server.answer_model("first", status(503))
    server.answer_model("backup", spoken("Here."))

    def turn(_number: int) -> tuple[str, list[tuple[str, str]], str]:
        watch = Watcher()
        text, calls = run(executor, watch=watch)
        return text, called(calls), watch.text

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(turn, range(16)))

    steps = [("first", "provider_5xx"), ("first", "provider_5xx"), ("backup", "")]
    assert outcomes == [("Here.", steps, "Here.")] * 16


@pytest.mark.req("C1", "X6")
def test_the_mock_does_turns_and_its_directives_are_those_of_any_prompt(
    server: OpenAIServer,
) -> None:
    executor = executor_at(server.base_url, formation_of(Agent("one", "mock-1")))
    message = "Say something. [[mock error=provider_5xx times=1]]"
    calls: list[CalledModel] = []
    watch = Watcher()

    answer_of_mock = executor.run(Plan((Task("one", message),)), message, watch, calls)

    assert answer_of_mock.text == watch.text
    assert answer_of_mock.text.startswith("This is mock text")
    assert called(calls) == [("mock-1", "provider_5xx"), ("mock-1", "")]
    assert json.loads(json.dumps(watch.notes[0])) == ["progress", 1, 1, "one"]


@pytest.mark.req("C1", "X6")
def test_the_mock_plans_badly_where_it_is_told_to_and_then_well(server: OpenAIServer) -> None:
    formation = formation_of(Agent("one", "mock-1"), plans=True, planner_model="mock-1")
    executor = executor_at(server.base_url, formation)
    message = "Say something. [[mock planning fault=malformed times=1]]"
    calls: list[CalledModel] = []

    plan = executor.plan(message, (), Watcher(), calls)
    assert isinstance(plan, Plan)
    executor.run(plan, message, Watcher(), calls)

    assert [(call.purpose, call.error) for call in calls] == [
        (Purpose.PLAN, "malformed"),
        (Purpose.PLAN, ""),
        (Purpose.TASK, ""),
    ]
