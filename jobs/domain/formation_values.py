"""What may a value of the formation file be? (C4)

Pure. Each reader answers the value, or raises ValueError with a reason for people that does not
repeat it: an address may hold a secret. Nothing is turned into another type.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from jobs.domain.storable_text import storable

ADDRESS_MAX_BYTES: Final = 2_048

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")


def flag(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def text(value: object) -> str:
    """A text that says something and can be stored."""
    if not isinstance(value, str):
        raise ValueError("must be a text; quotes make one of a number")  # noqa: TRY004  # as all
    if not value.strip():
        raise ValueError("must not be empty")
    if storable(value) != value:
        raise ValueError("has a character that can't be stored")
    return value


def short_id(value: object) -> str:
    """An id of a formation or of an agent."""
    written = text(value)
    if not _ID.fullmatch(written):
        raise ValueError("must be 1 to 32 letters, digits and . _ -")
    return written


def web_address(value: object) -> str:
    """An http or https address. Whether it may be posted to is decided when it is."""
    written = text(value)
    if len(written) > ADDRESS_MAX_BYTES:
        raise ValueError(f"must be at most {ADDRESS_MAX_BYTES} bytes")
    if not _is_web_address(written):
        raise ValueError("must be an http:// or https:// address without user and spaces")
    return written


def _is_web_address(written: str) -> bool:
    try:
        parts = urlsplit(written)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # What is before an @ would end up in logs.
    is_plain = written.isascii() and written.isprintable() and " " not in written
    return is_web and is_plain and "@" not in parts.netloc


def attempts(value: object) -> int:
    """How often something is tried."""
    if type(value) is not int or not 1 <= value <= 10:
        raise ValueError("must be a whole number from 1 to 10")
    return value


def factor(value: object) -> float:
    """By how much each pause is longer than the one before."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 10:
        raise ValueError("must be a number from 1 to 10")
    return float(value)
