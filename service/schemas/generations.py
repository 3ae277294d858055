"""How is a generation asked for, and how is it shown? (B3, B4)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from marshmallow import RAISE, Schema, ValidationError, fields, post_load, validate

from jobs.delivery.address_guard import URL_MAX_BYTES
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.output_fields import (
    FIELDS_MAX,
    INSTRUCTION_MAX_CHARS,
    NAME_MAX_CHARS,
    field_problems,
)
from jobs.generation_intake import GenerationSubmission
from jobs.store.generations import GenerationView
from service.schemas.fields import (
    EntityId,
    RequestSchema,
    Text,
    ViewSchema,
    at_most_bytes,
    not_blank,
)
from service.schemas.problems import FieldErrorSchema

NAME_LENGTH: Final = validate.Length(1, 200, error="must be 1 to 200 characters")
STATUSES: Final = ("pending", "succeeded", "failed")
REASON_SHOWN: Final = 200
NAME_PATTERN: Final = (
    r"^[^\x00-\x40\x5B-\x5E\x60\x7B-\xA0]"
    r"[^\x00-\x2C\x2E\x2F\x3A-\x40\x5B-\x5E\x60\x7B-\xA0]*$"
)
"""The names of output fields for the document, exact in ASCII: the dialects of patterns agree on
no class of letters beyond it."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]{16,200}")


def _printable(text: str) -> None:
    if not text.isprintable():
        raise ValidationError("must be printable characters")


def _token(text: str) -> None:
    if not _TOKEN.fullmatch(text):
        raise ValidationError("must be 16 to 200 visible ASCII characters")


class OutputFields(fields.Dict):
    """What to extract: names of variables with an instruction each, in the caller's order."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        "invalid": "must be a JSON object",
        "null": "must not be null; leave it out",
    }

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> dict[str, str]:
        del attr, data, kwargs
        if not isinstance(value, dict):
            raise self.make_error("invalid")
        reasons: dict[str, list[str]] = {}
        for name, reason in field_problems(value):
            # A reason may name another field, which is as long as its caller liked.
            reasons.setdefault(name, []).append(reason[:REASON_SHOWN])
        if reasons:
            raise ValidationError(reasons)
        return value


class WakeSchema(RequestSchema):
    """How who waits is told of the end."""

    token = Text(
        required=True,
        validate=_token,
        metadata={
            "description": "Comes back with the wake event, once: whoever waits knows its own.",
            "pattern": "^[\\x21-\\x7E]{16,200}$",
        },
    )
    url = Text(
        validate=at_most_bytes(URL_MAX_BYTES),
        metadata={
            "description": "Where the end is posted as well, with the token and without output. The"
            " post is not signed: collect the generation by GET.",
            "maxLength": URL_MAX_BYTES,
        },
    )


class GenerationRequestSchema(RequestSchema):
    """A text to generate, and what to extract from it (B3)."""

    invocation_id = Text(
        required=True,
        validate=(NAME_LENGTH, _printable),
        metadata={
            "description": "The run that this is a step of: the trace of all its generations, and"
            " with the payload what makes a submit repeatable.",
        },
    )
    hog_flow_id = Text(
        allow_none=True,
        load_default=None,
        validate=(NAME_LENGTH, _printable),
        metadata={"description": "The workflow, where it is saved."},
    )
    prompt = Text(
        required=True,
        validate=not_blank,
        metadata={"description": "The rendered prompt.", "minLength": 1, "pattern": r"\S"},
    )
    model = Text(
        required=True,
        validate=validate.Length(1, 64, error="must be 1 to 64 characters"),
        metadata={"description": "An id of the models file that has a price."},
    )
    output_fields = OutputFields(
        keys=fields.String(),
        values=fields.String(validate=validate.Length(1, INSTRUCTION_MAX_CHARS)),
        load_default=dict,
        metadata={
            "description": "Names of workflow variables, each with its instruction. A name is"
            " letters, digits, `_` and `-`, begins with a letter or `_`, is none that JavaScript"
            " takes (`constructor`, `prototype`, `__…__`), and reads like no other one.",
            "maxProperties": FIELDS_MAX,
            # apispec passes no propertyNames on, but what is inside allOf.
            "allOf": [
                {"propertyNames": {"maxLength": NAME_MAX_CHARS, "pattern": NAME_PATTERN}},
            ],
        },
    )
    wake = fields.Nested(
        WakeSchema,
        error_messages={"null": "must not be null; leave it out", "type": "must be a JSON object"},
    )

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> GenerationSubmission:
        wake = data.pop("wake", {})
        return GenerationSubmission(**data, wake_token=wake.get("token"), wake_url=wake.get("url"))


class ResultSchema(ViewSchema):
    """The text, and what was extracted from it: a text for each field, empty where it holds
    nothing to extract."""

    text = fields.String()
    fields_by_name = fields.Dict(
        keys=fields.String(), values=fields.String(), data_key="fields", attribute="fields"
    )


class FailureSchema(ViewSchema):
    """Why a generation failed: a code for programs, a sentence for people (B6)."""

    code = fields.String(validate=validate.OneOf([code.value for code in GenerationCode]))
    message = fields.String()


class GenerationSchema(ViewSchema):
    """A generation (B4). `result` is null unless it succeeded, `error` unless it failed."""

    id = EntityId()
    status = fields.String(validate=validate.OneOf(STATUSES))
    result = fields.Nested(ResultSchema, allow_none=True)
    error = fields.Nested(FailureSchema, allow_none=True)

    def get_attribute(self, obj: GenerationView, attr: str, default: Any) -> Any:
        """Read code and message of a failure; the code's own copy where none is stored."""
        if attr == "error":
            if obj.code is None:
                return None
            return {"code": obj.code.value, "message": obj.message or COPY[obj.code]}
        return super().get_attribute(obj, attr, default)


class RefusalSchema(Schema):
    """What is wrong with a request; `errors` is there where fields are to be put right."""

    class Meta:
        """The document says that there are no other fields."""

        unknown = RAISE

    code = fields.String(required=True)
    message = fields.String(required=True)
    errors = fields.List(fields.Nested(FieldErrorSchema))


class RefusedSchema(ViewSchema):
    """A request that made or found no generation."""

    id = EntityId(allow_none=True, metadata={"description": "Always null."})
    status = fields.String(validate=validate.Equal("failed"))
    result = fields.Nested(ResultSchema, allow_none=True, metadata={"description": "Always null."})
    error = fields.Nested(RefusalSchema)
    request_id = fields.String(metadata={"description": "As in the header X-Request-Id."})
