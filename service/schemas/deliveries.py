"""How is a delivery shown, and which ones are asked for? (C17)"""

from __future__ import annotations

from typing import Any, Final

from marshmallow import ValidationError, fields

from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.domain.request_ids import job_id_of, request_id_of
from jobs.store.deliveries import DeliveryView
from service.schemas.fields import EntityId, Instant, QueryNumber, QuerySchema, ViewSchema
from service.schemas.requests import REQUEST_ID_PATTERN, RequestId

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 1_000


def _request_id(text: str) -> None:
    if job_id_of(text) is None:
        raise ValidationError("must be the id of a request")


class DeliveriesQuerySchema(QuerySchema):
    """Which deliveries to list."""

    request_id = fields.String(
        validate=_request_id,
        metadata={"description": "Only those of this request.", "pattern": REQUEST_ID_PATTERN},
    )
    state = fields.Enum(
        DeliveryState,
        by_value=fields.String,
        error_messages={"unknown": "must be one of: {choices}"},
        metadata={"description": "Only those in this state."},
    )
    limit = QueryNumber(1, LIMIT_MAX, load_default=LIMIT_DEFAULT)


class DeliveryTrySchema(ViewSchema):
    """One try: `entry` is the status that the receiver answered, or the word of an error."""

    at = Instant(attribute="at_ms")
    entry = fields.String()
    took_ms = fields.Integer(
        allow_none=True,
        metadata={"description": "Null where whoever tried did not come back."},
    )


class _IdentitySchema(ViewSchema):
    """Which delivery it is, of what; these stand before all else."""

    id = EntityId(metadata={"description": "The header `webhook-id` of every post of it."})
    request_id = RequestId()


class _ProgressSchema(ViewSchema):
    """How far a delivery came."""

    kind = fields.Enum(DeliveryKind, by_value=fields.String)
    state = fields.Enum(DeliveryState, by_value=fields.String)
    url = fields.String(
        allow_none=True, metadata={"description": "Null for the formation's notification channel."}
    )
    tries = fields.Integer()
    created_at = Instant(attribute="created_at_ms")
    due_at = Instant(
        attribute="due_at_ms",
        allow_none=True,
        metadata={"description": "When it is tried next; null once it has ended."},
    )
    gives_up_at = Instant(attribute="gives_up_at_ms")
    ended_at = Instant(attribute="ended_at_ms", allow_none=True)
    log = fields.List(
        fields.Nested(DeliveryTrySchema),
        metadata={"description": "Its newest 20 tries, the last one first."},
    )


class DeliverySchema(_ProgressSchema, _IdentitySchema):
    """An outcome that is, or was, to be posted."""

    def get_attribute(self, obj: DeliveryView, attr: str, default: Any) -> Any:
        """Tell the request by the id that its caller knows, and no address of the operator's."""
        if attr == "request_id":
            return request_id_of(obj.ref)
        if attr == "url" and obj.kind is DeliveryKind.CHANNEL:
            return None
        return super().get_attribute(obj, attr, default)


class DeliveryListSchema(ViewSchema):
    """Deliveries, newest first."""

    deliveries = fields.List(fields.Nested(DeliverySchema))


class _OwnedSchema(ViewSchema):
    """A delivery's id, and whose it is: `owner` is a client or a team, `ref` the job of the
    request, the generation or the step that it tells of."""

    id = fields.String()
    owner = fields.String()
    user = fields.String()
    ref = fields.String()


class OperatorDeliverySchema(_ProgressSchema, _OwnedSchema):
    """A delivery of anybody, for operators."""
