"""What does one execution of a step do? Submit or collect, decide, write it down (B26 to B30).

An execution is short: while the generation runs, the step is parked in the queue until its next
poll or its wake, and holds no worker, slot or connection.
"""

from __future__ import annotations

import secrets
from typing import Final

from jobs.domain.errors import AttemptAbortedError, ErrorKind, StoreUnavailableError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Attempt
from jobs.domain.outcome import Abandoned, Completed, Failed, Outcome, Snooze
from jobs.domain.states import Answer as StoreAnswer
from jobs.domain.step import (
    Again,
    Answer,
    Decision,
    Finished,
    GaveUp,
    OnError,
    Park,
    RunLog,
    StepProgress,
    StepRequest,
    broken,
    decide,
    overdue,
)
from jobs.domain.step_variables import emptied, mapped
from jobs.generation_client import GenerationClient
from jobs.store.steps import LogLine, StepNote, StepResult, Steps, StoredStep
from jobs.worker.attempt import surprise

BUDGET_S: Final = 30.0
"""Wall clock of one execution: a submit takes 5 s at most, a retrieve 3 (B30)."""

STORE_PAUSE_MS: Final = 2_000
PARKED: Final = "parked"

_KIND_OF_CODE: Final = {
    GenerationCode.DEADLINE_EXCEEDED: ErrorKind.TIMEOUT,
    GenerationCode.CAPACITY_UNAVAILABLE: ErrorKind.TIMEOUT,
    GenerationCode.THROTTLED: ErrorKind.RATE_LIMIT,
    GenerationCode.GATEWAY_UNAVAILABLE: ErrorKind.PROVIDER_5XX,
    GenerationCode.MALFORMED_OUTPUT: ErrorKind.PARSE,
}


class _NotOursError(Exception):
    """The step has ended, or another worker has it."""


class StepHandler:
    """Runs executions of steps against `client`; safe to share between threads."""

    def __init__(self, steps: Steps, client: GenerationClient) -> None:
        self._steps = steps
        self._client = client

    @property
    def budget_s(self) -> float:
        """The wall clock of one execution."""
        return BUDGET_S

    def __call__(self, attempt: Attempt) -> Outcome:
        """How this execution ended: parked, again later, or over. It may run twice after a
        crash: the submit is deduplicated, and what was decided stays."""
        try:
            return self._execute(attempt)
        except StoreUnavailableError as error:
            return Snooze(error.reason, after_ms=STORE_PAUSE_MS)
        except _NotOursError as error:
            return Abandoned(str(error))

    def _execute(self, attempt: Attempt) -> Outcome:
        job = attempt.job
        step = self._steps.load(job.id)
        if step is None:
            return Failed(ErrorKind.UNKNOWN, "the record of the step is gone")
        if step.is_decided:
            return _ended(step.code)
        progress = StepProgress(
            executions=step.executions,
            bounces=step.bounces,
            failures=step.failures,
            generation_id=step.generation_id,
            accepted_at_ms=step.accepted_at_ms,
        )
        decision = self._decide(attempt, step, progress)
        self._write(attempt, _note(step, decision))
        match decision:
            case Park(until_ms=until_ms):
                return Snooze(PARKED, after_ms=max(0, until_ms - step.now_ms))
            case Again(after_ms=after_ms, why=why):
                return Snooze(why, after_ms=after_ms)
            case Finished():
                return _ended(None)
            case GaveUp(code=code):
                return _ended(code)

    def _decide(self, attempt: Attempt, step: StoredStep, progress: StepProgress) -> Decision:
        """What follows, asking only where there is still something to ask for."""
        try:
            return overdue(progress, step.now_ms) or decide(
                progress, self._ask(attempt, step), step.now_ms
            )
        except (StoreUnavailableError, AttemptAbortedError, _NotOursError):
            raise
        except Exception as error:
            surprise(attempt.job, error)
            return broken(progress)

    def _write(self, attempt: Attempt, note: StepNote) -> None:
        """Note how far it came, or raise where it is somebody else's by now: nothing may be
        submitted for a step that was cancelled or taken away."""
        word = self._steps.note(attempt.job.id, attempt.token, note)
        if word is not StoreAnswer.OK:
            raise _NotOursError(word)

    def _ask(self, attempt: Attempt, step: StoredStep) -> Answer:
        job, inputs = attempt.job, step.inputs
        if step.generation_id is not None:
            return self._client.retrieve(job.team_id or "", step.generation_id)
        token = step.token
        if token is None:
            # Before anything is sent: a wake may come sooner than the answer to the submit.
            token = f"{job.id}.{secrets.token_urlsafe(24)}"
            self._write(attempt, StepNote(token=token))
        return self._client.submit(
            StepRequest(
                team_id=job.team_id or "",
                org_id=job.org_id,
                invocation_id=inputs.invocation_id,
                hog_flow_id=inputs.hog_flow_id,
                prompt=attempt.prompt_text,
                model=inputs.model,
                output_fields=inputs.output_fields,
                wake_token=token,
            )
        )


def _ended(code: GenerationCode | None) -> Outcome:
    if code is None:
        return Completed()
    kind = _KIND_OF_CODE.get(code, ErrorKind.PROVIDER_4XX)
    return Failed(kind, f"the step ended as {code}")


def _note(step: StoredStep, decision: Decision) -> StepNote:
    progress = decision.progress
    log = RunLog([(line.at_ms, line.text) for line in step.log])
    lines = log.append(step.now_ms, decision.line) if decision.line else ()
    return StepNote(
        bounces=_changed(step.bounces, progress.bounces),
        failures=_changed(step.failures, progress.failures),
        generation_id=progress.generation_id,
        accepted_at_ms=progress.accepted_at_ms,
        forget_token=progress.generation_id is not None and step.generation_id is None,
        log=[LogLine(at_ms, text) for at_ms, text in lines],
        result=_result(step, decision),
    )


def _changed(before: int, now: int) -> int | None:
    return None if before == now else now


def _result(step: StoredStep, decision: Decision) -> StepResult | None:
    inputs = step.inputs
    match decision:
        case Finished(envelope=envelope):
            written = mapped(envelope, inputs.rows, inputs.variables)
            return StepResult(written, envelope=envelope)
        case GaveUp(code=code, message=message):
            goes_on = inputs.on_error is OnError.CONTINUE
            variables = emptied(inputs.rows, inputs.variables) if goes_on else inputs.variables
            return StepResult(variables, code=code, message=message)
        case _:
            return None
