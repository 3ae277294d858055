"""How do the probes answer when all is well?"""

from __future__ import annotations

from marshmallow import fields

from service.schemas.fields import ViewSchema


class HealthSchema(ViewSchema):
    """`status` is always ok; anything else is a problem."""

    status = fields.Constant("ok", metadata={"type": "string", "enum": ["ok"]})


class ReadinessSchema(ViewSchema):
    """`status` is ok or degraded; where no work can be taken the answer is a problem."""

    status = fields.String(metadata={"enum": ["ok", "degraded"]})
