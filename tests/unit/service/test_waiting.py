"""What does a `Prefer` header ask for, and how long is a request held by it?"""

from __future__ import annotations

import pytest

from jobs.store.modes import Mode
from service.waiting import Preferences, read_preferences


@pytest.mark.req("A27")
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Preferences()),
        ("wait=10", Preferences(10)),
        ('wait="10"', Preferences(10)),
        ("WAIT = 10", Preferences(10)),
        ("wait=0", Preferences(0)),
        ("wait=61", Preferences(60)),
        ("wait=99999999999999999999", Preferences(60)),
        ("respond-async, wait=10", Preferences(10, respond_async=True)),
        ("return=minimal; foo=1, wait=3; x=y", Preferences(3)),
        ("wait=3, wait=5", Preferences(3)),
        ("wait", Preferences()),
        ("wait=-1", Preferences()),
        ("wait=1.5", Preferences()),
        ("wait=١", Preferences()),
        ("wait=soon, wait=4", Preferences(4)),
        (",,;=", Preferences()),
    ],
)
def test_what_can_be_read_counts_and_the_rest_is_passed_over(
    header: str, expected: Preferences
) -> None:
    assert read_preferences(header) == expected


@pytest.mark.req("A27")
@pytest.mark.parametrize(
    ("mode", "header", "held_s"),
    [
        (Mode.ASYNC, "", 0),
        (Mode.ASYNC, "wait=5", 5),
        (Mode.SYNC, "", 60),
        (Mode.SHADOW, "", 60),
        (Mode.SYNC, "wait=5", 5),
        (Mode.SYNC, "respond-async", 0),
        (Mode.SHADOW, "respond-async, wait=2", 2),
    ],
)
def test_the_mode_decides_where_the_caller_does_not(mode: Mode, header: str, held_s: int) -> None:
    assert read_preferences(header).held_s(mode) == held_s
