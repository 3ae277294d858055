"""What is read out of a planner's answer, and what is kept and told of a plan?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.canonical_json import compact_json
from jobs.domain.formation import Agent
from jobs.domain.generation_prompts import collapsed
from jobs.domain.turn_plan import (
    INSTRUCTION_MAX_CHARS,
    TASKS_MAX,
    Awaiting,
    Plan,
    Question,
    Task,
    one_line,
    plan_json,
    plan_of,
    plan_schema,
    read_plan,
    single_task_plan,
    summary,
)

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
AGENTS = (Agent("assistant"), Agent("second", system="You draw."))
TASK = {"agent": "assistant", "instruction": "Read."}
CANARY = "canary-7f"


def answer(**changes: object) -> str:
    return json.dumps({"awaiting": "nothing", "question": "", "tasks": [TASK], **changes})


def plan(*instructions: str) -> Plan:
    return Plan(tuple(Task("assistant", instruction) for instruction in instructions))


@pytest.mark.req("C1")
def test_a_turn_that_nobody_plans_is_the_message_for_the_first_agent() -> None:
    assert single_task_plan(AGENTS, " Hi\n") == Plan((Task("assistant", " Hi\n"),))


@pytest.mark.req("C13")
@given(st.lists(st.builds(Task, st.text(), st.text())).map(lambda tasks: Plan(tuple(tasks))))
def test_a_plan_is_read_as_it_was_written(made: Plan) -> None:
    assert plan_of(json.loads(compact_json(plan_json(made)))) == made


# The summary


@pytest.mark.req("C13")
def test_a_summary_is_the_instructions_in_one_line() -> None:
    made = plan("Fetch  Q3\n revenue", "\tbuild chart ")

    assert summary(made) == "Fetch Q3 revenue; build chart"


@pytest.mark.req("C13")
def test_a_long_instruction_is_cut_to_120_characters() -> None:
    assert summary(plan("x" * 120)) == "x" * 120
    assert summary(plan("x" * 121, "y")) == "x" * 119 + "…; y"
    assert summary(plan("x" * 118 + " " + "y" * 9)) == "x" * 118 + "…"


@pytest.mark.req("C13")
def test_a_summary_of_many_instructions_is_cut_to_500_characters() -> None:
    fitting = plan(*["x" * 98] * 5)  # five of 98 and four times "; "

    assert summary(fitting) == "; ".join(["x" * 98] * 5)
    assert len(summary(plan(*["x" * 98] * 4, "x" * 101))) == 500
    assert len(summary(plan(*["x" * 99] * 20))) == 500
    assert summary(plan(*["x" * 99] * 20)).endswith("x…")


@pytest.mark.req("C13")
@given(st.lists(ANY_TEXT, max_size=25))
def test_a_summary_is_always_one_line_within_its_bound(instructions: list[str]) -> None:
    line = summary(plan(*instructions))

    assert len(line) <= 500
    assert len(line.splitlines()) <= 1
    line.encode()
    assert line == summary(plan(*instructions))


@pytest.mark.req("C13")
@given(st.text(alphabet=" \n\x00ab\ud83d", max_size=90) | ANY_TEXT, st.integers(1, 12))
def test_one_line_is_the_beginning_of_the_whole_text_in_one_line(text: str, max_chars: int) -> None:
    whole, line = collapsed(text), one_line(text, max_chars)

    assert len(line) <= max_chars
    if len(whole) <= max_chars:
        assert line == whole
    else:
        assert line == whole[: max_chars - 1].rstrip() + "…"


# The schema


@pytest.mark.req("C12")
def test_the_schema_is_strict_and_names_the_agents() -> None:
    task = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": ["assistant", "second"]},
            "instruction": {"type": "string"},
        },
        "required": ["agent", "instruction"],
        "additionalProperties": False,
    }
    schema = {
        "name": "plan",
        "schema": {
            "type": "object",
            "properties": {
                "awaiting": {
                    "type": "string",
                    "enum": ["nothing", "clarification", "approval", "credential"],
                },
                "question": {"type": "string"},
                "tasks": {"type": "array", "items": task},
            },
            "required": ["awaiting", "question", "tasks"],
            "additionalProperties": False,
        },
    }
    assert plan_schema(AGENTS) == schema
    assert json.dumps(plan_schema(AGENTS)) == json.dumps(schema)


# The answer


@pytest.mark.req("C1")
def test_an_answer_with_tasks_is_a_plan_in_their_order() -> None:
    tasks = [TASK, {"agent": "second", "instruction": " Draw\nit. "}]

    assert read_plan(answer(tasks=tasks), AGENTS) == Plan(
        (Task("assistant", "Read."), Task("second", " Draw\nit. "))
    )


@pytest.mark.req("C3")
@pytest.mark.parametrize("awaiting", Awaiting)
@pytest.mark.parametrize("tasks", [[], [TASK], [{"agent": 1}]], ids=["none", "some", "bad"])
def test_an_answer_that_awaits_a_human_is_its_question(awaiting: Awaiting, tasks: object) -> None:
    read = read_plan(answer(awaiting=awaiting, question="Which year?", tasks=tasks), AGENTS)

    assert read == Question(awaiting, "Which year?")
    assert isinstance(read, Question)
    assert isinstance(read.awaiting, Awaiting)


@pytest.mark.req("C1")
def test_a_question_beside_a_plan_counts_for_nothing() -> None:
    assert read_plan(answer(question="Shall I?"), AGENTS) == plan("Read.")


@pytest.mark.req("C1")
def test_bounds_are_the_last_that_is_taken() -> None:
    longest = "x" * INSTRUCTION_MAX_CHARS
    most = read_plan(answer(tasks=[TASK] * TASKS_MAX), AGENTS)

    assert most == plan(*["Read."] * 20)
    assert read_plan(answer(tasks=[{**TASK, "instruction": longest}]), AGENTS) == plan(longest)
    assert read_plan(answer(awaiting="approval", question=longest), AGENTS) == Question(
        Awaiting.APPROVAL, longest
    )


@pytest.mark.case("LLM-11")
def test_what_cannot_be_stored_is_replaced() -> None:
    tasks = [{**TASK, "instruction": "a\x00b\ud83dc"}]

    assert read_plan(answer(tasks=tasks), AGENTS) == plan("a\ufffdb\ufffdc")
    assert read_plan(answer(awaiting="approval", question="a\x00?"), AGENTS) == Question(
        Awaiting.APPROVAL, "a\ufffd?"
    )


@pytest.mark.case("LLM-13")
@pytest.mark.parametrize(
    "wrapped", ["```json\n{}\n```", "```\n{}```\n", "\ufeff{}", " \n```JSON {} ```"]
)
def test_one_fence_around_the_whole_answer_and_a_bom_are_taken_off(wrapped: str) -> None:
    assert read_plan(wrapped.replace("{}", answer()), AGENTS) == plan("Read.")


@pytest.mark.req("C12")
@pytest.mark.case("LLM-13", "LLM-17")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        (f"{CANARY} {{}}", "not JSON"),
        (f"Here: {answer()}", "not JSON"),
        (f"{answer()} {CANARY}", "not JSON"),
        (f"```json\n{answer()}\n```\n{CANARY}", "not JSON"),
        (f"```\n{answer()}\n```\n```\n{answer()}\n```", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (answer(question=float("nan")), "NaN"),
        ('{"tasks": [], "tasks": []}', "twice"),
        ("null", "the answer is no object of its keys"),
        (f"[{answer()}]", "the answer is no object of its keys"),
        ("{}", "the answer is no object of its keys"),
        ('{"awaiting": "nothing", "tasks": []}', "the answer is no object of its keys"),
        (answer(canary=CANARY), "the answer is no object of its keys"),
        (answer(tasks={CANARY: 1}), "tasks is no array"),
        (answer(tasks=None, awaiting="approval", question="?"), "tasks is no array"),
        (answer(tasks=[]), "no tasks"),
        (answer(tasks=[TASK] * 21), "more than 20 tasks"),
        (answer(tasks=[TASK, CANARY]), "task 2 is no object of its keys"),
        (answer(tasks=[{"agent": "assistant"}]), "task 1 is no object of its keys"),
        (answer(tasks=[{**TASK, CANARY: 1}]), "task 1 is no object of its keys"),
        (answer(tasks=[TASK, {**TASK, "agent": CANARY}]), "task 2 names an unknown agent"),
        (answer(tasks=[{**TASK, "agent": "Assistant"}]), "task 1 names an unknown agent"),
        (answer(tasks=[{**TASK, "agent": ["assistant"]}]), "task 1 names an unknown agent"),
        (answer(tasks=[{**TASK, "instruction": 1}]), "instruction of task 1 is no text"),
        (answer(tasks=[{**TASK, "instruction": None}]), "instruction of task 1 is no text"),
        (answer(tasks=[{**TASK, "instruction": ""}]), "instruction of task 1 is empty"),
        (answer(tasks=[{**TASK, "instruction": " \n\t\x00"}]), "instruction of task 1 is empty"),
        (answer(tasks=[{**TASK, "instruction": "\u200b\u3000"}]), "instruction of task 1 is empty"),
        (answer(tasks=[TASK, {**TASK, "instruction": "x" * 20_001}]), "task 2 is longer"),
        (answer(awaiting=CANARY), "awaiting is none of its values"),
        (answer(awaiting=None), "awaiting is none of its values"),
        (answer(awaiting=["approval"]), "awaiting is none of its values"),
        (answer(awaiting="approval", question=" "), "the question is empty"),
        (answer(awaiting="approval", question=1), "the question is no text"),
        (answer(awaiting="approval", question="x" * 20_001), "the question is longer"),
        (answer(question=None), "the question is no text"),
    ],
)
def test_anything_else_is_refused_with_a_reason_that_quotes_nothing(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_plan(text, AGENTS)

    assert CANARY not in str(caught.value)
    assert len(str(caught.value)) < 100
    assert caught.value.__cause__ is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT | st.just("assistant"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
LIKE_PLANS = st.fixed_dictionaries(
    {
        "awaiting": st.sampled_from(["nothing", *Awaiting]) | VALUES,
        "question": ANY_TEXT | VALUES,
        "tasks": st.lists(
            st.fixed_dictionaries(
                {
                    "agent": st.sampled_from(["assistant", "second"]) | VALUES,
                    "instruction": ANY_TEXT | VALUES,
                }
            ),
            max_size=3,
        )
        | VALUES,
    }
)


@pytest.mark.req("C12")
@given(LIKE_PLANS)
def test_whatever_comes_back_it_is_a_sound_plan_a_question_or_a_value_error(value: object) -> None:
    try:
        read = read_plan(json.dumps(value), AGENTS)
    except ValueError:
        return
    if isinstance(read, Question):
        assert read.text.strip()
        return
    assert 1 <= len(read.tasks) <= 20
    for task in read.tasks:
        assert task.agent in {"assistant", "second"}
        assert task.instruction.strip()
        task.instruction.encode()


@pytest.mark.case("LLM-17")
@given(ANY_TEXT)
def test_no_text_raises_another_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the kind is all that is promised
        read_plan(text, AGENTS)
