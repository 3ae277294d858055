"""What does the mock do where its text is streamed, and as the planner of a turn?"""

import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault
from jobs.domain.escalation import AttemptEntry, Failure
from jobs.domain.formation import Agent
from jobs.domain.planner_prompts import planner_messages, task_messages
from jobs.domain.turn_plan import Awaiting, Plan, Question, Task, plan_schema, read_plan
from jobs.providers.base import Call, Completion, Message
from jobs.providers.mock import MockProvider

AGENTS = (Agent("writer", system="You write."), Agent("checker"))
NONCES = iter(f"{number:016x}" for number in range(1, 10_000))


def new_nonce() -> str:
    return next(NONCES)


def ask(prompt: str, provider: MockProvider | None = None, **options: Any) -> Completion:
    call = Call("mock-1", (Message("user", prompt),))
    return (provider or MockProvider("mock")).complete(call, **options)


def plan(
    message: str, *entries: AttemptEntry, provider: MockProvider | None = None
) -> Plan | Question:
    system, user = planner_messages(AGENTS, message, entries, new_nonce)
    messages = (Message("system", system), Message("user", user))
    call = Call("mock-1", messages, json_schema=plan_schema(AGENTS))
    return read_plan((provider or MockProvider("mock")).complete(call).text, AGENTS)


def do(task: Task, message: str) -> Completion:
    _, user = task_messages(AGENTS[0], task, message, [("checker", message)], False, new_nonce)
    return ask(user)


def failed(number: int, tried: Plan | None) -> AttemptEntry:
    return AttemptEntry(
        number, tried, Failure(ErrorKind.PROVIDER_5XX, "writer: the server is gone")
    )


@pytest.mark.req("C9")
def test_a_streamed_text_comes_word_by_word_and_is_that_of_one_piece() -> None:
    pieces: list[str] = []

    streamed = ask("hello", on_text=pieces.append)

    assert len(pieces) == len(streamed.text.split())
    assert "".join(pieces) == streamed.text == ask("hello").text


@pytest.mark.req("C6")
def test_a_delay_is_spread_over_the_words() -> None:
    at_s = [time.monotonic()]

    ask("[[mock delay=0.6]]", on_text=lambda _piece: at_s.append(time.monotonic()))

    assert at_s[-1] - at_s[0] >= 0.6
    assert max(after - before for before, after in pairwise(at_s)) < 0.4


@pytest.mark.req("C6", "A11")
def test_a_stream_that_hangs_says_nothing_however_often_its_bound_moves() -> None:
    pieces: list[str] = []
    begun_s = time.monotonic()
    idle = AbortScope(0.3)
    threading.Timer(0.15, idle.touch).start()

    with entered(idle.narrowed(60.0)), pytest.raises(AttemptError) as caught:
        ask("[[mock hang]]", on_text=pieces.append)

    assert (caught.value.kind, pieces) == (ErrorKind.TIMEOUT, [])
    assert time.monotonic() - begun_s >= 0.4, "longer than it would have been untouched"


@pytest.mark.req("A17")
def test_an_abort_ends_a_stream_between_two_words() -> None:
    scope = AbortScope(60.0)
    pieces: list[str] = []

    def hear(piece: str) -> None:
        pieces.append(piece)
        scope.abort("cancelled")

    with entered(scope), pytest.raises(AttemptAbortedError):
        ask("hello", on_text=hear)
    assert len(pieces) == 1


@pytest.mark.parametrize(
    ("script", "share"),
    [
        ("error=timeout", 0.0),
        ("fault=refused", 0.0),
        ("fault=malformed", 0.0),
        ("fault=cut_off", 0.5),
    ],
)
def test_a_stream_that_fails_says_as_much_as_a_model_would(script: str, share: float) -> None:
    pieces: list[str] = []

    with pytest.raises(AttemptError):
        ask(f"[[mock {script} delay=0.05]]", on_text=pieces.append)

    whole = len(ask("[[mock delay=0]]").text.split())
    assert len(pieces) == int(whole * share)


@pytest.mark.req("C1")
def test_a_planner_makes_a_plan_of_one_task_the_same_for_the_same_request() -> None:
    first, again, other = plan("Chart it."), plan("Chart it."), plan("Chart another.")

    assert isinstance(first, Plan)
    assert first == again != other
    assert [task.agent for task in first.tasks] == ["writer"]


@pytest.mark.req("C12")
def test_a_plan_after_a_failure_is_another_one() -> None:
    first = plan("Chart it.")
    assert isinstance(first, Plan)

    assert plan("Chart it.", failed(1, None), failed(2, first)) != first


@pytest.mark.req("C1")
def test_what_the_message_says_is_for_the_tasks_and_a_plan_does_not_hand_it_on() -> None:
    message = "Chart it. [[mock error=provider_5xx]]"
    made = plan(message)
    assert isinstance(made, Plan)

    assert do(made.tasks[0], message).text.startswith("This is mock text")
    with pytest.raises(AttemptError) as caught:
        ask(message)
    assert caught.value.kind is ErrorKind.PROVIDER_5XX


@pytest.mark.req("C1")
def test_what_is_sticky_is_handed_on_in_every_plan_once() -> None:
    message = "Chart it. [[mock sticky error=provider_5xx]] [[mock fault=refused]]"
    made = plan(message)
    assert isinstance(made, Plan)
    next_one = plan(message, failed(1, None), failed(2, made), failed(3, made))
    assert isinstance(next_one, Plan)

    for task in (*made.tasks, *next_one.tasks):
        assert task.instruction.count("[[mock ") == 1
        with pytest.raises(AttemptError) as caught:
            do(task, message)
        assert (caught.value.kind, caught.value.fault) == (ErrorKind.PROVIDER_5XX, Fault.NONE)


@pytest.mark.req("C1")
def test_a_directive_that_is_said_twice_is_handed_on_once() -> None:
    sticky = "[[mock sticky error=provider_5xx]]"
    made = plan(f"Chart it. {sticky} {sticky}")

    assert isinstance(made, Plan)
    assert made.tasks[0].instruction.count(sticky) == 1


@pytest.mark.req("C1")
def test_a_long_sticky_directive_is_not_mistaken_where_a_summary_cuts_it() -> None:
    message = f"Chart it. [[mock sticky error=provider_5xx {'delay=0.000001 ' * 10}times=1]]"
    made = plan(message)
    assert isinstance(made, Plan)

    next_one = plan(message, failed(1, made), failed(2, made))

    assert isinstance(next_one, Plan)
    assert next_one.tasks[0].instruction.count("[[mock ") == 1


@pytest.mark.req("C6")
def test_what_is_for_planning_is_done_by_the_planner_alone() -> None:
    message = "Chart it. [[mock planning error=timeout]]"

    with pytest.raises(AttemptError) as caught:
        plan(message)

    assert caught.value.kind is ErrorKind.TIMEOUT
    assert ask(message).text


def test_a_planner_can_fail_a_number_of_times_though_its_prompt_has_another_code_each_time() -> (
    None
):
    provider = MockProvider("mock")
    message = "Chart it. [[mock planning fault=malformed times=2]]"
    for _ in range(2):
        with pytest.raises(AttemptError):
            plan(message, provider=provider)

    assert isinstance(plan(message, provider=provider), Plan)


@pytest.mark.req("C3")
@pytest.mark.parametrize("awaiting", list(Awaiting))
def test_a_planner_can_be_told_to_ask(awaiting: Awaiting) -> None:
    asked = plan(f"Chart it. [[mock planning awaiting={awaiting}]]")

    assert isinstance(asked, Question)
    assert asked.awaiting is awaiting
    assert asked.text.startswith("mock question ")


@pytest.mark.parametrize(
    "directive", ["awaiting=approval", "planing error=timeout", "sticky=1", "awaiting=nothing"]
)
def test_a_task_names_a_word_that_is_none_of_its_words(directive: str) -> None:
    with pytest.raises(AttemptError) as caught:
        ask(f"[[mock {directive}]]")

    assert caught.value.kind is ErrorKind.PROVIDER_4XX


@pytest.mark.parametrize("word", ["awaiting=nothing", "awaiting=", "eror=timeout"])
def test_a_planner_names_a_word_that_is_none_of_its_words(word: str) -> None:
    with pytest.raises(AttemptError) as caught:
        plan(f"[[mock planning {word}]]")

    assert word in caught.value.message


def test_a_prompt_full_of_markers_is_read_in_time() -> None:
    begun_s = time.monotonic()
    lines = [f"<<<request {number:08x}" for number in range(40_000)]

    assert ask("\n".join(lines) + " [[mock delay=0]]").text
    assert time.monotonic() - begun_s < 2.0


def test_a_prompt_that_ends_its_own_data_is_obeyed_after_it() -> None:
    data = "<<<request abcdef01\n[[mock error=auth]]\nrequest abcdef01>>>"

    assert ask(data).text
    with pytest.raises(AttemptError):
        ask(f"{data}\n[[mock error=auth]]")
    with pytest.raises(AttemptError):
        ask(data.replace("\nrequest", "\n request"))
