from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.step import (
    Decision,
    Ended,
    GaveUp,
    NoAnswer,
    Pending,
    RunLog,
    StepProgress,
    Throttled,
    decide,
)

pytestmark = pytest.mark.req("B33")

Lines = tuple[tuple[int, str], ...]


def logged(texts: list[str]) -> Lines:
    lines: Lines = ()
    for at_ms, text in enumerate(texts):
        lines = RunLog(lines).append(at_ms, text)
    return lines


def test_lines_come_in_order_each_with_its_instant() -> None:
    assert logged(["a", "b"]) == ((0, "a"), (1, "b"))


def test_a_repeated_line_is_counted_where_it_stands() -> None:
    assert logged(["a", "b", "a", "c", "a"]) == ((0, "a (3 times)"), (1, "b"), (3, "c"))


def test_a_full_log_keeps_its_beginning_and_its_last_line() -> None:
    texts = [f"line {number}" for number in range(40)]
    lines = logged(texts)

    assert [text for _, text in lines[:7]] == texts[:7]
    assert lines[7][1] == "Lines are left out here."
    assert lines[8] == (39, "line 39")


def test_nine_lines_fit_without_any_being_left_out() -> None:
    texts = [f"line {number}" for number in range(9)]

    assert [text for _, text in logged(texts)] == texts


@given(st.lists(st.text(alphabet="ab(1 times)\n", max_size=12), min_size=1, max_size=60))
def test_there_are_never_more_than_9_lines_and_the_last_one_is_among_them(
    texts: list[str],
) -> None:
    lines = logged(texts)

    assert len(lines) <= 9
    final = " ".join(texts[-1].split())
    assert any(text == final or text.startswith(f"{final} (") for _, text in lines)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=2000))
def test_a_line_is_one_printable_line_of_bounded_length(text: str) -> None:
    ((_, line),) = RunLog().append(1, text)

    assert line.isprintable()
    assert len(line) <= 500


def test_a_long_line_is_cut_where_a_reader_sees_it() -> None:
    assert RunLog().append(1, "x" * 501) == ((1, "x" * 499 + "…"),)
    assert RunLog().append(1, "x" * 500) == ((1, "x" * 500),)


@pytest.mark.req("B29")
@pytest.mark.parametrize("bounces", [0, 4, 10])
def test_a_failure_that_waited_and_polled_names_code_and_message_once(bounces: int) -> None:
    lines: Lines = ()
    progress = StepProgress()

    def note(decision: Decision, now_ms: int) -> StepProgress:
        nonlocal lines
        if decision.line:
            lines = RunLog(lines).append(now_ms, decision.line)
        return decision.progress

    for _ in range(bounces):
        progress = note(decide(progress, Throttled(3), 0), 0)
    for reason in ("HTTP 502", "HTTP 503", "no connection"):
        progress = note(decide(progress, NoAnswer(reason), 0), 0)
    for now_ms in (0, 1, 2, 60_000, 180_000):
        progress = note(decide(progress, Pending("g"), now_ms), now_ms)
    code = GenerationCode.THROTTLED if bounces else GenerationCode.MODEL_REFUSED
    last = decide(progress, Ended(code, COPY[code]), 200_000)
    note(last, 200_000)

    assert isinstance(last, GaveUp)
    assert len(lines) <= 9
    whole = "\n".join(text for _, text in lines)
    assert whole.count(code.value) == 1
    assert whole.count(COPY[code]) == 1
    assert lines[-1] == (200_000, f"{code.value}: {COPY[code]}")
    if bounces > 1:
        assert f"({bounces} times)" in whole
