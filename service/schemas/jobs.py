"""How is a job shown?"""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from jobs.domain.errors import ErrorKind
from jobs.domain.job import Job, Kind
from jobs.domain.states import State
from service.schemas.fields import EntityId, Instant, ViewSchema


class TransitionSchema(ViewSchema):
    """One move of a job; `from` is null for the submit that made it."""

    seq = fields.Integer()
    at = Instant(attribute="at_ms")
    verb = fields.String()
    source = fields.Enum(State, by_value=fields.String, data_key="from", allow_none=True)
    target = fields.Enum(State, by_value=fields.String, data_key="state")
    attempt = fields.Integer()
    reason = fields.String()


class JobSchema(ViewSchema):
    """A job (A2): instants by the clock of Redis, null where there was none yet."""

    id = EntityId()
    prompt_id = EntityId()
    kind = fields.Enum(Kind, by_value=fields.String)
    state = fields.Enum(State, by_value=fields.String)
    terminal = fields.Boolean(attribute="is_terminal")
    priority = fields.Integer()
    attempt = fields.Integer()
    max_attempts = fields.Integer()
    execution_options = fields.Dict()
    model = fields.String()
    provider = fields.String()
    worker_claim = fields.String(allow_none=True)
    claimed_at = Instant(attribute="claimed_at_ms", allow_none=True)
    started_at = Instant(attribute="started_at_ms", allow_none=True)
    running_heartbeat_at = Instant(attribute="running_heartbeat_at_ms", allow_none=True)
    finished_at = Instant(attribute="finished_at_ms", allow_none=True)
    run_at = Instant(attribute="run_at_ms", allow_none=True)
    scheduled_for = Instant(attribute="scheduled_for_ms", allow_none=True)
    depends_on = EntityId(allow_none=True)
    response_id = EntityId(allow_none=True)
    error_kind = fields.Enum(ErrorKind, by_value=fields.String, allow_none=True)
    error_message = fields.String(allow_none=True)
    supersedes = EntityId(allow_none=True)
    superseded_by = EntityId(allow_none=True)
    org_id = fields.String()
    created_by = fields.String()
    created_at = Instant(attribute="created_at_ms")
    updated_at = Instant(attribute="updated_at_ms")
    schema_version = fields.Integer()

    def get_attribute(self, obj: Job, attr: str, default: Any) -> Any:
        """Read `provider` and `model` out of the target, which is `provider:model`."""
        if attr in {"provider", "model"}:
            provider, _, model = obj.target.partition(":")
            return provider if attr == "provider" else model
        return super().get_attribute(obj, attr, default)


class JobDetailSchema(JobSchema):
    """A job with its history, oldest move first."""

    history = fields.List(fields.Nested(TransitionSchema))

    def get_attribute(self, obj: Any, attr: str, default: Any) -> Any:
        """Read the job's own fields from the job; `obj` is a JobView."""
        if attr == "history":
            return obj.history
        return super().get_attribute(obj.job, attr, default)
