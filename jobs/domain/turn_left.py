"""What does an attempt of a chat turn leave beside the end of its job? (C1-C20)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.domain.escalation import AttemptEntry, ChainEnd, ChainPolicy, ChainState, NextAttempt
from jobs.domain.outcome import Cooldown
from jobs.domain.turn_plan import Question


@dataclass(frozen=True, slots=True)
class EndedChain:
    """A chain that a script has ended just now."""

    request_job_id: str
    state: ChainState
    detail: str


@dataclass(frozen=True, slots=True)
class TurnLeft:
    """What is recorded with the end of an attempt, in the same script.

    `calls` is the usage of each call to a model, whatever became of it; `cooldowns` are the pauses
    that their providers asked of everybody (X15). `entry` is the attempt
    as the report will name it, where it failed. `next` asks for another attempt, which the first
    time begins a chain under `policy`; `end` ends the chain; `question` is what the turn waits
    for.
    """

    calls: tuple[Mapping[str, Any], ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    entry: AttemptEntry | None = None
    next: NextAttempt | None = None
    policy: ChainPolicy | None = None
    end: ChainEnd | None = None
    question: Question | None = None
