"""How is an instant shown, and how is one read?"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def rfc3339(at_ms: int) -> str:
    """The instant `at_ms` (milliseconds since 1970) as `2026-01-31T12:00:00.123Z`."""
    seconds, millis = divmod(at_ms, 1000)
    instant = datetime.fromtimestamp(seconds, UTC).replace(microsecond=millis * 1000, tzinfo=None)
    return instant.isoformat(timespec="milliseconds") + "Z"


def parse_rfc3339(text: str) -> int | None:
    """The instant as milliseconds since 1970, what is finer cut off, never below 0; None where
    the text is no RFC 3339 instant with an offset."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, offset = match.groups()
    offset = "+00:00" if offset in {"Z", "z"} else offset
    try:
        seconds = datetime.fromisoformat(f"{day}T{clock}{offset}").timestamp()
    except (ValueError, OverflowError):
        return None
    millis = int(((fraction or "") + "000")[:3])
    return max(0, int(seconds) * 1000 + millis)
