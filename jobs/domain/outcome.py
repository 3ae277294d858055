"""How can an attempt end? In one of these values, never in an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.domain.billing import Bill
from jobs.domain.entities import Response
from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode

if TYPE_CHECKING:
    from jobs.domain.turn_left import TurnLeft


@dataclass(frozen=True, slots=True)
class Cooldown:
    """A provider asked for a pause: nothing more goes to `target` for `for_ms` (X15)."""

    target: str
    for_ms: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The provider answered; `response` is what gets stored (A19)."""

    response: Response


@dataclass(frozen=True, slots=True)
class Generated:
    """Both passes are done; `envelope` is `{text, fields}` as compact JSON (B14)."""

    envelope: str
    bill: Bill


@dataclass(frozen=True, slots=True)
class Completed:
    """It is done, and what came of it is written down already."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A chat turn has its answer, or the question of what it waits for: then no `response`."""

    response: Response | None
    turn: TurnLeft


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `after_ms` milliseconds; the attempt counts (A10)."""

    kind: ErrorKind
    message: str
    after_ms: int
    cooldown: Cooldown | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Back to the queue for `after_ms` milliseconds; the attempt does not count (A2)."""

    reason: str
    after_ms: int
    bill: Bill | None = None
    turn: TurnLeft | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """No further attempt helps, or none is left. A generation has its `code` (B6) as well, a chat
    turn what its attempt leaves: it may go on in the background."""

    kind: ErrorKind
    message: str
    code: GenerationCode | None = None
    bill: Bill | None = None
    cooldown: Cooldown | None = None
    turn: TurnLeft | None = None


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The lease is no longer ours: nothing may be written, and nothing is."""

    reason: str
    bill: Bill | None = None
    turn: TurnLeft | None = None


Outcome = Succeeded | Generated | Completed | Answered | Retry | Snooze | Failed | Abandoned
