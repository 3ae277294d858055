"""How may an operator name an instant?"""

from __future__ import annotations

import click
import pytest

from service.cli.moments import MOMENT

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("90s", NOW_MS - 90_000),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("30d", NOW_MS - 30 * 86_400_000),
        ("4w", NOW_MS - 28 * 86_400_000),
        ("0s", NOW_MS),
        ("999999999d", 0),
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T00:00:00Z", 1_769_817_600_000),
        ("2026-01-31T01:00:00.5+01:00", 1_769_817_600_500),
    ],
)
def test_an_instant_is_absolute_or_so_long_ago(text: str, at_ms: int) -> None:
    assert MOMENT.convert(text, None, None).resolve(NOW_MS) == at_ms


@pytest.mark.parametrize(
    "text", ["", "h", "-2h", "2 h", "2y", "1.5h", "2026-13-01", "2026-01-31T00:00:00", "٣h", "now"]
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="15m, 2h"):
        MOMENT.convert(text, None, None)
