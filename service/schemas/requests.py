"""How is a chat request shown, and a day of the captain's log? (C13, C14, C15)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Final

from marshmallow import fields, validate

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState
from jobs.store.turns import LOG_PAGE_MAX, RequestStatus
from service.schemas.fields import Cursor, Instant, QueryNumber, QuerySchema, ViewSchema

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
REQUEST_ID_PATTERN: Final = r"^req_[0-9a-f]{32}$"


class SparseSchema(ViewSchema):
    """An object some of whose fields are there only where they say something."""

    SOMETIMES: ClassVar[frozenset[str]] = frozenset()

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        """Tell the document which fields are always there."""
        field_obj.required = field_name not in self.SOMETIMES


class RequestId(fields.String):
    """The id of a chat request."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(validate=validate.Regexp(REQUEST_ID_PATTERN), **kwargs)


class TurnErrorSchema(ViewSchema):
    """Why a turn failed that was not escalated (C3)."""

    kind = fields.String(validate=validate.OneOf([kind.value for kind in ErrorKind]))
    message = fields.String()


class ReportAttemptSchema(ViewSchema):
    """A failed attempt; the first is the synchronous turn."""

    attempt = fields.Integer()
    kind = fields.String(validate=validate.OneOf(["sync", "async"]))
    plan_summary = fields.String()
    failure_reason = fields.String()


class ReportSchema(ViewSchema):
    """Why there is no answer (C13): recorded facts, nothing of it by a model."""

    state = fields.String(validate=validate.OneOf([state.value for state in ChainState]))
    detail = fields.String()
    request_id = RequestId()
    original_message = fields.String()
    attempts = fields.List(fields.Nested(ReportAttemptSchema))
    what_would_unblock = fields.String()
    wall_time_seconds = fields.Float()


class RequestDataSchema(SparseSchema):
    """How far a request came. `escalated` is there, and true, from the start of its chain."""

    SOMETIMES = frozenset({"escalated", "result", "report", "error", "question"})

    request_id = RequestId()
    user_id = fields.String(allow_none=True)
    status = fields.Enum(RequestStatus, by_value=fields.String)
    escalated = fields.Boolean()
    result = fields.String(metadata={"description": "The answer; where it is `completed`."})
    report = fields.Nested(
        ReportSchema,
        metadata={"description": "Where a chain has ended without an answer."},
    )
    error = fields.Nested(
        TurnErrorSchema, metadata={"description": "Where it failed without a chain."}
    )
    question = fields.String(metadata={"description": "Where it waits for a human."})
    created_at = Instant(attribute="created_at_ms")
    ended_at = Instant(attribute="ended_at_ms", allow_none=True)


class RequestStatusSchema(ViewSchema):
    """A request as a poll sees it (C15)."""

    object = fields.String(validate=validate.OneOf(["request_status"]))
    type = fields.String(validate=validate.OneOf(["request.status.retrieved"]))
    success = fields.Boolean()
    data = fields.Nested(RequestDataSchema)


class Day(fields.Date):
    """A day as `2026-01-31`, and in no other spelling."""

    default_error_messages = {"invalid": "must be a day such as 2026-01-31"}  # noqa: RUF012  # marshmallow's own way to declare them

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> date:
        del attr, data, kwargs
        try:
            if _DAY.fullmatch(str(value)):
                return date.fromisoformat(value)
        except ValueError:
            pass  # such as the 30th of February
        raise self.make_error("invalid")


class CaptainsLogQuerySchema(QuerySchema):
    """Which day, and which page of it."""

    day = Day(
        load_default=lambda: datetime.now(UTC).date(),
        metadata={"description": "A day in UTC; today where left out."},
    )
    limit = QueryNumber(1, LOG_PAGE_MAX, load_default=LOG_PAGE_MAX)
    cursor = Cursor(metadata={"description": "From `next_cursor` of the page before."})


class DecisionSchema(ViewSchema):
    """One decision, on one line."""

    at = Instant(attribute="at_ms")
    request_id = RequestId()
    state = fields.Enum(ChainState, by_value=fields.String)
    decision = fields.String()


class CaptainsLogSchema(ViewSchema):
    """What was given up on a day for this user, oldest first (C14)."""

    object = fields.String(validate=validate.OneOf(["captains_log"]))
    day = fields.Date()
    entries = fields.List(fields.Nested(DecisionSchema))
    next_cursor = fields.String(
        allow_none=True,
        metadata={"description": "Opaque: pass it as `cursor`; null on the last page."},
    )
