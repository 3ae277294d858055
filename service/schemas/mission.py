"""How are changes and events asked for, and how is a change shown? (A20, A21)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marshmallow import Schema, fields, post_load, validate

from jobs.domain.errors import ErrorKind
from jobs.domain.job import Kind
from jobs.domain.states import State
from jobs.store.listing import PromptChange
from jobs.store.records import WaitingOn
from service.schemas.fields import (
    AfterInstant,
    AfterSeq,
    EntityId,
    Instant,
    QueryNumber,
    QuerySchema,
    SinceOrCursor,
    ViewSchema,
)
from service.schemas.jobs import WaitingOnSchema

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class RecentQuery:
    """What `GET /v1/mission/recent` was asked; `since` is None for a first look."""

    since: AfterSeq | AfterInstant | None
    limit: int


class RecentQuerySchema(QuerySchema):
    """Since when, and how many."""

    since = SinceOrCursor(
        metadata={
            "description": "`as_of` of the answer before, or an instant (RFC 3339). With `as_of`"
            " no change is missed; left out, the prompts that changed last are answered."
        }
    )
    limit = QueryNumber(1, LIMIT_MAX, load_default=LIMIT_DEFAULT)

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> RecentQuery:
        return RecentQuery(data.get("since"), data["limit"])


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A changed prompt with what its current job waits on."""

    change: PromptChange
    waiting_on: WaitingOn | None


class ChangeSchema(ViewSchema):
    """A prompt with its current job; merge it by `prompt_id`, show it by `created_at`."""

    prompt_id = EntityId()
    job_id = EntityId(attribute="id")
    kind = fields.Enum(Kind, by_value=fields.String)
    state = fields.Enum(State, by_value=fields.String)
    terminal = fields.Boolean(attribute="is_terminal")
    attempt = fields.Integer()
    waiting_on = fields.Nested(WaitingOnSchema, allow_none=True)
    response_id = EntityId(
        allow_none=True, metadata={"description": "The prompt's newest response."}
    )
    error_kind = fields.Enum(ErrorKind, by_value=fields.String, allow_none=True)
    supersedes = EntityId(allow_none=True)
    created_by = fields.String()
    created_at = Instant(
        attribute="created_at_ms", metadata={"description": "When the prompt was sent."}
    )
    updated_at = Instant(attribute="updated_at_ms")

    def get_attribute(self, obj: ShownChange, attr: str, default: Any) -> Any:
        """Read what is the prompt's from the change, the rest from its job."""
        if attr == "waiting_on":
            return obj.waiting_on
        of_prompt = {"prompt_id", "response_id", "created_at_ms"}
        source = obj.change if attr in of_prompt else obj.change.job
        return super().get_attribute(source, attr, default)


@dataclass(frozen=True, slots=True)
class Recent:
    """An answer of `GET /v1/mission/recent`."""

    prompts: Sequence[ShownChange]
    as_of: str
    has_more: bool
    gap: bool


class RecentSchema(ViewSchema):
    """What changed, each prompt once, oldest first by `created_at`."""

    prompts = fields.List(fields.Nested(ChangeSchema))
    as_of = fields.String(metadata={"description": "Opaque: pass it as `since` next time."})
    has_more = fields.Boolean(metadata={"description": "Ask again at once: the page was full."})
    gap = fields.Boolean(
        metadata={
            "description": "The store never gave out this `since` (it lost data, or is another):"
            " this is a first look, and prompts that you know may be gone."
        }
    )


class EventsQuerySchema(QuerySchema):
    """Whose events, and from where on."""

    user = fields.String(
        validate=validate.OneOf(["me"], error="must be `me`"),
        metadata={"description": "`me`: only jobs that the key's own user made."},
    )
    last_event_id = fields.String(
        metadata={"description": "As the header Last-Event-ID, which counts before it."}
    )


class EventsHeadersSchema(Schema):
    """Where a client that comes back has been."""

    last_event_id = fields.String(
        data_key="Last-Event-ID",
        metadata={"description": "Resume after this id, or after an `as_of` of mission/recent."},
    )
