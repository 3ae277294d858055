"""Is this body a JSON object that can be kept? Read strictly, before any schema looks at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge

from jobs.domain.strict_json import parse_strict
from service.errors import (
    BodyMalformedError,
    ContentTypeUnsupportedError,
    FieldError,
    PayloadInvalidError,
)

VALUES_MAX: Final = 10_000
"""A body that is accepted has fewer values than this: its objects are bounded in bytes."""

NAME_SHOWN: Final = 64
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def read_json(request: Request) -> Any:
    """The value of the request's body, in which every text can be stored.

    Raises ContentTypeUnsupportedError, BodyMalformedError, PayloadInvalidError (a NUL or a
    lone surrogate in a text or a name), and werkzeug's RequestEntityTooLarge.
    """
    _check_content_type(request)
    raw = _read_whole(request)
    if not raw:
        raise BodyMalformedError("is empty")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyMalformedError(f"is not UTF-8 at byte {error.start}") from None
    try:
        value = parse_strict(text)
    except ValueError as error:
        # The interpreter's own limits speak of the interpreter.
        known = str(error).startswith("not JSON")
        reason = str(error) if known else "not JSON: a number of too many digits"
        raise BodyMalformedError(f"is {reason}") from None
    errors = [FieldError(path, reason) for path, reason in _unstorable(value)]
    if errors:
        raise PayloadInvalidError(errors)
    return value


def _read_whole(request: Request) -> bytes:
    raw = request.get_data(cache=False)
    # Of a chunked body werkzeug reads as much as is allowed and says nothing of the rest.
    is_chunked = request.content_length is None
    if (
        is_chunked
        and len(raw) == request.max_content_length
        and request.environ["wsgi.input"].read(1)
    ):
        raise RequestEntityTooLarge
    return raw


def shown(name: object) -> str:
    """A name that a caller made up, fit to be shown: short, and text that can be sent."""
    text = str(name)
    if len(text) > NAME_SHOWN:
        text = text[:NAME_SHOWN] + "…"
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "?")


def _check_content_type(request: Request) -> None:
    if request.mimetype != "application/json":
        raise ContentTypeUnsupportedError("must be application/json")
    charset = request.mimetype_params.get("charset", "utf-8").strip("\"'").lower()
    if charset not in {"utf-8", "utf8"}:
        raise ContentTypeUnsupportedError("must be application/json in UTF-8")
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise ContentTypeUnsupportedError("must be application/json without Content-Encoding")


def _unstorable(value: Any) -> Iterator[tuple[str, str]]:
    """Where a text has a NUL or a lone surrogate; walks without recursion, however deep."""
    waiting: list[tuple[str, Any]] = [("", value)]
    seen = 0
    while waiting:
        path, item = waiting.pop()
        seen += 1
        if seen > VALUES_MAX:
            yield "body", f"has more than {VALUES_MAX} values"
            return
        if isinstance(item, str):
            reason = _flaw(item)
            if reason:
                yield path or "body", reason
        elif isinstance(item, list):
            waiting.extend((path, child) for child in item[: VALUES_MAX + 1])
        elif isinstance(item, dict):
            for name, child in item.items():
                below = f"{path}.{shown(name)}" if path else shown(name)
                if _flaw(name):
                    yield below, f"is a name that {_flaw(name)}"
                elif len(below) <= 8 * NAME_SHOWN:
                    waiting.append((below, child))
                else:
                    # A path is for people; what is this deep is refused by its depth.
                    waiting.append((path, child))


def _flaw(text: str) -> str:
    found = _UNSTORABLE.search(text)
    if found is None:
        return ""
    return "contains a NUL" if found[0] == "\x00" else "contains a lone surrogate"
