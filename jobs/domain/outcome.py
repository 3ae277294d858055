"""How can an attempt end? In one of these values, never in an exception."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.domain.entities import Response
from jobs.domain.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The provider answered; `response` is what gets stored (A19)."""

    response: Response


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `after_ms` milliseconds; the attempt counts (A10)."""

    kind: ErrorKind
    message: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Snooze:
    """Back to the queue for `after_ms` milliseconds; the attempt does not count (A2)."""

    reason: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """No further attempt helps, or none is left."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The lease is no longer ours: nothing may be written, and nothing is."""

    reason: str


Outcome = Succeeded | Retry | Snooze | Failed | Abandoned
