"""How does an operator name an instant? As RFC 3339, as a day, or as so long ago."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import click

from service.instants import parse_rfc3339

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in ms since 1970, or a time before now in ms; the other one is None."""

    at_ms: int | None = None
    ago_ms: int | None = None

    def resolve(self, now_ms: int) -> int:
        """The instant in ms, never below 0."""
        if self.at_ms is not None:
            return self.at_ms
        return max(0, now_ms - (self.ago_ms or 0))


class MomentType(click.ParamType[Moment]):
    """`2026-01-31T12:00:00Z`, `2026-01-31` (its beginning in UTC), or `30s`, `15m`, `2h`, `30d`,
    `4w` before now."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """The Moment of a text."""
        if isinstance(value, Moment):
            return value
        text = str(value).strip()
        ago = _AGO.fullmatch(text)
        if ago:
            return Moment(ago_ms=int(ago[1]) * _UNIT_MS[ago[2]])
        at_ms = parse_rfc3339(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)
        if at_ms is None:
            self.fail(
                "must be like 2026-01-31T12:00:00Z, 2026-01-31, or 90s, 15m, 2h, 30d ago.",
                param,
                ctx,
            )
        return Moment(at_ms=at_ms)


MOMENT: Final = MomentType()


def duration(ms: float) -> str:
    """A time in ms as people say it: `840 ms`, `12.3 s`, `5 min`, `3.2 h`, `4.0 d`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    for unit_ms, name, digits, below in (
        (1000, "s", 1, 120_000),
        (60_000, "min", 0, 7_200_000),
        (3_600_000, "h", 1, 172_800_000),
    ):
        if ms < below:
            return f"{ms / unit_ms:.{digits}f} {name}"
    return f"{ms / 86_400_000:.1f} d"
