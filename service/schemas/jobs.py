"""How is a job shown, and how is a list of them asked for?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marshmallow import Schema, fields, post_load

from jobs.domain.errors import ErrorKind
from jobs.domain.job import Job, Kind, Transition
from jobs.domain.states import State
from jobs.store.records import WaitingOn
from service.schemas.fields import (
    Cursor,
    EntityId,
    IdempotencyKey,
    Instant,
    QueryNumber,
    QuerySchema,
    Since,
    ViewSchema,
)

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job with what is told beside its record; `waiting_on` is None unless it waits."""

    job: Job
    waiting_on: WaitingOn | None = None
    history: tuple[Transition, ...] = ()


class TransitionSchema(ViewSchema):
    """One move of a job; `from` is null for the submit that made it."""

    seq = fields.Integer()
    at = Instant(attribute="at_ms")
    verb = fields.String()
    source = fields.Enum(State, by_value=fields.String, data_key="from", allow_none=True)
    target = fields.Enum(State, by_value=fields.String, data_key="state")
    attempt = fields.Integer()
    reason = fields.String()


class WaitingOnSchema(ViewSchema):
    """Why a job waits (X14)."""

    reason = fields.String(
        metadata={
            "description": "`queue`, `org_quota`, `team_slots`, `global_slots`,"
            " `provider_cooldown`, `backoff`, `schedule` or `dependency`."
        }
    )
    until = Instant(attribute="until_ms", allow_none=True)
    ahead = fields.Integer(
        allow_none=True,
        metadata={"description": "Jobs that come first in its lane, counted up to 1,000."},
    )


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
    waiting_on = fields.Nested(
        WaitingOnSchema,
        allow_none=True,
        metadata={"description": "Why the job waits; null unless it is queued."},
    )
    response_id = EntityId(allow_none=True)
    error_kind = fields.Enum(ErrorKind, by_value=fields.String, allow_none=True)
    error_message = fields.String(allow_none=True)
    supersedes = EntityId(allow_none=True)
    superseded_by = EntityId(allow_none=True)
    root_id = EntityId(metadata={"description": "The first job of its chain of retries (X16)."})
    outcome = fields.Enum(
        State,
        by_value=fields.String,
        allow_none=True,
        metadata={"description": "How a superseded job had ended."},
    )
    org_id = fields.String()
    created_by = fields.String()
    created_at = Instant(attribute="created_at_ms")
    updated_at = Instant(attribute="updated_at_ms")
    schema_version = fields.Integer()

    def get_attribute(self, obj: ShownJob, attr: str, default: Any) -> Any:
        """Read `provider` and `model` out of the target, which is `provider:model`."""
        if attr in {"provider", "model"}:
            provider, _, model = obj.job.target.partition(":")
            return provider if attr == "provider" else model
        source = obj if attr in {"waiting_on", "history"} else obj.job
        return super().get_attribute(source, attr, default)


class JobDetailSchema(JobSchema):
    """A job with its history, oldest move first."""

    history = fields.List(fields.Nested(TransitionSchema))


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What `GET /v1/jobs` was asked: `since` in ms, `cursor` a number, None where left out."""

    states: frozenset[State]
    kinds: frozenset[Kind]
    prompt_id: str | None
    since: int | None
    limit: int
    cursor: int | None


class ListQuerySchema(QuerySchema):
    """Which jobs to list."""

    state = fields.List(
        fields.Enum(
            State,
            by_value=fields.String,
            error_messages={"unknown": "must be one of: {choices}"},
        ),
        metadata={"description": "Only jobs in this state; may be repeated."},
    )
    prompt_id = EntityId(metadata={"description": "Only the jobs of this prompt."})
    kind = fields.List(
        fields.Enum(
            Kind, by_value=fields.String, error_messages={"unknown": "must be one of: {choices}"}
        ),
        metadata={"description": "Only jobs of this kind; may be repeated."},
    )
    since = Since(metadata={"description": "Only jobs that moved at or after this instant."})
    limit = QueryNumber(1, LIMIT_MAX, load_default=LIMIT_DEFAULT)
    cursor = Cursor(metadata={"description": "From `next_cursor` of the page before."})

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> ListQuery:
        return ListQuery(
            states=frozenset(data.get("state", ())),
            kinds=frozenset(data.get("kind", ())),
            prompt_id=data.get("prompt_id"),
            since=data.get("since"),
            limit=data["limit"],
            cursor=data.get("cursor"),
        )


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page of jobs; `next_cursor` is None on the last."""

    jobs: Sequence[ShownJob]
    next_cursor: str | None


class JobListSchema(ViewSchema):
    """A page of jobs, the one that moved last first."""

    jobs = fields.List(fields.Nested(JobSchema))
    next_cursor = fields.String(
        allow_none=True,
        metadata={"description": "Opaque: pass it as `cursor`; null on the last page."},
    )


class RetryHeadersSchema(Schema):
    """Headers of a retry."""

    idempotency_key = IdempotencyKey(
        metadata={
            "description": "Makes the retry repeatable: the same key answers the same new job."
            " Keys of retries are apart from those of submits."
        }
    )
    prefer = fields.String(
        data_key="Prefer",
        metadata={"description": "`wait=N` holds the request until the end of the job."},
    )
