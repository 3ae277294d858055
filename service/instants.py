"""How is an instant shown?"""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_ms: int) -> str:
    """The instant `at_ms` (milliseconds since 1970) as `2026-01-31T12:00:00.123Z`."""
    seconds, millis = divmod(at_ms, 1000)
    instant = datetime.fromtimestamp(seconds, UTC).replace(microsecond=millis * 1000, tzinfo=None)
    return instant.isoformat(timespec="milliseconds") + "Z"
