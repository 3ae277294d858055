"""Is this text really JSON? Stricter than the standard library about what others send us."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_strict(text: str) -> Any:
    """The value of a JSON text, or ValueError with a message that quotes nothing of it.

    Refused beyond bad syntax: NaN and Infinity, also as an overflowing number; a name that
    occurs twice in an object; nesting and digits beyond the interpreter's own limits.
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_unique_names,
        )
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        # The exception itself carries the whole document.
        raise ValueError(f"not JSON at character {error.pos}") from None


def _refuse_constant(_name: str) -> Any:
    raise ValueError("not JSON: NaN or Infinity")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("not JSON: a number out of range")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("not JSON: a name occurs twice in one object")
    return value
