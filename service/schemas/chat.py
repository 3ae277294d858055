"""How is a message sent, and how is what came of it shown? (C1, C8, C9)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from marshmallow import Schema, fields, post_load, validate

from jobs.delivery.address_guard import URL_MAX_BYTES
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import Delivery
from jobs.domain.turn_plan import Awaiting
from jobs.store.turns import RequestStatus
from service.chat_submission import ChatSubmission
from service.request_views import ESCALATED
from service.schemas.fields import (
    IdempotencyKey,
    RequestSchema,
    Text,
    ViewSchema,
    at_most_bytes,
    not_blank,
)
from service.schemas.problems import ProblemSchema
from service.schemas.requests import ReportSchema, RequestId, SparseSchema, TurnErrorSchema

STATUSES: Final = (
    ESCALATED,
    *(one.value for one in RequestStatus if one is not RequestStatus.QUEUED),
)


class Flag(fields.Boolean):
    """A JSON true or false: not "yes" or 1."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        "null": "must not be null; leave it out",
        "invalid": "must be true or false",
    }

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> bool:
        del attr, data, kwargs
        if not isinstance(value, bool):
            raise self.make_error("invalid")
        return value


class ChatRequestSchema(RequestSchema):
    """A message to the formation (C1)."""

    message = Text(
        required=True,
        validate=not_blank,
        metadata={
            "description": "What the user says.",
            "minLength": 1,
            "pattern": r"\S",
            "example": "Why is the sky blue?",
        },
    )
    stream = Flag(
        load_default=False,
        metadata={"description": "Answer as Server-Sent Events, while the text is written."},
    )
    webhook_url = Text(
        validate=at_most_bytes(URL_MAX_BYTES),
        metadata={
            "description": "Where the outcome of an escalated turn is posted; the formation's"
            " own where left out.",
            "maxLength": URL_MAX_BYTES,
        },
    )

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> ChatSubmission:
        return ChatSubmission(**data)


class ChatHeadersSchema(Schema):
    """Headers of a message."""

    idempotency_key = IdempotencyKey(
        metadata={
            "description": "Makes the submit repeatable: the same key with the same message and"
            " webhook is the same request, told as it is now, until 24 hours after its end. Keys"
            " are the client's and its user's own."
        },
    )
    prefer = fields.String(
        data_key="Prefer",
        metadata={
            "description": "`wait=N`: answer 202 after N seconds where the turn still runs, in"
            " place of 60; `respond-async`: at once. A stream has no such limit."
        },
    )


class RequestRefSchema(ViewSchema):
    """The request that a message became."""

    id = RequestId()


class TurnMetadataSchema(SparseSchema):
    """What is told beside the answer (C8)."""

    SOMETIMES = frozenset({"awaiting", "report"})

    escalated = fields.Boolean(metadata={"description": "Whether a background chain was begun."})
    request_id = RequestId()
    delivery = fields.Enum(
        Delivery,
        by_value=fields.String,
        allow_none=True,
        metadata={"description": "How its outcome arrives (C10); null unless escalated."},
    )
    awaiting = fields.Enum(
        Awaiting, by_value=fields.String, metadata={"description": "What the question asks for."}
    )
    report = fields.Nested(
        ReportSchema,
        metadata={"description": "Where the chain has ended without an answer since."},
    )


class TurnDataSchema(SparseSchema):
    """The assistant's message; `content` is null while there is none."""

    SOMETIMES = frozenset({"error"})

    role = fields.String(validate=validate.OneOf(["assistant"]))
    content = fields.String(allow_none=True)
    status = fields.String(validate=validate.OneOf(STATUSES))
    metadata = fields.Nested(TurnMetadataSchema)
    error = fields.Nested(
        TurnErrorSchema,
        metadata={"description": "Only in a stream: of a turn that failed and was not escalated."},
    )


class ChatResponseSchema(ViewSchema):
    """The answer to a message, also as the data of a stream's `completed` event (C8, C9)."""

    object = fields.String(validate=validate.OneOf(["chat_response"]))
    type = fields.String(validate=validate.OneOf([f"chat.turn.{status}" for status in STATUSES]))
    success = fields.Boolean(metadata={"description": "False where it failed or was cancelled."})
    request = fields.Nested(RequestRefSchema)
    data = fields.Nested(TurnDataSchema)


class TurnProblemSchema(ProblemSchema):
    """The error of a turn that failed and was not escalated (C3)."""

    request_id = RequestId()
    error_kind = fields.Enum(ErrorKind, by_value=fields.String)
