"""Which texts are instants?"""

from __future__ import annotations

import pytest

from service.instants import parse_rfc3339, rfc3339


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01.5z", 1500),
        ("1970-01-01 00:00:00.123456789Z", 123),
        ("1970-01-01T02:00:00.001+02:00", 1),
        ("1969-12-31T22:00:01-02:00", 1000),
        ("0001-01-01T00:00:00Z", 0),
        ("2026-02-28T23:59:59.999Z", 1772323199999),
    ],
)
def test_an_instant_is_read_to_the_millisecond(text: str, at_ms: int) -> None:
    assert parse_rfc3339(text) == at_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z"),
        *("2026-01-01T24:00:00Z", "2026-01-01T00:00:00+25:00", "20260101T000000Z"),
        *("2026-01-01T00:00:00.Z", " 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z\n"),
        *("２026-01-01T00:00:00Z", "2026-W01-1T00:00:00Z", "2026-01-01T00:00Z"),
    ],
)
def test_what_is_none_is_not_guessed_at(text: str) -> None:
    assert parse_rfc3339(text) is None


def test_what_is_shown_is_read_back() -> None:
    for at_ms in (0, 1, 999, 1_772_323_199_999):
        assert parse_rfc3339(rfc3339(at_ms)) == at_ms
