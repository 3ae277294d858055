"""How is the planner asked for a plan, and by which models? (C1, C7)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.escalation import AttemptEntry
from jobs.domain.formation import Agent, Formation
from jobs.domain.models import ModelSpec
from jobs.domain.planner_prompts import planner_messages
from jobs.domain.turn_plan import Plan, Question, plan_schema, read_plan
from jobs.providers.base import Call, Completion, Message
from jobs.worker.turns.tries import Candidate

PLANNER: Final = "planner"
"""What reasons call it."""


def planner_candidates(formation: Formation, default_model: str) -> tuple[Candidate, ...]:
    """The formation's planner model, then the default of the models file."""
    models = dict.fromkeys((formation.planner_model or default_model, default_model))
    return tuple(Candidate(PLANNER, Agent(PLANNER, model), model) for model in models)


def planner_call(
    spec: ModelSpec,
    agents: Sequence[Agent],
    message: str,
    entries: Sequence[AttemptEntry],
    new_nonce: Callable[[], str],
) -> Call:
    """The call that asks for a plan, one that differs from those of `entries`."""
    system, user = planner_messages(agents, message, entries, new_nonce)
    return Call(
        spec.provider_model,
        (Message("system", system), Message("user", user)),
        json_schema=plan_schema(agents),
    )


def plan_in(completion: Completion, agents: Sequence[Agent]) -> Plan | Question:
    """What the planner answered. Servers may ignore a schema, so it is checked here. Raises
    AttemptError (parse), whose message quotes nothing of the answer."""
    try:
        return read_plan(completion.text, agents)
    except ValueError as error:
        message = f"no usable plan: {error}"
        raise AttemptError(
            ErrorKind.PARSE, message, fault=Fault.MALFORMED, usage=completion.usage
        ) from None
