"""How is a step of a workflow submitted, and how is it shown? (B23-B33)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from marshmallow import Schema, ValidationError, fields, post_load, validate, validates_schema

from jobs.delivery.address_guard import URL_MAX_BYTES
from jobs.domain.canonical_json import canonical_json
from jobs.domain.generation_codes import COPY
from jobs.domain.states import State
from jobs.domain.step import TEMPLATE_MAX_BYTES, OnError, StepMode
from jobs.domain.step_variables import VariableRow
from jobs.store.steps import PARKED, StepView
from service.preview import FAILED, SUCCEEDED, TIMED_OUT, Trial
from service.schemas.fields import (
    EntityId,
    IdempotencyKey,
    Instant,
    JsonObject,
    RequestSchema,
    Text,
    ViewSchema,
    at_most_bytes,
)
from service.schemas.generations import FailureSchema, GenerationRequestSchema
from service.step_submission import StepSubmission

GLOBALS_MAX_BYTES: Final = 65_536
GLOBALS_MAX_DEPTH: Final = 16
VARIABLES_MAX_BYTES: Final = 5_120
ROWS_MAX: Final = 100
PATH_MAX_CHARS: Final = 80
KEY_MAX_CHARS: Final = 200
STEP_STATES: Final = (
    *(State.QUEUED, State.RUNNING, PARKED),
    *(State.SUCCEEDED, State.FAILED, State.CANCELLED),
)
CONTINUE: Final = "continue"
STOP: Final = "stop"

_OBJECT_MESSAGES: Final[dict[str, Any]] = {
    "required": "is missing",
    "null": "must not be null; leave it out",
    "type": "must be a JSON object",
}
_SHARED: Final = GenerationRequestSchema().declared_fields
"""What a step asks of its generation is what a generation may be asked for."""


def _one_of(words: type[OnError | StepMode]) -> validate.OneOf:
    values = [word.value for word in words]
    return validate.OneOf(values, error=f"must be one of {', '.join(values)}")


def _part(max_bytes: int, description: str) -> JsonObject:
    return JsonObject(
        max_bytes=max_bytes,
        max_depth=GLOBALS_MAX_DEPTH - 1,
        metadata={"description": description},
    )


class Rows(fields.List[VariableRow]):
    """Rows of `output_variable`."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        "invalid": "must be a JSON array",
        "null": "must not be null; leave it out",
    }


class StepInputsSchema(RequestSchema):
    """The inputs of the template `template-workflow-llm`."""

    prompt = Text(
        required=True,
        validate=(
            validate.Length(1, error="must not be empty"),
            at_most_bytes(TEMPLATE_MAX_BYTES),
        ),
        metadata={"description": "Liquid over `globals`; a bare `{` is text.", "example": "Hi."},
    )
    output_fields = _SHARED["output_fields"]
    model = _SHARED["model"]


class GlobalsSchema(RequestSchema):
    """What the prompt may refer to; at most 64 KB as compact JSON, 16 levels deep."""

    person = _part(GLOBALS_MAX_BYTES, "For whom the workflow runs.")
    event = _part(GLOBALS_MAX_BYTES, "What started it.")
    groups = _part(GLOBALS_MAX_BYTES, "The groups of the person.")
    variables = _part(
        VARIABLES_MAX_BYTES,
        "The variables that the workflow declares, with their values now; at most"
        f" {VARIABLES_MAX_BYTES} bytes as compact JSON.",
    )

    @validates_schema(skip_on_field_errors=True)
    def _check_size(self, data: dict[str, Any], **_: Any) -> None:
        if len(canonical_json(data)) > GLOBALS_MAX_BYTES:
            raise ValidationError(f"must be at most {GLOBALS_MAX_BYTES} bytes as compact JSON")


class VariableRowSchema(RequestSchema):
    """A variable, and what of the generation goes into it."""

    key = Text(
        required=True,
        validate=validate.Length(
            1, KEY_MAX_CHARS, error=f"must be 1 to {KEY_MAX_CHARS} characters"
        ),
        metadata={"description": "A declared variable."},
    )
    result_path = Text(
        required=True,
        validate=validate.Length(
            max=PATH_MAX_CHARS, error=f"has at most {PATH_MAX_CHARS} characters"
        ),
        metadata={"description": "`text`, or `fields.` and the name of an output field."},
    )

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> VariableRow:
        return VariableRow(**data)


class StepRequestSchema(RequestSchema):
    """A step of a workflow to run (B26), or to try out (B31, B32)."""

    invocation_id = _SHARED["invocation_id"]
    hog_flow_id = _SHARED["hog_flow_id"]
    inputs = fields.Nested(StepInputsSchema, required=True, error_messages=_OBJECT_MESSAGES)
    globals_ = fields.Nested(
        GlobalsSchema,
        data_key="globals",
        attribute="globals",
        load_default=dict,
        error_messages=_OBJECT_MESSAGES,
    )
    output_variable = Rows(
        fields.Nested(VariableRowSchema, error_messages=_OBJECT_MESSAGES),
        load_default=list,
        validate=validate.Length(max=ROWS_MAX, error=f"has at most {ROWS_MAX} rows"),
        metadata={"description": "A field that has no row here gets that of its own variable."},
    )
    on_error = Text(
        load_default=OnError.ABORT.value,
        validate=_one_of(OnError),
        metadata={"description": "Whether the run stops where the step fails, or goes on."},
    )
    mode = Text(
        load_default=StepMode.LIVE.value,
        validate=_one_of(StepMode),
        metadata={
            "description": "`preview` waits here for a real generation, 25 s at most; `mock`"
            " answers made-up values and costs nothing. Neither stores a step."
        },
    )
    callback_url = Text(
        validate=at_most_bytes(URL_MAX_BYTES),
        metadata={
            "description": "Where the end of a live step is posted, without output. The post is not"
            " signed: look at the step by GET.",
            "maxLength": URL_MAX_BYTES,
        },
    )

    @post_load
    def _build(self, data: dict[str, Any], **_: Any) -> StepSubmission:
        return StepSubmission(
            **data.pop("inputs"),
            output_variable=tuple(data.pop("output_variable")),
            on_error=OnError(data.pop("on_error")),
            mode=StepMode(data.pop("mode")),
            **data,
        )


class StepHeadersSchema(Schema):
    """Headers of a submit."""

    idempotency_key = IdempotencyKey(
        metadata={
            "description": "Makes a live submit repeatable: the same key with the same payload"
            " answers the same step, until 24 hours after its end. The other modes store nothing"
            " and pass it over."
        },
    )


class LogLineSchema(ViewSchema):
    """A line of a run's log."""

    at = Instant(attribute="at_ms")
    text = fields.String()


class _SectionsSchema(ViewSchema):
    """What came of a step: text, fields, and the workflow's variables as they are then."""

    text = fields.String(allow_none=True)
    fields_by_name = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        data_key="fields",
        attribute="fields",
        allow_none=True,
    )
    variables = fields.Dict(keys=fields.String())
    error = fields.Nested(FailureSchema, allow_none=True)
    generation_id = EntityId(allow_none=True)
    log = fields.List(fields.Nested(LogLineSchema))

    def get_attribute(self, obj: Any, attr: str, default: Any) -> Any:
        """Read code and message of a failure."""
        if attr != "error":
            return super().get_attribute(obj, attr, default)
        if obj.code is None:
            return None
        return {"code": obj.code.value, "message": obj.message or COPY[obj.code]}


class _ProgressSchema(ViewSchema):
    """How far a step came; these stand before its sections."""

    id = EntityId()
    state = fields.String(validate=validate.OneOf(STEP_STATES))
    run = fields.String(allow_none=True, validate=validate.OneOf([CONTINUE, STOP, None]))
    on_error = fields.Enum(OnError, by_value=fields.String)
    executions = fields.Integer()
    created_at = Instant(attribute="created_at_ms")
    finished_at = Instant(attribute="finished_at_ms", allow_none=True)


class StepSchema(_SectionsSchema, _ProgressSchema):
    """A step. `text` and `fields` are null unless it succeeded, `error` unless it failed;
    `variables` are those of the submit until it ended. `run` is what the run does next, null
    while the step goes on."""

    def get_attribute(self, obj: StepView, attr: str, default: Any) -> Any:
        """Tell what the run does next (B29)."""
        return _run_of(obj) if attr == "run" else super().get_attribute(obj, attr, default)


class _OutcomeSchema(ViewSchema):
    """How a try ended; these stand before its sections."""

    mode = fields.String(validate=validate.OneOf([StepMode.PREVIEW.value, StepMode.MOCK.value]))
    state = fields.String(validate=validate.OneOf([SUCCEEDED, FAILED, TIMED_OUT]))
    message = fields.String(allow_none=True)


class TrialSchema(_SectionsSchema, _OutcomeSchema):
    """What a preview or a test walk shows. `message` is for the author of a preview whose time
    ran out, which is no failure of the step; null else."""

    def get_attribute(self, obj: Trial, attr: str, default: Any) -> Any:
        """A failure's message is told with its code and nowhere else."""
        if attr == "message" and obj.code is not None:
            return None
        return super().get_attribute(obj, attr, default)


class ChoiceSchema(ViewSchema):
    """A value to pick, and the group that it stands in."""

    value = fields.String()
    label = fields.String()
    group = fields.String()


class InputSchema(ViewSchema):
    """An input of a step, as its panel shows it; `templating` is `liquid` or false."""

    key = fields.String()
    type = fields.String()
    label = fields.String()
    description = fields.String()
    required = fields.Boolean()
    templating = fields.Raw(metadata={"enum": ["liquid", False]})
    searchable = fields.Boolean()
    default = fields.String(allow_none=True)
    choices = fields.List(fields.Nested(ChoiceSchema), allow_none=True)


class StepTemplateSchema(ViewSchema):
    """A step that a builder of workflows may offer (B23)."""

    id = fields.String()
    type = fields.String()
    status = fields.String()
    category = fields.String()
    name = fields.String()
    description = fields.String()
    inputs_schema = fields.List(fields.Nested(InputSchema))
    on_error = fields.Enum(OnError, by_value=fields.String)
    metering = fields.String()
    feature_flag = fields.String()

    def get_attribute(self, obj: Mapping[str, Any], attr: str, default: Any) -> Any:
        """Read a word of the file as what it stands for."""
        value = super().get_attribute(obj, attr, default)
        return OnError(value) if attr == "on_error" else value


def _run_of(step: StepView) -> str | None:
    if step.state == State.SUCCEEDED:
        return CONTINUE
    if step.state == State.FAILED:
        return CONTINUE if step.on_error is OnError.CONTINUE else STOP
    return STOP if step.state == State.CANCELLED else None
