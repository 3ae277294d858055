"""What would a step make, tried out by its author? For real (B31), or with made-up values (B32)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jobs.domain.errors import StoreUnavailableError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.step import OnError, StepMode
from jobs.domain.step_variables import emptied, mapped, mock_envelope
from jobs.generation_intake import GenerationSubmission
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.store.generations import PENDING, GenerationView
from jobs.store.steps import LogLine
from service.errors import NotReadyError
from service.fanout import Fanout, Subscription
from service.generation_submission import accept_generation
from service.step_submission import PreparedStep

PREVIEW_WITHIN_S: Final = 25.0
POLL_EVERY_S: Final = 1.0

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
TIMED_OUT: Final = "preview_timeout"
TIMED_OUT_COPY: Final = (
    "A preview is ended after 25 seconds, and this one had no result by then. In a workflow the"
    " step may take longer. Shorten the prompt, or pick a faster model."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a trial: its three sections `text`, `fields` and `variables` (B31), or `code`
    and `message` of a failure. `state` is succeeded, failed or preview_timeout; the latter has a
    message and no code, since the step did not fail."""

    mode: StepMode
    state: str
    variables: Mapping[str, Any]
    log: tuple[LogLine, ...]
    text: str | None = None
    fields: Mapping[str, str] | None = None
    code: GenerationCode | None = None
    message: str | None = None
    generation_id: str | None = None


@dataclass(slots=True)
class _Awaited:
    """The generation that a place listens for; it has no id before it is submitted."""

    generation_id: str = field(default="")


def mock(step: PreparedStep) -> Trial:
    """Made-up values at once: asks no model, stores nothing, costs nothing (B32)."""
    envelope = mock_envelope(step.submission.output_fields)
    return Trial(
        StepMode.MOCK,
        SUCCEEDED,
        variables=mapped(envelope, step.rows, step.submission.variables),
        log=_log(step),
        text=envelope["text"],
        fields=envelope["fields"],
    )


def preview(
    runtime: Runtime,
    fanout: Fanout,
    identity: Identity,
    step: PreparedStep,
    is_gone: Callable[[], bool],
    *,
    within_s: float = PREVIEW_WITHIN_S,
) -> Trial:
    """Generate for real and wait for it here, `within_s` seconds at most; stores no step (B31).

    The same preview again is the same generation, which is not paid twice. Raises what
    `Intake.submit` does, and StreamsExhaustedError before anything is submitted, where no place
    is left to wait in. One that runs out of time leaves its generation to go on.
    """
    until_s = time.monotonic() + within_s
    awaited = _Awaited()
    place = fanout.subscribe(
        identity.org_id, wanted=lambda event: event.job_id == awaited.generation_id
    )
    with place:
        view = accept_generation(runtime, identity, _generation(step))
        awaited.generation_id = view.id
        view = _when_ended(runtime, place, view, until_s, is_gone)
    return _trial(step, view)


def _when_ended(
    runtime: Runtime,
    place: Subscription,
    view: GenerationView,
    until_s: float,
    is_gone: Callable[[], bool],
) -> GenerationView:
    """The generation as it ended, or pending where time ran out or nobody waits any more."""
    while view.status == PENDING:
        # The look comes first: it may have ended before its events were listened for.
        view = _looked_at(runtime, view)
        left_s = until_s - time.monotonic()
        if view.status != PENDING or left_s <= 0 or is_gone():
            break
        if place.is_over:
            raise NotReadyError("This process is about to stop. Run the same preview again.")
        place.take(min(POLL_EVERY_S, left_s))
    return view


def _looked_at(runtime: Runtime, view: GenerationView) -> GenerationView:
    try:
        return runtime.generations.get(view.id, view.team_id)
    except StoreUnavailableError:
        return view


def _generation(step: PreparedStep) -> GenerationSubmission:
    asked = step.submission
    return GenerationSubmission(
        invocation_id=asked.invocation_id,
        prompt=step.prompt,
        model=asked.model,
        hog_flow_id=asked.hog_flow_id,
        output_fields=asked.output_fields,
    )


def _trial(step: PreparedStep, view: GenerationView) -> Trial:
    given, log = step.submission.variables, _log(step)
    if view.status == PENDING:
        return Trial(
            StepMode.PREVIEW, TIMED_OUT, given, log, message=TIMED_OUT_COPY, generation_id=view.id
        )
    if view.result is None:
        goes_on = step.submission.on_error is OnError.CONTINUE
        return Trial(
            StepMode.PREVIEW,
            FAILED,
            emptied(step.rows, given) if goes_on else given,
            log,
            code=view.code,
            message=view.message,
            generation_id=view.id,
        )
    return Trial(
        StepMode.PREVIEW,
        SUCCEEDED,
        mapped(view.result, step.rows, given),
        log,
        text=view.result["text"],
        fields=view.result["fields"],
        generation_id=view.id,
    )


def _log(step: PreparedStep) -> tuple[LogLine, ...]:
    return (LogLine(time.time_ns() // 1_000_000, f"Prompt: {step.prompt}"),)
