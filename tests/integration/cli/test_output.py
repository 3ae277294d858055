"""Is what a command prints safe for a terminal, whoever wrote it?"""

from __future__ import annotations

import json

import pytest

from service.cli.moments import duration
from service.cli.output import print_json, shown, shown_block

HOSTILE = "a\x1b]0;pwned\x07b\x9b31mc\rd\u202ee\x7f\x00f"


@pytest.mark.parametrize("show", [shown, shown_block])
def test_nothing_that_a_terminal_obeys_gets_through(show: object) -> None:
    text = show(HOSTILE)  # type: ignore[operator]
    assert text.isprintable()
    assert text.startswith(r"a\x1b]0;pwned\x07b\x9b31mc\rd\u202ee\x7f\x00f")


def test_a_line_stays_one_line_and_a_block_keeps_its_lines() -> None:
    assert shown("a\nb\tc") == r"a\nb\tc"
    assert shown_block("a\nb\tc") == "a\nb\tc"


@pytest.mark.parametrize("text", ["", "Grüße", "你好", "\U0001f469\u200d\U0001f4bb", "a\u00a0b"])
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert shown(text) == text
    assert shown_block(text) == text


def test_json_says_the_same_and_has_no_such_character_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"text": HOSTILE + "\ud800"}, indent=None)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"text": HOSTILE + "\ud800"}
    assert printed.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (600_000, "10 min"),
        (10_800_000, "3.0 h"),
        (5 * 86_400_000, "5.0 d"),
    ],
)
def test_a_time_is_said_as_people_say_it(ms: float, text: str) -> None:
    assert duration(ms) == text
