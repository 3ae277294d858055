"""What is a figure: what was measured, in which unit, and what was wanted of it?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table; `ok` is None where nothing was wanted of it."""

    name: str
    measured: float | str
    unit: str
    wanted: str = ""
    ok: bool | None = None
    note: str = ""


def at_most(name: str, measured: float, unit: str, bound: float, note: str = "") -> Figure:
    """A figure that may not be above `bound`."""
    return Figure(name, measured, unit, f"≤ {shown(bound)}", measured <= bound, note)


def at_least(name: str, measured: float, unit: str, bound: float, note: str = "") -> Figure:
    """A figure that may not be below `bound`."""
    return Figure(name, measured, unit, f"≥ {shown(bound)}", measured >= bound, note)


def noted(name: str, measured: float | str, unit: str, note: str = "") -> Figure:
    """A figure of which nothing is wanted, printed to be read beside the others."""
    return Figure(name, measured, unit, note=note)


def shown(value: float | str) -> str:
    """A measured value as people read it: about three digits that count, thousands apart."""
    if isinstance(value, str):
        return value
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` of all values do not exceed."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
