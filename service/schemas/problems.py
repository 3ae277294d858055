"""How does a problem look in the OpenAPI document? (The answers are built in service.problems.)"""

from __future__ import annotations

from marshmallow import fields

from service.schemas.fields import ViewSchema


class FieldErrorSchema(ViewSchema):
    """One thing to put right."""

    field = fields.String(
        metadata={"description": "A dotted path into the body, a header, or `body`."}
    )
    reason = fields.String()


class ProblemSchema(ViewSchema):
    """A problem as RFC 9457 defines it."""

    type = fields.String(metadata={"format": "uri"})
    title = fields.String()
    status = fields.Integer()
    detail = fields.String()
    errors = fields.List(fields.Nested(FieldErrorSchema))
    request_id = fields.String(metadata={"description": "As in the header X-Request-Id."})
