"""What is the plan of a chat turn? Tasks in their order, each an agent and an instruction (C1).

Pure. A plan comes from the turn's own message or out of a planner's answer, which is checked as
whatever a model says is: by its schema, and by ourselves once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from jobs.domain.fenced_json import unwrapped
from jobs.domain.formation import Agent
from jobs.domain.generation_prompts import collapsed
from jobs.domain.storable_text import storable
from jobs.domain.strict_json import parse_strict

SCHEMA_NAME: Final = "plan"
TASKS_MAX: Final = 20
INSTRUCTION_MAX_CHARS: Final = 20_000
"""Of an instruction or a question of a planner; a caller's message may be longer."""

SUMMARY_MAX_CHARS: Final = 500
SUMMARY_TASK_MAX_CHARS: Final = 120

_LOOKED_AT: Final = 4

NOTHING: Final = "nothing"
"""What a planner awaits that made a plan."""


class Awaiting(StrEnum):
    """What a turn waits for a human to give."""

    CLARIFICATION = "clarification"
    APPROVAL = "approval"
    CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True)
class Task:
    """One step of a plan; `agent` is an id of the formation."""

    agent: str
    instruction: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One or more tasks. The answer of the turn is that of the last one."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """In place of a plan: what has to come from a human first."""

    awaiting: Awaiting
    text: str


def single_task_plan(agents: Sequence[Agent], message: str) -> Plan:
    """The plan of a turn that nobody plans: the formation's first agent answers the message."""
    return Plan((Task(agents[0].id, message),))


def plan_json(plan: Plan, message: str | None = None) -> Mapping[str, Any]:
    """What is kept of a plan; `plan_of` reads it again. An instruction that is the `message` of
    its turn is null: a message is large, and kept already."""
    return {
        "tasks": [
            {
                "agent": task.agent,
                "instruction": None if task.instruction == message else task.instruction,
            }
            for task in plan.tasks
        ]
    }


def plan_of(value: Mapping[str, Any], message: str = "") -> Plan:
    """The plan that `plan_json` wrote in the turn of `message`. KeyError or TypeError where it did
    not write `value`."""
    return Plan(tuple(_kept_task(task, message) for task in value["tasks"]))


def _kept_task(kept: Mapping[str, Any], message: str) -> Task:
    instruction = kept["instruction"]
    return Task(kept["agent"], message if instruction is None else instruction)


def summary(plan: Plan) -> str:
    """A plan in one line of at most 500 characters: its instructions, each at most 120, with
    `…` in place of what is left out (C13)."""
    parts = [one_line(task.instruction, SUMMARY_TASK_MAX_CHARS) for task in plan.tasks]
    return _cut("; ".join(parts), SUMMARY_MAX_CHARS)


def one_line(text: str, max_chars: int) -> str:
    """`text` in one line, each run of white space and control characters one space, and of what
    is longer the beginning and `…`: at most `max_chars` characters in all."""
    # A message may be long: where its beginning fills the line, the rest is not looked at.
    line = collapsed(text[: _LOOKED_AT * max_chars])
    return _cut(line if len(line) > max_chars else collapsed(text), max_chars)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def plan_schema(agents: Sequence[Agent]) -> Mapping[str, Any]:
    """The strict JSON schema of a planner's answer, with its name. Bounds are not in it, as not
    every server knows their words: `read_plan` checks them."""
    task = {
        "agent": {"type": "string", "enum": [agent.id for agent in agents]},
        "instruction": {"type": "string"},
    }
    answer = {
        "awaiting": {"type": "string", "enum": [NOTHING, *Awaiting]},
        "question": {"type": "string"},
        "tasks": {"type": "array", "items": _closed_object(task)},
    }
    return {"name": SCHEMA_NAME, "schema": _closed_object(answer)}


def read_plan(text: str, agents: Sequence[Agent]) -> Plan | Question:
    """What a planner answered: a plan, or the question that has to be answered before.

    The tasks of an answer that asks, and the question of one that doesn't, count for nothing.
    Raises ValueError with a short reason that quotes nothing of `text`: no strict JSON, another
    shape than the schema's, an unknown agent, no task or more than 20, an instruction or question
    that is blank or longer than 20,000 characters.
    """
    answer = _members(
        parse_strict(unwrapped(text)), {"awaiting", "question", "tasks"}, "the answer"
    )
    awaiting, question, tasks = answer["awaiting"], answer["question"], answer["tasks"]
    if not isinstance(tasks, list):
        raise ValueError("tasks is no array")  # noqa: TRY004  # one kind for all that a model does
    if awaiting != NOTHING:
        return Question(_awaiting_of(awaiting), _text_of(question, "the question"))
    if not isinstance(question, str):
        raise ValueError("the question is no text")  # noqa: TRY004  # as above
    if not tasks:
        raise ValueError("there are no tasks")
    if len(tasks) > TASKS_MAX:
        raise ValueError(f"there are more than {TASKS_MAX} tasks")
    known = {agent.id for agent in agents}
    return Plan(tuple(_task_of(task, known, number) for number, task in enumerate(tasks, 1)))


def _task_of(value: Any, known: set[str], number: int) -> Task:
    task = _members(value, {"agent", "instruction"}, f"task {number}")
    agent = task["agent"]
    if not isinstance(agent, str) or agent not in known:
        raise ValueError(f"task {number} names an unknown agent")
    return Task(agent, _text_of(task["instruction"], f"the instruction of task {number}"))


def _awaiting_of(value: Any) -> Awaiting:
    if value not in list(Awaiting):
        raise ValueError("awaiting is none of its values")
    return Awaiting(value)


def _text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is no text")  # noqa: TRY004  # as above
    if not any(char.isprintable() and not char.isspace() for char in value):
        raise ValueError(f"{what} is empty")
    if len(value) > INSTRUCTION_MAX_CHARS:
        raise ValueError(f"{what} is longer than {INSTRUCTION_MAX_CHARS} characters")
    return storable(value)


def _members(value: Any, names: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != names:
        raise ValueError(f"{what} is no object of its keys")
    return value


def _closed_object(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
