"""How is a prompt sent, and how is it shown with all that came of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marshmallow import Schema, ValidationError, fields, post_load, validate, validates_schema

from jobs.domain.entities import Response
from jobs.domain.job import (
    MAX_ATTEMPTS_DEFAULT,
    MAX_ATTEMPTS_LIMIT,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
)
from jobs.domain.states import State
from jobs.store.records import PromptView
from service.schemas.fields import (
    EntityId,
    FutureInstant,
    IdempotencyKey,
    Instant,
    JsonObject,
    Number,
    RequestSchema,
    Text,
    ViewSchema,
    WholeNumber,
    at_most_bytes,
    not_blank,
)
from service.schemas.jobs import JobDetailSchema, JobSchema, ShownJob
from service.submission import PRIORITY_WAITED_FOR, PromptSubmission

OBJECT_MAX_BYTES: Final = 4096
OBJECT_MAX_DEPTH: Final = 8
SYSTEM_MAX_BYTES: Final = 8192
MAX_TOKENS_LIMIT: Final = 32_768
NAME_LENGTH: Final = validate.Length(1, 64, error="must be 1 to 64 characters")
SCHEDULE_DAYS_AHEAD: Final = 366
KEEPS: Final = "Kept with the job as a hint."


def _whole(low: int, high: int) -> validate.Range:
    return validate.Range(low, high, error="must be a whole number from {min} to {max}")


class ExecutionOptionsSchema(RequestSchema):
    """How the call to the provider is made; kept with the job as given."""

    model = Text(validate=NAME_LENGTH, metadata={"description": "As `model` beside it."})
    prefer_provider = Text(validate=NAME_LENGTH, metadata={"description": KEEPS})
    depth = WholeNumber(validate=_whole(0, 10), metadata={"description": KEEPS})
    router_model = Text(validate=NAME_LENGTH, metadata={"description": KEEPS})
    max_tokens = WholeNumber(
        validate=_whole(1, MAX_TOKENS_LIMIT),
        metadata={"description": "Most tokens of the answer."},
    )
    temperature = Number(validate=validate.Range(0, 2, error="must be from 0 to 2"))
    system = Text(
        validate=at_most_bytes(SYSTEM_MAX_BYTES),
        metadata={"description": "A system message before the prompt.", "maxLength": 8192},
    )


class PromptRequestSchema(RequestSchema):
    """A prompt to run, and how (A1, A13, A18)."""

    prompt = Text(
        required=True,
        validate=not_blank,
        metadata={
            "description": "What the model gets to read.",
            "minLength": 1,
            "pattern": r"\S",
            "example": "Why is the sky blue?",
        },
    )
    priority = WholeNumber(
        validate=_whole(PRIORITY_MIN, PRIORITY_MAX),
        metadata={
            "description": f"Lower runs first. {PRIORITY_DEFAULT} where left out,"
            f" {PRIORITY_WAITED_FOR} where the request waits for the result."
        },
    )
    max_attempts = WholeNumber(
        load_default=MAX_ATTEMPTS_DEFAULT, validate=_whole(1, MAX_ATTEMPTS_LIMIT)
    )
    model = Text(
        validate=NAME_LENGTH,
        metadata={"description": "An id of the models file; its default where left out."},
    )
    execution_options = fields.Nested(
        ExecutionOptionsSchema,
        error_messages={"null": "must not be null; leave it out", "type": "must be a JSON object"},
    )
    parent_id = EntityId(
        metadata={"description": "The prompt or response that this one continues."},
    )
    correlation_id = EntityId(
        metadata={"description": "The conversation, where it is not the parent's."},
    )
    causation_id = EntityId(
        metadata={"description": "What led to this prompt, where it is not the parent."},
    )
    scheduled_for = FutureInstant(
        days_ahead=SCHEDULE_DAYS_AHEAD,
        attribute="scheduled_for_ms",
        metadata={"description": "Runs then and not before, at most a year ahead; RFC 3339 (A29)."},
    )
    depends_on = EntityId(
        metadata={
            "description": "A job of yours: runs after it succeeded, and fails as `blocked` where"
            " it ends otherwise (A30)."
        },
    )
    metadata = JsonObject(
        max_bytes=OBJECT_MAX_BYTES,
        max_depth=OBJECT_MAX_DEPTH,
        metadata={
            "description": f"Yours: kept and given back; at most {OBJECT_MAX_BYTES} bytes as"
            f" compact JSON, {OBJECT_MAX_DEPTH} levels deep."
        },
    )

    @validates_schema
    def _check_models_agree(self, data: dict[str, Any], **_: Any) -> None:
        inner = data.get("execution_options", {}).get("model")
        if inner and data.get("model", inner) != inner:
            raise ValidationError("names another model than `model`", "execution_options.model")

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> PromptSubmission:
        inner = data.get("execution_options", {}).get("model")
        return PromptSubmission(**{"model": inner, **data})


class SubmitHeadersSchema(Schema):
    """Headers of a submit."""

    idempotency_key = IdempotencyKey(
        metadata={
            "description": "Makes the submit repeatable: the same key with the same payload"
            " answers the same job, until 24 hours after its end."
        },
    )
    prefer = fields.String(
        data_key="Prefer",
        metadata={
            "description": "`wait=N` holds the request until the job has ended, N seconds at"
            " most and never more than 60; `respond-async` answers at once also where the"
            " service is in sync or shadow mode. Leaving early cancels nothing."
        },
    )


class AcceptedSchema(ViewSchema):
    """The receipt of a submit: it is stored."""

    prompt_id = EntityId()
    job_id = EntityId()
    state = fields.Enum(State, by_value=fields.String)


class UsageSchema(ViewSchema):
    """Tokens of the call; null where the provider did not say."""

    prompt_tokens = fields.Integer(allow_none=True)
    completion_tokens = fields.Integer(allow_none=True)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response with the instant at which it was stored, in ms."""

    response: Response
    created_at_ms: int | None


class ResponseSchema(ViewSchema):
    """The answer to a prompt (A19); `cost_usd_micros` is in millionths of a dollar."""

    id = EntityId()
    text = fields.String()
    model = fields.String()
    provider = fields.String()
    provider_request_id = fields.String(allow_none=True)
    finish_reason = fields.String()
    usage = fields.Nested(UsageSchema)
    cost_usd_micros = fields.Integer(allow_none=True)
    source_refs = fields.List(fields.String())
    truth_class = fields.String()
    state_class = fields.String()
    created_at = Instant(attribute="created_at_ms")

    def get_attribute(self, obj: StoredResponse, attr: str, default: Any) -> Any:
        """Read what the response itself holds from there."""
        if attr == "created_at_ms":
            return obj.created_at_ms
        return super().get_attribute(obj.response, attr, default)


class EdgeSchema(ViewSchema):
    """A directed relation between two entities, for example prompt `flows-to` response."""

    source_id = fields.String(data_key="from")
    type = fields.String()
    target_id = fields.String(data_key="to")


@dataclass(frozen=True, slots=True)
class Finished:
    """A prompt whose job has ended while its request waited; `response` is that job's own."""

    shown: ShownJob
    response: StoredResponse | None


class FinishedSchema(ViewSchema):
    """What became of a job: how it ended, and the response where it succeeded."""

    prompt_id = EntityId()
    job_id = EntityId(attribute="id")
    state = fields.Enum(State, by_value=fields.String)
    job = fields.Nested(JobDetailSchema)
    response = fields.Nested(ResponseSchema, allow_none=True)

    def get_attribute(self, obj: Finished, attr: str, default: Any) -> Any:
        """Read the three fields of a receipt from the job."""
        if attr == "job":
            return obj.shown
        source = obj if attr == "response" else obj.shown.job
        return super().get_attribute(source, attr, default)


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A prompt with its jobs as they are shown."""

    view: PromptView
    jobs: Sequence[ShownJob]


class PromptViewSchema(ViewSchema):
    """A prompt, its response or null, its jobs oldest first (A25), its edges."""

    id = EntityId()
    org_id = fields.String()
    created_by = fields.String()
    text = fields.String()
    metadata = fields.Dict()
    parent_id = EntityId(allow_none=True)
    correlation_id = EntityId()
    causation_id = EntityId(allow_none=True)
    created_at = Instant(attribute="created_at_ms")
    response = fields.Nested(ResponseSchema, allow_none=True)
    jobs = fields.List(fields.Nested(JobSchema))
    edges = fields.List(fields.Nested(EdgeSchema))

    def get_attribute(self, obj: ShownPrompt, attr: str, default: Any) -> Any:
        """Read the prompt's own fields from the prompt, the others from the view."""
        if attr == "jobs":
            return obj.jobs
        if attr == "response":
            return stored_response(obj.view)
        source = obj.view if attr == "edges" else obj.view.prompt
        return super().get_attribute(source, attr, default)


def stored_response(view: PromptView) -> StoredResponse | None:
    """The newest response of a prompt, if there is one."""
    if view.response is None:
        return None
    return StoredResponse(view.response, view.response_created_at_ms)
