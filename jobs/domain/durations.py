"""How long is a duration that a person wrote: `500ms`, `90s`, `15m`, `2h`, or bare seconds? (C4)"""

from __future__ import annotations

import math
import re
from typing import Final

LONGEST_S: Final = 365 * 86_400.0
SHORTEST_S: Final = 0.001
"""Instants are kept in whole milliseconds: less than one would be no time at all."""

_FORMS: Final = 'like "500ms", "90s", "15m" or "2h", or a number of seconds'
_PART: Final = r"[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h)"
_WRITTEN: Final = re.compile(r"(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)?")
_SEVERAL_PARTS: Final = re.compile(rf"{_PART}(?:\s*{_PART})+")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600}


def duration_s(value: object) -> float:
    """The seconds of `value`: a number is seconds, and so is a text of digits without a unit.
    White space around a text is nothing.

    Raises ValueError, with a reason for people, for whatever else it is, for what is not more
    than 0 or not finite, and for less than a millisecond or more than 365 days.
    """
    seconds = _seconds(value)
    if math.isnan(seconds):
        raise ValueError(f"must be a duration {_FORMS}")
    if seconds <= 0:
        raise ValueError("must be more than 0")
    if seconds < SHORTEST_S:
        raise ValueError("must be at least 1ms")
    if seconds > LONGEST_S:
        raise ValueError("must be at most 365 days")
    return seconds


def _seconds(value: object) -> float:
    """NaN where it is none."""
    # True is an int to Python, and one second to nobody.
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str):
        return math.nan
    text = value.strip()
    if _SEVERAL_PARTS.fullmatch(text):
        raise ValueError("takes one number with one unit: 1h30m is written 90m")
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return math.nan
    number, unit = float(found["number"]), found["unit"] or "s"
    return number / 1_000 if unit == "ms" else number * _UNITS_S[unit]
