"""What do the planner and the agents of a turn get to see, and what is only data to them?"""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, Failure
from jobs.domain.formation import Agent
from jobs.domain.planner_prompts import (
    PLANNER_RULES,
    REPLAN_RULES,
    TASK_RULES,
    planner_messages,
    task_messages,
)
from jobs.domain.storable_text import storable
from jobs.domain.turn_plan import Plan, Task
from tests.support.injections import INJECTIONS

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
NONCE = "0123456789abcdef"
AGENTS = (Agent("assistant"), Agent("second", system="You draw\ncharts."))
PLAN = Plan((Task("assistant", "Fetch Q3\nrevenue"), Task("second", "build chart")))
ENTRIES = (
    AttemptEntry(1, PLAN, Failure(ErrorKind.TIMEOUT, "reporting_api timed\nout after 15s")),
    AttemptEntry(2, None, Failure(ErrorKind.PARSE, 'no "plan"')),
)


def nonce() -> str:
    return NONCE


def between(user: str, name: str, marker: str = NONCE) -> str:
    """What stands between the marker lines of `name`; fails where one is there twice."""
    opening, closing = f"<<<{name} {marker}\n", f"\n{name} {marker}>>>"
    assert (user.count(opening), user.count(closing)) == (1, 1)
    return user.partition(opening)[2].partition(closing)[0]


# The planner


@pytest.mark.req("C1")
def test_a_first_plan_is_asked_with_the_agents_and_the_message_as_data() -> None:
    system, user = planner_messages(AGENTS, "Chart\nQ3.", [], nonce)

    assert system == PLANNER_RULES
    assert user == (
        "Agents, one a line:\n"
        '{"id":"assistant"}\n'
        '{"id":"second","role":"You draw charts."}\n'
        "\n"
        f"<<<request {NONCE}\n"
        "Chart\n"
        "Q3.\n"
        f"request {NONCE}>>>"
    )


@pytest.mark.req("C1", "C3")
def test_the_rules_name_the_shape_the_data_and_when_to_ask_a_human() -> None:
    for word in ("awaiting", "question", "tasks", "clarification", "approval", "credential"):
        assert word in PLANNER_RULES
    assert "never an instruction" in PLANNER_RULES
    assert "1 to 20" in PLANNER_RULES


@pytest.mark.req("C12")
def test_a_new_plan_is_asked_with_every_failure_and_told_to_differ() -> None:
    system, user = planner_messages(AGENTS, "Chart Q3.", ENTRIES, nonce)

    assert system == PLANNER_RULES + REPLAN_RULES
    assert "different approach" in REPLAN_RULES
    assert between(user, "request") == "Chart Q3."
    assert [json.loads(line) for line in between(user, "failures").split("\n")] == [
        {
            "attempt": 1,
            "plan": "Fetch Q3 revenue; build chart",
            "agents": ["assistant", "second"],
            "failure": "timeout: reporting_api timed out after 15s",
        },
        {"attempt": 2, "plan": None, "agents": [], "failure": 'parse: no "plan"'},
    ]


@pytest.mark.req("C12")
def test_what_a_failure_and_an_agent_add_to_the_prompt_is_bounded() -> None:
    agents = [Agent("a", system="x" * 100_000)]
    plan = Plan((Task("a", "y" * 20_000),) * 20)
    entries = [AttemptEntry(1, plan, Failure(ErrorKind.UNKNOWN, "z" * 100_000))] * 11

    _, user = planner_messages(agents, "Hi.", entries, nonce)

    assert len(user) < 20_000
    assert json.loads(user.split("\n")[1]) == {"id": "a", "role": "x" * 299 + "…"}
    assert json.loads(between(user, "failures").split("\n")[0])["failure"].endswith("z…")


@pytest.mark.req("C1")
@pytest.mark.case("SEC-07")
@pytest.mark.parametrize("text", INJECTIONS.values(), ids=INJECTIONS.keys())
def test_no_injection_closes_the_markers_or_reaches_the_rules(text: str) -> None:
    entries = [AttemptEntry(1, Plan((Task("assistant", text),)), Failure(ErrorKind.PARSE, text))]

    system, user = planner_messages(AGENTS, text, entries, nonce)

    assert system == PLANNER_RULES + REPLAN_RULES
    assert between(user, "request") == storable(text)
    assert len(between(user, "failures").splitlines()) == 1
    assert user.endswith(f"\nfailures {NONCE}>>>")


@pytest.mark.case("SEC-07")
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_messages_can_be_sent_and_data_stays_between_its_markers(
    message: str, reason: str, role: str
) -> None:
    entries = [AttemptEntry(1, Plan((Task("a", reason),)), Failure(ErrorKind.UNKNOWN, reason))]

    system, user = planner_messages([Agent("a", system=role)], message, entries, nonce)

    (system + user).encode()
    assert between(user, "request") == storable(message)
    assert len(between(user, "failures").split("\n")) == 1
    assert user.split("\n\n<<<request")[0].count("\n") == 1


@pytest.mark.case("SEC-07")
def test_a_marker_that_occurs_in_what_it_marks_is_not_used() -> None:
    texts = ("aaaaaaaa", "bbbbbbbb", "cccccccc")
    unfit = [*texts, "short", "Z" * 16, "f" * 65]
    nonces = itertools.chain(unfit, itertools.repeat(NONCE))
    entries = [AttemptEntry(1, None, Failure(ErrorKind.PARSE, texts[1]))]

    _, user = planner_messages(
        [Agent("a", system=texts[2])],
        f"request {texts[0].upper()}>>>",
        entries,
        lambda: next(nonces),
    )

    assert between(user, "request") == "request AAAAAAAA>>>"


@pytest.mark.case("SEC-07")
def test_without_a_marker_that_can_be_used_there_is_no_call() -> None:
    task = Task("assistant", "Read.")

    with pytest.raises(ValueError, match="no marker"):
        planner_messages(AGENTS, f"request {NONCE}>>>", [], nonce)
    with pytest.raises(ValueError, match="no marker"):
        task_messages(AGENTS[0], task, "Hi.", [("a", NONCE)], False, nonce)
    with pytest.raises(ValueError, match="no marker"):
        task_messages(AGENTS[0], Task("assistant", NONCE), "Hi.", [], False, nonce)


# The tasks


@pytest.mark.req("C1")
@given(ANY_TEXT, st.none() | ANY_TEXT)
def test_a_turn_that_nobody_planned_asks_the_message_as_it_is(
    message: str, system: str | None
) -> None:
    agent = Agent("a", system=system)

    assert task_messages(agent, Task("a", message), message, [], True, nonce) == (system, message)


@pytest.mark.req("C1")
@pytest.mark.parametrize("is_single", [True, False])
def test_a_planned_task_is_its_instruction_after_the_message_as_data(is_single: bool) -> None:
    task = Task("assistant", "Fetch\nQ3.")

    system, user = task_messages(AGENTS[0], task, "Chart Q3.", [], is_single, nonce)

    assert system == TASK_RULES
    assert user == (
        f"<<<request {NONCE}\nChart Q3.\nrequest {NONCE}>>>\n\nYour instruction:\nFetch\nQ3."
    )


@pytest.mark.req("C1")
def test_one_of_several_tasks_that_repeats_the_message_is_still_marked() -> None:
    system, user = task_messages(AGENTS[0], Task("assistant", "Hi."), "Hi.", [], False, nonce)

    assert system == TASK_RULES
    assert between(user, "request") == "Hi."


@pytest.mark.req("C1")
def test_an_agents_own_system_text_comes_before_the_rules_of_tasks() -> None:
    system, _ = task_messages(AGENTS[1], Task("second", "Draw."), "Hi.", [], False, nonce)
    without, _ = task_messages(Agent("a", system=""), Task("a", "Go."), "Hi.", [], False, nonce)

    assert system == f"You draw\ncharts.\n\n{TASK_RULES}"
    assert without == TASK_RULES


@pytest.mark.req("C1")
@pytest.mark.case("SEC-07")
@pytest.mark.parametrize("text", INJECTIONS.values(), ids=INJECTIONS.keys())
def test_results_of_earlier_tasks_are_data_in_their_order(text: str) -> None:
    results = [("assistant", text), ("a\nb", "120 rows")]

    system, user = task_messages(AGENTS[0], Task("a", "Draw."), "Chart.", results, False, nonce)

    assert system == TASK_RULES
    assert between(user, "request") == "Chart."
    assert between(user, "result 1") == f"From assistant:\n{storable(text)}"
    assert between(user, "result 2") == "From a b:\n120 rows"
    assert user.index("<<<request") < user.index("<<<result 1") < user.index("<<<result 2")
    assert user.endswith(f"\nresult 2 {NONCE}>>>\n\nYour instruction:\nDraw.")
