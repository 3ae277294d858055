import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.worker.turns.results import (
    CUT_NOTE,
    RESULT_MAX_CHARS,
    RESULTS_MAX_CHARS,
    handed_on,
)

pytestmark = pytest.mark.req("C1")


def kept(text: str, shown: str) -> int:
    """How many characters of `text` are in `shown`; the rest has to be named."""
    if shown == text:
        return len(text)
    count = next(n for n in range(len(shown), -1, -1) if text[:n] == shown[:n])
    assert shown == text[:count] + CUT_NOTE.format(len(text) - count)
    return count


def test_what_fits_is_handed_on_as_it_is() -> None:
    texts = ("", "Ünïcode 🎉", "x" * RESULT_MAX_CHARS)

    assert handed_on(texts) == texts


def test_no_results_are_handed_on_as_none() -> None:
    assert handed_on(()) == ()


def test_one_result_is_cut_at_its_bound_and_says_what_is_missing() -> None:
    (shown,) = handed_on(["y" * (RESULT_MAX_CHARS + 7)])

    assert shown == "y" * RESULT_MAX_CHARS + "\n[the rest, 7 characters, is left out]"


def test_the_longest_are_cut_first_and_to_the_same_length() -> None:
    texts = ["a" * 90_000, "short", "b" * 80_000, "c" * 70_000, "d" * 10_000]

    shown = handed_on(texts)

    assert (shown[1], shown[4]) == (texts[1], texts[4])
    lengths = [kept(text, part) for text, part in zip(texts, shown, strict=True)]
    assert sum(lengths) <= RESULTS_MAX_CHARS
    assert max(lengths) - min(lengths[0], lengths[2], lengths[3]) <= 1


@given(st.lists(st.integers(0, 300_000), max_size=20))
def test_together_they_never_exceed_the_bound_and_use_it_up(lengths: list[int]) -> None:
    texts = [chr(97 + position) * length for position, length in enumerate(lengths)]

    shown = handed_on(texts)

    counts = [part.split("\n")[0].count(part[:1]) if part else 0 for part in shown]
    assert all(count <= RESULT_MAX_CHARS for count in counts)
    assert sum(counts) <= RESULTS_MAX_CHARS
    fitting = [min(length, RESULT_MAX_CHARS) for length in lengths]
    if sum(fitting) > RESULTS_MAX_CHARS:
        assert sum(counts) > RESULTS_MAX_CHARS - len(texts)
    else:
        assert counts == fitting
