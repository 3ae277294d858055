"""What does a workflow's step do next, given what the generation service answered? (B26 to B33)

Pure: the instant comes as an argument. A step submits once, parks while its generation runs, and
looks again when it is woken or when a poll is due, whichever comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from jobs.domain.generation_codes import COPY, GenerationCode

POLL_MARKS_S: Final = (60, 180, 300)
"""Seconds after acceptance at which a step looks by itself (B27); the last one ends it."""

LATE_BY_S: Final = 60
"""So much later than its last mark a poll may come."""

EXECUTIONS_MAX: Final = 20
BOUNCES_MAX: Final = 10
RETRY_PAUSES_S: Final = (2, 4, 8)
"""Seconds of pause after the first, second and third transport failure in a row (B30)."""

TEMPLATE_MAX_BYTES: Final = 64 * 1024

LOG_LINES_MAX: Final = 10
"""Of one step, its acceptance included, which `accepted_at_ms` tells and no stored line."""

LOG_LINE_MAX_CHARS: Final = 500

THROTTLED: Final = "throttled"
NO_ANSWER: Final = "no answer"

ACCEPTED_LINE: Final = "The prompt is submitted; waiting for the text."

_STORED_LINES_MAX: Final = LOG_LINES_MAX - 1
_TIMES: Final = re.compile(r"(.*) \((\d{1,9}) times\)", re.DOTALL)
_LEFT_OUT: Final = "Lines are left out here."


class StepMode(StrEnum):
    """How a step is run: for real, inline for its author (B31), or with made-up values (B32)."""

    LIVE = "live"
    PREVIEW = "preview"
    MOCK = "mock"


class OnError(StrEnum):
    """What a failed step does to its run (B29)."""

    ABORT = "abort"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What a step asks of the generation service (B3). `wake_token` is minted once a step and
    goes with every submit of it (B9)."""

    team_id: str
    org_id: str
    invocation_id: str
    hog_flow_id: str | None
    prompt: str
    model: str
    output_fields: Mapping[str, str]
    wake_token: str


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step came: executions (this one included), 429s so far, transport failures in a
    row, and its generation since `accepted_at_ms`, None until it was accepted."""

    executions: int = 1
    bounces: int = 0
    failures: int = 0
    generation_id: str | None = None
    accepted_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The generation is accepted and has not ended."""

    generation_id: str


@dataclass(frozen=True, slots=True)
class Result:
    """The generation succeeded; `envelope` is `{text, fields}` (B14)."""

    generation_id: str
    envelope: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """There will be no result, and asking again does not change that (B5)."""

    code: GenerationCode
    message: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """Too many submits: again in `retry_after_s` seconds (B8)."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing that can be read came back; `reason` holds no address and no content."""

    reason: str


Answer = Pending | Result | Ended | Throttled | NoAnswer


@dataclass(frozen=True, slots=True)
class Park:
    """Do nothing until the wake, or until `until_ms`."""

    progress: StepProgress
    until_ms: int
    line: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Again:
    """Ask the same again after `after_ms`; `why` is THROTTLED or NO_ANSWER."""

    progress: StepProgress
    after_ms: int
    why: str
    line: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The step has its result."""

    progress: StepProgress
    envelope: Mapping[str, Any]
    line: str | None = None


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The step failed; its line names code and message, and no other line does (B29)."""

    progress: StepProgress
    code: GenerationCode
    message: str

    @property
    def line(self) -> str | None:
        """What the run's log says of it."""
        return f"{self.code}: {self.message}"


Decision = Park | Again | Finished | GaveUp


def overdue(progress: StepProgress, now_ms: int) -> GaveUp | None:
    """The end of a step that must not ask any more, before it does: its workers died too often,
    or nobody could look at it until long after its last poll (B27)."""
    accepted_at_ms = now_ms if progress.accepted_at_ms is None else progress.accepted_at_ms
    is_late = now_ms > accepted_at_ms + (POLL_MARKS_S[-1] + LATE_BY_S) * 1000
    return _out_of_time(progress) if is_late or progress.executions > EXECUTIONS_MAX else None


def broken(progress: StepProgress) -> GaveUp:
    """The end of a step whose execution broke in a way that nobody expected."""
    code = GenerationCode.GATEWAY_UNAVAILABLE
    return GaveUp(progress, code, COPY[code])


def decide(progress: StepProgress, answer: Answer, now_ms: int) -> Decision:
    """What follows from `answer`, which this execution got at `now_ms` (B27, B28, B30).

    The last execution that a step has ends it, whatever it would have waited for.
    """
    decision = _decide(progress, answer, now_ms)
    if isinstance(decision, Park | Again) and progress.executions >= EXECUTIONS_MAX:
        return _out_of_time(decision.progress)
    return decision


def _decide(progress: StepProgress, answer: Answer, now_ms: int) -> Decision:
    match answer:
        case NoAnswer(reason=reason):
            return _after_failure(progress, reason)
        case Throttled(retry_after_s=retry_after_s):
            return _after_bounce(replace(progress, failures=0), retry_after_s, now_ms)
        case Pending(generation_id=generation_id):
            return _after_look(replace(progress, failures=0), generation_id, now_ms)
        case Result(generation_id=generation_id, envelope=envelope):
            progress = replace(progress, failures=0, generation_id=generation_id)
            return Finished(progress, envelope, _summary(envelope))
        case Ended(code=code, message=message):
            return GaveUp(replace(progress, failures=0), code, message)


def _after_failure(progress: StepProgress, reason: str) -> Decision:
    tries = progress.failures + 1
    progress = replace(progress, failures=tries)
    if tries > len(RETRY_PAUSES_S):
        return GaveUp(
            progress,
            GenerationCode.GATEWAY_UNAVAILABLE,
            f"The generation service gave no answer, {tries} times in a row: {reason}. Run the"
            " step again later.",
        )
    line = f"No answer of the generation service ({reason}); trying again."
    return Again(progress, RETRY_PAUSES_S[tries - 1] * 1000, NO_ANSWER, line)


def _after_bounce(progress: StepProgress, retry_after_s: float, now_ms: int) -> Decision:
    progress = replace(progress, bounces=progress.bounces + 1)
    if progress.bounces > BOUNCES_MAX:
        return GaveUp(
            progress,
            GenerationCode.THROTTLED,
            "The project submits more generations than it may, and this one was put off"
            f" {BOUNCES_MAX} times. Run the step again later, or spread the runs.",
        )
    after_ms = max(0, math.ceil(retry_after_s * 1000))
    if progress.accepted_at_ms is not None:
        # What was accepted is not waited for any longer because of somebody's Retry-After.
        left_ms = progress.accepted_at_ms + POLL_MARKS_S[-1] * 1000 - now_ms
        if left_ms <= 0:
            return _out_of_time(progress)
        after_ms = min(after_ms, left_ms)
    line = "The project submits too fast; waiting for its turn."
    return Again(progress, after_ms, THROTTLED, line)


def _after_look(progress: StepProgress, generation_id: str, now_ms: int) -> Decision:
    accepted_at_ms = progress.accepted_at_ms
    if accepted_at_ms is None:
        accepted_at_ms = now_ms
    # A clock that was set back would else park the step for as long as it was set back.
    accepted_at_ms = min(accepted_at_ms, now_ms)
    progress = replace(progress, generation_id=generation_id, accepted_at_ms=accepted_at_ms)
    for mark_s in POLL_MARKS_S:
        until_ms = accepted_at_ms + mark_s * 1000
        if until_ms > now_ms:
            return Park(progress, until_ms)
    return _out_of_time(progress)


def _out_of_time(progress: StepProgress) -> GaveUp:
    code = GenerationCode.DEADLINE_EXCEEDED
    return GaveUp(progress, code, COPY[code])


def _summary(envelope: Mapping[str, Any]) -> str:
    text, fields = envelope["text"], envelope["fields"]
    return f"The text is generated: characters {len(text)}, fields {len(fields)}."


@dataclass(frozen=True, slots=True)
class RunLog:
    """The lines of one step in its run's log but that of its acceptance, each with its instant
    in ms (B33)."""

    lines: Sequence[tuple[int, str]] = ()

    def append(self, at_ms: int, text: str) -> tuple[tuple[int, str], ...]:
        """The lines with `text` among them, at most 9 of at most 500 characters.

        What is there already is counted where it stands. Where all lines are taken, those
        before the newest make way: the first ones and the last one are always there.
        """
        text = _one_line(text)
        for position, (first_at_ms, known) in enumerate(self.lines):
            base, times = _counted(known)
            if base == text:
                again = (first_at_ms, f"{base} ({times + 1} times)")
                return (*self.lines[:position], again, *self.lines[position + 1 :])
        if len(self.lines) < _STORED_LINES_MAX:
            return (*self.lines, (at_ms, text))
        kept = self.lines[: _STORED_LINES_MAX - 2]
        return (*kept, (self.lines[-2][0], _LEFT_OUT), (at_ms, text))


def _one_line(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= LOG_LINE_MAX_CHARS else line[: LOG_LINE_MAX_CHARS - 1] + "…"


def _counted(line: str) -> tuple[str, int]:
    """A line without the count of how often it occurred, and that count."""
    found = _TIMES.fullmatch(line)
    return (found.group(1), int(found.group(2))) if found else (line, 1)
