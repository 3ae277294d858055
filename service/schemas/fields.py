"""Which values does the API take and give? Strict on load: nothing is turned into another type."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from jobs.domain.canonical_json import canonical_json
from service.instants import parse_rfc3339, rfc3339

_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SHARED_MESSAGES: Final = {
    "required": "is missing",
    "null": "must not be null; leave it out",
    "validator_failed": "is not allowed",
}
UNKNOWN_FIELD: Final = "is not a field of this request"


@dataclass(frozen=True, slots=True)
class AfterSeq:
    """After a number of the event stream."""

    seq: int


@dataclass(frozen=True, slots=True)
class AfterInstant:
    """At or after an instant in ms."""

    at_ms: int


class RequestSchema(Schema):
    """A body that callers send: a JSON object without any other fields."""

    error_messages = {"unknown": UNKNOWN_FIELD, "type": "must be a JSON object"}  # noqa: RUF012  # marshmallow's own way to declare them

    class Meta:
        """Unknown fields are refused by name."""

        unknown = RAISE


class QuerySchema(Schema):
    """The query of an address."""

    error_messages = {"unknown": "is not a parameter of this page"}  # noqa: RUF012  # marshmallow's own way to declare them

    class Meta:
        """Unknown parameters are refused by name."""

        unknown = RAISE


class ViewSchema(Schema):
    """An object that callers get: every field is always there, null where it has no value."""

    class Meta:
        """The document says that there are no other fields."""

        unknown = RAISE

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        """Tell the document that the field is always there."""
        del field_name
        field_obj.required = True


class Text(fields.String):
    """A JSON string."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a text"}  # noqa: RUF012  # marshmallow's own way to declare them


class WholeNumber(fields.Integer):
    """A JSON number without fraction or exponent: not "5", true or 1.0."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a whole number"}  # noqa: RUF012  # marshmallow's own way to declare them

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        del attr, data, kwargs
        if type(value) is not int:
            raise self.make_error("invalid")
        return value


class Number(fields.Float):
    """A JSON number: not "5" or true."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a number"}  # noqa: RUF012  # marshmallow's own way to declare them

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> float:
        del attr, data, kwargs
        try:
            if type(value) in {int, float}:
                return float(value)
        except OverflowError:
            pass  # a whole number beyond what a float holds is as wrong as a text
        raise self.make_error("invalid")


class EntityId(fields.String):
    """The id of a job, prompt or response: a UUID, in lower case once loaded."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a UUID"}  # noqa: RUF012  # marshmallow's own way to declare them

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"format": "uuid", **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> str:
        del attr, data, kwargs
        entity_id = as_entity_id(value) if isinstance(value, str) else None
        if entity_id is None:
            raise self.make_error("invalid")
        return entity_id


class IdempotencyKey(fields.String):
    """The header by which a client names what it asks for, to ask again (X4)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            data_key="Idempotency-Key",
            validate=validate.Regexp(
                r"^[\x21-\x7E]{1,255}$", error="must be 1 to 255 visible ASCII characters"
            ),
            **kwargs,
        )


class QueryNumber(fields.Integer):
    """A whole number from `low` to `high`, in digits."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a whole number"}  # noqa: RUF012  # marshmallow's own way to declare them

    def __init__(self, low: int, high: int, **kwargs: Any) -> None:
        error = "must be a whole number from {min} to {max}"
        super().__init__(validate=validate.Range(low, high, error=error), **kwargs)

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        del attr, data, kwargs
        if not _DIGITS.fullmatch(str(value)):
            raise self.make_error("invalid")
        return int(value)


class Cursor(fields.String):
    """A place in what has happened, made here: opaque to callers, a number inside."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be one of this service"}  # noqa: RUF012  # marshmallow's own way to declare them

    def _deserialize(  # type: ignore[override]  # this text is a number inside
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        del attr, data, kwargs
        if not _DIGITS.fullmatch(str(value)):
            raise self.make_error("invalid")
        return int(value)


class Since(fields.String):
    """An instant in RFC 3339 in a query, in which a plus may have become a space; ms inside."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be an instant of RFC 3339"}  # noqa: RUF012  # marshmallow's own way to declare them

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"format": "date-time", **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)

    def _deserialize(  # type: ignore[override]  # this text is a number inside
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        del attr, data, kwargs
        at_ms = parse_rfc3339(_plus_again(str(value)))
        if at_ms is None:
            raise self.make_error("invalid")
        return at_ms


class SinceOrCursor(fields.String):
    """A cursor of this service, or an instant in RFC 3339."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        **_SHARED_MESSAGES,
        "invalid": "must be an `as_of` of this service, or an instant of RFC 3339",
    }

    def _deserialize(  # type: ignore[override]  # this text is a value of ours inside
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> AfterSeq | AfterInstant:
        if _DIGITS.fullmatch(str(value)):
            return AfterSeq(int(value))
        del attr, data, kwargs
        at_ms = parse_rfc3339(_plus_again(str(value)))
        if at_ms is None:
            raise self.make_error("invalid")
        return AfterInstant(at_ms)


class FutureInstant(fields.String):
    """An instant in RFC 3339, at most `days_ahead` from now; ms inside. The past is now."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be an instant of RFC 3339"}  # noqa: RUF012  # marshmallow's own way to declare them

    def __init__(self, *, days_ahead: int, **kwargs: Any) -> None:
        metadata = {"format": "date-time", **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)
        self._days_ahead = days_ahead

    def _deserialize(  # type: ignore[override]  # this text is a number inside
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        del attr, data, kwargs
        at_ms = parse_rfc3339(value) if isinstance(value, str) else None
        if at_ms is None:
            raise self.make_error("invalid")
        if at_ms > time.time() * 1000 + self._days_ahead * 86_400_000:
            raise ValidationError(f"must be within {self._days_ahead} days from now")
        return max(1, at_ms)


class JsonObject(fields.Dict):
    """An object of any content, at most `max_bytes` as compact UTF-8 JSON and `max_depth` deep."""

    default_error_messages = {**_SHARED_MESSAGES, "invalid": "must be a JSON object"}  # noqa: RUF012  # marshmallow's own way to declare them

    def __init__(self, *, max_bytes: int, max_depth: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._max_bytes = max_bytes
        self._max_depth = max_depth

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        del attr, data, kwargs
        if not isinstance(value, dict):
            raise self.make_error("invalid")
        # The depth first: the size is measured by recursion.
        if is_deeper_than(value, self._max_depth):
            raise ValidationError(f"must be at most {self._max_depth} levels deep")
        if len(canonical_json(value)) > self._max_bytes:
            raise ValidationError(f"must be at most {self._max_bytes} bytes as compact JSON")
        return value


class Instant(fields.String):
    """Milliseconds inside, RFC 3339 in UTC with milliseconds outside; only for answers."""

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"format": "date-time", **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)

    def _serialize(  # type: ignore[override]  # this text is a number inside
        self, value: int | None, attr: str | None, obj: Any, **kwargs: Any
    ) -> str | None:
        del attr, obj, kwargs
        return None if value is None else rfc3339(value)


def as_entity_id(text: str) -> str | None:
    """`text` as the id that is stored, or None where it can't be one."""
    return text.lower() if _UUID.fullmatch(text) else None


def _plus_again(text: str) -> str:
    """The `+` of an offset, which a query that was not quoted spells as a space."""
    return f"{text[:-6]}+{text[-5:]}" if text[-6:-5] == " " else text


def is_deeper_than(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in more than `levels` levels; never recurses."""
    layer = [value]
    for _ in range(levels):
        layer = [
            child
            for item in layer
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in layer)


def at_most_bytes(limit: int) -> Callable[[str], None]:
    """A validator of texts: at most `limit` bytes of UTF-8."""

    def check(text: str) -> None:
        if len(text.encode("utf-8")) > limit:
            raise ValidationError(f"must be at most {limit} bytes")

    return check


def not_blank(text: str) -> None:
    """A validator of texts: something to read is in it."""
    if not text.strip():
        raise ValidationError("must not be empty")
