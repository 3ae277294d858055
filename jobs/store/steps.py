"""What is stored of a workflow's step, how far did it come, and who may wake it? (B26 to B33)"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.job import MAX_ATTEMPTS_LIMIT, Kind, NewJob
from jobs.domain.states import Answer, State
from jobs.domain.step import ACCEPTED_LINE, LOG_LINES_MAX, OnError
from jobs.domain.step_variables import VariableRow, emptied, rows_for
from jobs.store import keys
from jobs.store.codec import whole
from jobs.store.connection import store_errors
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts

TARGET: Final = "genqueue:step"
"""The lane of steps; they call no model themselves."""

PRIORITY: Final = 10
PARKED: Final = "parked"

_OF_CODE: Final[Mapping[ErrorKind | None, GenerationCode]] = {
    ErrorKind.STUCK: GenerationCode.DEADLINE_EXCEEDED,
    ErrorKind.TIMEOUT: GenerationCode.DEADLINE_EXCEEDED,
}


class Woken(StrEnum):
    """What became of a wake. REFUSED: the token is not this step's."""

    OK = "OK"
    MISSING = "MISSING"
    ENDED = "WRONG_STATE"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step as submitted, its prompt rendered. `variables` are those of the run by their keys,
    `rows` say which of them are written. Ids are made by the caller. `callback_url` is told once it
    has ended."""

    id: str
    prompt_id: str
    team_id: str
    org_id: str
    invocation_id: str
    hog_flow_id: str | None
    prompt: str
    model: str
    output_fields: Mapping[str, str]
    rows: tuple[VariableRow, ...]
    variables: Mapping[str, Any]
    on_error: OnError
    idempotency_key: str | None = None
    payload_hash: str = ""
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class SubmittedStep:
    """What became of a submit; `replayed` where the idempotency key named an earlier step."""

    step_id: str
    replayed: bool
    ticket_wanted: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a run's log."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What a step was submitted with, but its prompt."""

    invocation_id: str
    hog_flow_id: str | None
    model: str
    output_fields: Mapping[str, str]
    rows: tuple[VariableRow, ...]
    variables: Mapping[str, Any]
    on_error: OnError


@dataclass(frozen=True, slots=True)
class StoredStep:
    """What a running step needs to go on. `token` is clear until the generation was accepted,
    `now_ms` is Redis's clock."""

    inputs: StepInputs
    executions: int
    bounces: int
    failures: int
    generation_id: str | None
    accepted_at_ms: int | None
    token: str | None
    log: tuple[LogLine, ...]
    is_decided: bool
    code: GenerationCode | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class StepView:
    """What a caller gets to see. `state` is that of the job, `parked` where it waits for its
    generation; `variables` are those that were given until it ended, then what came of them."""

    id: str
    team_id: str
    state: str
    on_error: OnError
    generation_id: str | None
    text: str | None
    fields: Mapping[str, str] | None
    variables: Mapping[str, Any]
    code: GenerationCode | None
    message: str | None
    log: tuple[LogLine, ...]
    created_at_ms: int
    finished_at_ms: int | None
    executions: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a step: the envelope of its generation, or code and message; and the
    variables as they are now."""

    variables: Mapping[str, Any]
    envelope: Mapping[str, Any] | None = None
    code: GenerationCode | None = None
    message: str | None = None

    def stored(self) -> Mapping[str, Any]:
        """What is kept of it beside the code."""
        return {
            "variables": self.variables,
            "envelope": self.envelope,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class StepNote:
    """What an execution writes down: None leaves a value as it is."""

    bounces: int | None = None
    failures: int | None = None
    generation_id: str | None = None
    accepted_at_ms: int | None = None
    token: str | None = None
    forget_token: bool = False
    log: Sequence[LogLine] = ()
    result: StepResult | None = None


def token_hash(token: str) -> str:
    """What is kept of a wake token once it was handed over."""
    return base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")


class Steps:
    """Submits, reads, notes and wakes. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts, queue: Queue, *, ticket_cap: int) -> None:
        self._redis = redis
        self._scripts = scripts
        self._queue = queue
        self._ticket_cap = ticket_cap

    def submit(self, new: NewStep) -> SubmittedStep:
        """Store a step and its job in one round trip. Raises IdempotencyKeyReusedError."""
        submitted = self._queue.submit(
            NewJob(
                id=new.id,
                prompt_id=new.prompt_id,
                org_id=new.org_id,
                created_by=f"team:{new.team_id}",
                prompt_text=new.prompt,
                target=TARGET,
                kind=Kind.STEP,
                priority=PRIORITY,
                max_attempts=MAX_ATTEMPTS_LIMIT,
                idempotency_key=new.idempotency_key,
                payload_hash=new.payload_hash,
                team_id=new.team_id,
                step_inputs=_stored_inputs(new),
                target_url=new.callback_url,
            )
        )
        return SubmittedStep(submitted.job_id, submitted.replayed, submitted.ticket_wanted)

    def load(self, step_id: str) -> StoredStep | None:
        """A step as its record has it, in one round trip; None where there is none."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.STEP(step_id))
            pipe.get(keys.STEP_INPUTS(step_id))
            pipe.get(keys.STEP_LOG(step_id))
            pipe.time()
            fields, inputs, log, (seconds, micros) = pipe.execute()
        if inputs is None:
            return None
        return StoredStep(
            inputs=_inputs(inputs),
            executions=whole(fields, "executions") or 0,
            bounces=whole(fields, "bounces") or 0,
            failures=whole(fields, "failures") or 0,
            generation_id=fields.get("generation_id"),
            accepted_at_ms=whole(fields, "accepted_at"),
            token=fields.get("token"),
            log=_lines(log),
            is_decided="decided" in fields,
            code=_code(fields),
            now_ms=seconds * 1000 + micros // 1000,
        )

    def note(self, step_id: str, lease: str, note: StepNote) -> Answer:
        """Write down how far a running step came; only for the holder of its lease."""
        values: dict[str, str | int | None] = {
            "bounces": note.bounces,
            "failures": note.failures,
            "generation_id": note.generation_id,
            "accepted_at": note.accepted_at_ms,
            "token": "" if note.forget_token else note.token,
            "token_hash": token_hash(note.token) if note.token else None,
            "code": note.result.code if note.result else None,
            "decided": 1 if note.result else None,
        }
        word = self._scripts.run(
            "note_step",
            id=step_id,
            token=lease,
            log=compact_json([[line.at_ms, line.text] for line in note.log]) if note.log else "",
            result=compact_json(note.result.stored()) if note.result else "",
            fields=[x for name, v in values.items() if v is not None for x in (name, v)],
        )
        return Answer(word)

    def wake(self, token: str) -> tuple[Woken, bool]:
        """Let the step that `token` belongs to look at its generation now; the second value says
        whether a ticket is wanted. The token names the step; it is compared by its hash, in
        constant time, and counts once (B26)."""
        step_id = token.partition(".")[0]
        if not _is_id(step_id):
            return Woken.MISSING, False
        with store_errors():
            stored = cast("str | None", self._redis.hget(keys.STEP(step_id), "token_hash"))
        presented = token_hash(token)
        if stored is None:
            return Woken.MISSING, False
        if not hmac.compare_digest(stored.encode(), presented.encode()):
            return Woken.REFUSED, False
        word, wanted = self._scripts.run(
            "wake", id=step_id, token_hash=presented, ticket_cap=self._ticket_cap
        )
        return Woken(word), bool(wanted)

    def get(self, step_id: str, team_id: str) -> StepView | None:
        """A step of this team, in one round trip; None where there is none any more."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.STEP(step_id))
            for key in (keys.STEP_INPUTS, keys.STEP_LOG, keys.STEP_RESULT):
                pipe.get(key(step_id))
            pipe.hmget(
                keys.JOB(step_id), "state", "run_at", "created_at", "finished_at", "error_kind"
            )
            fields, inputs, log, result, job = pipe.execute()
        if fields.get("team_id") != team_id or inputs is None or job[0] is None:
            return None
        return _view(step_id, fields, (inputs, log, result), job)


def _view(
    step_id: str,
    fields: Mapping[str, str],
    texts: tuple[str, str | None, str | None],
    job: Sequence[str | None],
) -> StepView:
    state, run_at, created_at, finished_at, error_kind = job
    inputs = _inputs(texts[0])
    result = json.loads(texts[2] or "{}")
    if state != (State.FAILED if "code" in fields else State.SUCCEEDED):
        # What was decided is not how it ended: somebody cancelled it, or its worker died.
        result = {}
    envelope = result.get("envelope") or {}
    code = _code(fields)
    if state == State.FAILED and code is None:
        kind = ErrorKind(error_kind) if error_kind else None
        code = _OF_CODE.get(kind, GenerationCode.GATEWAY_UNAVAILABLE)
    goes_on = state == State.FAILED and inputs.on_error is OnError.CONTINUE
    left = emptied(inputs.rows, inputs.variables) if goes_on else inputs.variables
    log = _log(texts[1], fields)
    message = result.get("message") or (COPY[code] if code else None)
    if state == State.FAILED and "decided" not in fields:
        log = (*log[: LOG_LINES_MAX - 1], LogLine(int(finished_at or 0), f"{code}: {message}"))
    is_parked = state == State.QUEUED and run_at is not None and "generation_id" in fields
    return StepView(
        id=step_id,
        team_id=fields["team_id"],
        state=PARKED if is_parked else str(state),
        on_error=inputs.on_error,
        generation_id=fields.get("generation_id"),
        text=envelope.get("text"),
        fields=envelope.get("fields"),
        variables=result.get("variables", left),
        code=code,
        message=message,
        log=log,
        created_at_ms=int(created_at or 0),
        finished_at_ms=None if finished_at is None else int(finished_at),
        executions=whole(fields, "executions") or 0,
    )


def _stored_inputs(new: NewStep) -> Mapping[str, Any]:
    """What is kept; what most steps have in common is left out."""
    inputs: dict[str, Any] = {"invocation_id": new.invocation_id, "model": new.model}
    if new.hog_flow_id is not None:
        inputs["hog_flow_id"] = new.hog_flow_id
    if new.output_fields:
        inputs["output_fields"] = dict(new.output_fields)
    if new.rows != rows_for(new.output_fields, ()):
        inputs["rows"] = [[row.key, row.result_path] for row in new.rows]
    if new.variables:
        inputs["variables"] = dict(new.variables)
    if new.on_error is not OnError.ABORT:
        inputs["on_error"] = new.on_error
    return inputs


def _inputs(text: str) -> StepInputs:
    stored = json.loads(text)
    output_fields = stored.get("output_fields", {})
    rows = rows_for(output_fields, ())
    if "rows" in stored:
        rows = tuple(VariableRow(key, path) for key, path in stored["rows"])
    return StepInputs(
        invocation_id=stored["invocation_id"],
        hog_flow_id=stored.get("hog_flow_id"),
        model=stored["model"],
        output_fields=output_fields,
        rows=rows,
        variables=stored.get("variables", {}),
        on_error=OnError(stored.get("on_error", OnError.ABORT)),
    )


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _code(fields: Mapping[str, str]) -> GenerationCode | None:
    return GenerationCode(fields["code"]) if "code" in fields else None


def _lines(text: str | None) -> tuple[LogLine, ...]:
    return tuple(LogLine(at_ms, line) for at_ms, line in json.loads(text or "[]"))


def _log(text: str | None, fields: Mapping[str, str]) -> tuple[LogLine, ...]:
    """All lines in their order; that of the acceptance is told by the record, since all parked
    steps have it and most have no other."""
    accepted_at_ms = whole(fields, "accepted_at")
    own = () if accepted_at_ms is None else (LogLine(accepted_at_ms, ACCEPTED_LINE),)
    return tuple(sorted((*_lines(text), *own), key=lambda line: line.at_ms))
