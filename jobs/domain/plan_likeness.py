"""Is a new plan another approach, or one that was tried in other words? (C12)

Pure, and of no language: texts are compared by the runs of three characters that occur in them.
What is looked at of a plan is bounded, whatever a planner wrote: all else would be minutes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from jobs.domain.turn_plan import INSTRUCTION_MAX_CHARS, Plan

PLAN_MAX_CHARS: Final = 40_000
"""Of all instructions of a plan together; each has an equal share."""

_GRAM_CHARS: Final = 3

_PILE_MAX: Final = 30
"""Marks on one letter, as in Unicode's stream-safe text. Putting n of them in order takes n * n
steps."""


def is_different(plan: Plan, tried: Sequence[Plan]) -> bool:
    """Whether `plan` differs in meaning from every one of `tried`; where that is empty it does
    (C12).

    Two plans are alike where the same agents work in the same order and at least 0.8 of all
    trigrams of their instructions are in both. So

    - another agent, one more task or one less is another plan, whatever the words: also a task
      that is split in two for the same agent;
    - the order of tasks counts through their agents: one agent's own tasks in another order are
      the same plan;
    - letter case, width, punctuation and white space don't count, digits and symbols do;
    - in a text of a few characters, as in Chinese or a single word, any other character makes
      another plan; texts without a letter, digit or symbol are alike;
    - of the instructions counts what `compared` leaves.
    """
    agents = _agents(plan)
    others = dict.fromkeys(compared(other) for other in tried if _agents(other) == agents)
    if not others:
        return True
    grams = _grams(plan)
    return not any(_are_alike(grams, _grams(other)) for other in others)


def compared(plan: Plan) -> Plan:
    """`plan` with so much of its instructions as counts: the first 20,000 characters, which no
    planner's exceeds, or of more than two tasks each one's share of 40,000."""
    most = _share(plan)
    return Plan(tuple(replace(task, instruction=task.instruction[:most]) for task in plan.tasks))


def _share(plan: Plan) -> int:
    return min(INSTRUCTION_MAX_CHARS, PLAN_MAX_CHARS // max(1, len(plan.tasks)))


def _agents(plan: Plan) -> list[str]:
    return [task.agent for task in plan.tasks]


def _are_alike(one: set[str], other: set[str]) -> bool:
    # Whole numbers, so that exactly 0.8 counts.
    return 5 * len(one & other) >= 4 * len(one | other)


def _grams(plan: Plan) -> set[str]:
    most = _share(plan)
    texts = (_normalised(task.instruction, most) for task in plan.tasks)
    return {gram for text in texts for gram in _grams_of(text)}


def _grams_of(text: str) -> set[str]:
    """The trigrams of `text`, with a space before and after it, so that one letter has one."""
    padded = f" {text} "
    return {padded[at : at + _GRAM_CHARS] for at in range(len(padded) - _GRAM_CHARS + 1)}


def _normalised(text: str, most: int) -> str:
    """What counts of `text`, `most` characters of it before and after: one may become 18."""
    plain = unicodedata.normalize("NFKC", _without_piles(text[:most]))[:most]
    folded = unicodedata.normalize("NFKC", plain.casefold())[:most]
    kept = (char if _counts(char) else " " for char in folded)
    return " ".join("".join(kept).split())


def _without_piles(text: str) -> str:
    """`text` without the marks that follow 30 others on the same letter."""
    kept, pile = [], 0
    for char in text:
        pile = pile + 1 if unicodedata.combining(char) else 0
        if pile <= _PILE_MAX:
            kept.append(char)
    return "".join(kept)


def _counts(char: str) -> bool:
    """Whether it is a letter, a mark on one, a digit or a symbol."""
    return unicodedata.category(char)[0] in "LMNS"
