"""Who is tried, how often, and after which pause? Over providers that do what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.domain.abort import entered
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.escalation import failure_signature
from jobs.domain.formation import Agent, TaskRetry
from jobs.domain.turn_plan import Plan, Task
from jobs.providers.base import Call
from jobs.worker.turns.calls import CalledModel
from jobs.worker.turns.tries import WorkflowFailedError
from tests.support.turn_execution import (
    MESSAGE,
    PLAN,
    Clock,
    NotedScope,
    Watcher,
    called,
    formation_of,
    least,
    scripted,
)

Say = Callable[[str], None]
ALONE = (Agent("one", "first"),)


def most(spread_s: float) -> float:
    return spread_s


def failing(kind: ErrorKind, **details: Any) -> Callable[[Call, Say], str]:
    def complete(_call: Call, _say: Say) -> str:
        raise AttemptError(kind, "it broke", **details)

    return complete


def failing_by_model(**errors: AttemptError) -> Callable[[Call, Say], str]:
    def complete(call: Call, _say: Say) -> str:
        if call.model in errors:
            raise errors[call.model]
        return f"by {call.model}"

    return complete


class Run:
    """One run of a plan under a clock that waits move on."""

    def __init__(
        self,
        complete: Callable[[Call, Say], str],
        *agents: Agent,
        plan: Plan = PLAN,
        **formation: Any,
    ) -> None:
        options = {"jitter": formation.pop("jitter", least)}
        self.clock = Clock()
        self.scope = NotedScope(self.clock)
        self.calls: list[CalledModel] = []
        self.watch = Watcher()
        self.failure: WorkflowFailedError | None = None
        self.text = ""
        executor, self.providers = scripted(
            complete, formation_of(*agents, **formation), clock=self.clock, **options
        )
        with entered(self.scope):
            try:
                self.text = executor.run(plan, MESSAGE, self.watch, self.calls).text
            except WorkflowFailedError as error:
                self.failure = error

    @property
    def models(self) -> list[str]:
        """The models that were called."""
        return [call.model for call in self.providers.calls]

    @property
    def reason(self) -> str:
        assert self.failure is not None, self.text
        return self.failure.failure.reason


@pytest.mark.req("C1")
def test_pauses_grow_by_the_factor_up_to_the_longest() -> None:
    retry = TaskRetry(max_attempts=6, initial_delay_s=0.5, max_delay_s=3.0, backoff_factor=2.0)

    run = Run(failing(ErrorKind.PROVIDER_5XX), *ALONE, retry=retry)

    assert run.models == ["first"] * 6
    assert run.scope.waits_s == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.req("C1")
def test_jitter_lengthens_pauses_and_none_is_longer_than_the_longest() -> None:
    retry = TaskRetry(max_attempts=5, initial_delay_s=0.5, max_delay_s=3.0, backoff_factor=2.0)

    run = Run(failing(ErrorKind.PROVIDER_5XX), *ALONE, retry=retry, jitter=most)

    assert run.scope.waits_s == [0.625, 1.25, 2.5, 3.0]


@pytest.mark.req("C1")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_only_a_failure_that_another_try_may_mend_is_tried_again(kind: ErrorKind) -> None:
    run = Run(failing(kind), *ALONE, retry=TaskRetry(max_attempts=3))

    assert len(run.models) == (3 if kind.is_retryable else 1)
    assert run.failure is not None
    assert run.failure.failure.kind is kind
    assert run.failure.plan == PLAN


@pytest.mark.req("C1")
def test_an_answer_of_a_task_that_can_not_be_read_is_not_asked_for_again() -> None:
    run = Run(failing(ErrorKind.PARSE, fault=Fault.MALFORMED), *ALONE)

    assert run.models == ["first"]


@pytest.mark.req("C1")
def test_after_the_agents_model_come_its_fallbacks_and_then_every_other_agent() -> None:
    agents = (
        Agent("zero", "third", fallbacks=("planner",)),
        Agent("one", "first", fallbacks=("backup", "second")),
        Agent("two", None),
    )

    run = Run(failing(ErrorKind.PROVIDER_4XX), *agents)

    assert run.models == ["first", "backup", "second", "third", "default"]
    progress = [note[1:] for note in run.watch.notes if note[0] == "progress"]
    assert progress == [(1, 1, "one"), (1, 1, "zero"), (1, 1, "two")]


@pytest.mark.req("C1")
def test_the_same_agent_is_asked_by_the_same_model_only_once() -> None:
    run = Run(failing(ErrorKind.PROVIDER_4XX), Agent("one", "first", fallbacks=("first", "backup")))

    assert run.models == ["first", "backup"]


@pytest.mark.req("C1")
def test_a_change_of_candidate_needs_no_pause() -> None:
    errors = {"first": AttemptError(ErrorKind.PROVIDER_4XX, "no")}

    run = Run(failing_by_model(**errors))

    assert (run.models, run.scope.waits_s) == (["first", "backup"], [])
    assert run.text == "by backup"


@pytest.mark.req("C1")
def test_an_alternate_agent_works_under_its_own_system_text() -> None:
    errors = {name: AttemptError(ErrorKind.PROVIDER_4XX, "no") for name in ("first", "backup")}
    agents = (
        Agent("one", "first", "You are one.", ("backup",)),
        Agent("two", "second", "You are two."),
    )

    run = Run(failing_by_model(**errors), *agents)

    last = run.providers.calls[-1]
    assert [(message.role, message.content) for message in last.messages] == [
        ("system", "You are two."),
        ("user", MESSAGE),
    ]


@pytest.mark.req("C1")
def test_an_agent_that_is_gone_leaves_its_task_to_the_others() -> None:
    run = Run(failing_by_model(), plan=Plan((Task("gone", MESSAGE),)))

    assert run.models == ["first"]


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
@pytest.mark.parametrize(("jitter", "waited_s"), [(least, 3.0), (most, 4.0)])
def test_a_short_wait_that_the_provider_names_is_waited_for_and_never_undercut(
    jitter: Callable[[float], float], waited_s: float
) -> None:
    run = Run(
        failing(ErrorKind.RATE_LIMIT, retry_after_s=3.0), *ALONE, retry=TaskRetry(), jitter=jitter
    )

    assert run.models == ["first", "first"]
    assert run.scope.waits_s == [waited_s]


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_named_wait_shorter_than_the_pause_does_not_shorten_it() -> None:
    retry = TaskRetry(initial_delay_s=5.0)

    run = Run(failing(ErrorKind.PROVIDER_5XX, retry_after_s=0.0), *ALONE, retry=retry)

    assert run.scope.waits_s == [5.0]


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_wait_longer_than_the_longest_pause_goes_on_to_another_model() -> None:
    errors = {"first": AttemptError(ErrorKind.RATE_LIMIT, "busy", retry_after_s=60.0)}

    run = Run(failing_by_model(**errors), retry=TaskRetry(max_attempts=5))

    assert (run.models, run.scope.waits_s) == (["first", "backup"], [])


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_model_that_named_a_long_wait_is_not_asked_by_another_agent_or_for_a_later_task() -> None:
    errors = {"first": AttemptError(ErrorKind.RATE_LIMIT, "busy", retry_after_s=60.0)}
    agents = (Agent("one", "first"), Agent("two", "first"), Agent("three", "third"))
    plan = Plan((Task("one", "a"), Task("two", "b")))

    run = Run(failing_by_model(**errors), *agents, plan=plan, retry=TaskRetry())

    assert run.models == ["first", "third", "third"]


@pytest.mark.req("C1", "C3")
def test_where_all_models_wait_the_failure_carries_how_long() -> None:
    error = AttemptError(ErrorKind.RATE_LIMIT, "busy", retry_after_s=60.0)
    agents = (Agent("one", "first"), Agent("two", "first"))

    run = Run(failing_by_model(first=error), *agents, retry=TaskRetry())

    assert run.failure is not None
    assert run.failure.failure.retry_after_s == 60.0
    assert run.reason == "one: busy (calls made in vain: 1)"


@pytest.mark.req("C1")
@pytest.mark.case("LLM-01")
def test_a_short_wait_holds_for_another_agent_of_the_same_model_too() -> None:
    error = AttemptError(ErrorKind.RATE_LIMIT, "busy", retry_after_s=4.0)
    agents = (Agent("one", "first"), Agent("two", "first"))

    run = Run(failing_by_model(first=error), *agents, retry=TaskRetry(max_attempts=1))

    assert (run.models, run.scope.waits_s) == (["first", "first"], [4.0])


@pytest.mark.req("C1", "C3")
@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        ("gone", ErrorKind.PROVIDER_4XX, "configuration error: model 'gone'"),
        ("keyed", ErrorKind.AUTH, "set SOME_API_KEY"),
    ],
)
def test_a_model_that_can_not_be_called_is_a_failure_without_a_call(
    model: str, kind: ErrorKind, words: str
) -> None:
    run = Run(failing_by_model(), Agent("one", model))

    assert run.failure is not None
    assert run.failure.failure.kind is kind
    assert words in run.reason
    assert run.reason.endswith("(calls made in vain: 0)")
    assert (run.calls, run.models) == ([], [])


@pytest.mark.req("C1")
def test_a_model_that_can_not_be_called_does_not_end_the_turn() -> None:
    run = Run(failing_by_model(), Agent("one", "keyed", fallbacks=("gone", "backup")))

    assert run.text == "by backup"


@pytest.mark.req("C3")
def test_a_failure_that_another_plan_may_avoid_stands_for_all() -> None:
    errors = {
        "first": AttemptError(ErrorKind.AUTH, "the key is refused"),
        "backup": AttemptError(ErrorKind.PROVIDER_5XX, "it is down"),
        "second": AttemptError(ErrorKind.PROVIDER_4XX, "too long"),
    }

    run = Run(failing_by_model(**errors), retry=TaskRetry(max_attempts=1))

    assert run.reason == "one: it is down (calls made in vain: 3)"


@pytest.mark.req("C3")
def test_where_every_failure_is_a_blocker_the_first_one_stands_for_all() -> None:
    errors = {
        name: AttemptError(ErrorKind.AUTH, f"{name} is refused")
        for name in ("first", "backup", "second")
    }

    run = Run(failing_by_model(**errors))

    assert run.reason == "one: first is refused (calls made in vain: 3)"


@pytest.mark.req("C3")
def test_the_calls_of_a_task_that_went_well_are_not_in_vain() -> None:
    errors = {"second": AttemptError(ErrorKind.PROVIDER_4XX, "no")}
    agents = (Agent("one", "first"), Agent("two", "second"))
    plan = Plan((Task("one", "a"), Task("two", "b")))

    def complete(call: Call, say: Say) -> str:
        if "Your instruction:\nb" in call.messages[-1].content:
            raise errors["second"]
        return "done"

    run = Run(complete, *agents, plan=plan)

    assert called(run.calls) == [
        ("first", ""),
        ("second", "provider_4xx"),
        ("first", "provider_4xx"),
    ]
    assert run.reason == "two: no (calls made in vain: 2)"


@pytest.mark.req("C3")
@pytest.mark.parametrize("agent_id", ["author", "Permissions", "AUTHORITY.bot"])
def test_an_agent_whose_name_reads_as_a_blocker_does_not_make_its_failures_one(
    agent_id: str,
) -> None:
    agents = (Agent("one", "backup"), Agent(agent_id, "first"))
    plan = Plan((Task(agent_id, MESSAGE),))

    run = Run(failing(ErrorKind.PROVIDER_5XX), *agents, plan=plan)

    assert run.reason == "agent 2: it broke (calls made in vain: 4)"


@pytest.mark.req("C3")
def test_reasons_hold_nothing_of_prompts_or_answers() -> None:
    def complete(call: Call, say: Say) -> str:
        say("a secret answer")
        raise AttemptError(ErrorKind.UNKNOWN, "unexpected end")

    run = Run(complete)

    assert run.reason == "one: unexpected end (calls made in vain: 6)"
    assert run.failure is not None
    assert str(run.failure) == f"unknown: {run.reason}"


@pytest.mark.req("C12")
def test_how_many_calls_were_made_does_not_tell_two_failures_apart() -> None:
    once, often = (
        Run(failing(ErrorKind.PARSE), *ALONE),
        Run(failing(ErrorKind.PARSE), Agent("one", "first", fallbacks=("backup", "second"))),
    )

    assert once.failure is not None
    assert often.failure is not None
    assert once.reason != often.reason
    assert failure_signature(once.failure.failure) == failure_signature(often.failure.failure)
