"""Does a value of the models file have the type that it must have?

Pure. A table answers what fits, notes what does not, and goes on, so that a file with several
mistakes is refused once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

T = TypeVar("T")


class Table:
    """One table of the file: answers values that fit and notes what does not."""

    def __init__(self, where: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.where = where
        self._values = values
        self._problems = problems

    def refuse_others(self, known: frozenset[str]) -> None:
        """Note every key that is not `known`."""
        for key in self._values:
            if key not in known:
                self.note(f"unknown key {key!r}")

    def note(self, problem: str) -> None:
        """Add a problem of this table."""
        self._problems.append(f"{self.where}: {problem}")

    def take(self, key: str, fits: Callable[[Any], bool], expected: str, default: T) -> T:
        """The value of `key`; `default` where it is left out or (noted) does not fit."""
        if key not in self._values:
            return default
        value = self._values[key]
        if not fits(value):
            self.note(f"{key} must be {expected}")
            return default
        return cast("T", value)


def is_base_url(value: Any) -> bool:
    """Whether `value` is an http or https address without user, query or fragment."""
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        has_port_or_none = parts.port is None or parts.port > 0
    except ValueError:
        return False
    # Credentials in an address would end up in logs; a query would be lost.
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_http and is_plain and has_port_or_none and value.isascii() and value.isprintable()


def is_price(value: Any) -> bool:
    """Whether `value` is a whole number, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_bool(value: Any) -> bool:
    """Whether `value` is true or false."""
    return isinstance(value, bool)


def is_text_list(value: Any) -> bool:
    """Whether `value` is a list of texts, none of them empty."""
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    """A test for texts that `pattern` matches from end to end."""
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def is_name(value: Any) -> bool:
    """Whether `value` is a printable text that is not empty."""
    return isinstance(value, str) and value != "" and value.isprintable()
