import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.durations import LONGEST_S, duration_s

pytestmark = pytest.mark.req("C4")

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *(("500ms", 0.5), ("90s", 90.0), ("15m", 900.0), ("2h", 7200.0), ("1ms", 0.001)),
        *((90, 90.0), (0.25, 0.25), ("90", 90.0), ("0.25", 0.25), ("1.5h", 5400.0)),
        *(("+5s", 5.0), ("005s", 5.0), (" 90s\n", 90.0), ("31536000", 31_536_000.0)),
    ],
)
def test_a_duration_reads_as_its_seconds(value: object, seconds: float) -> None:
    read = duration_s(value)

    assert read == seconds
    assert type(read) is float


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, [], {}, b"90s", math.nan, "", " ", "s", "ms", "soon", "nan", "inf"),
        *("90 s", "90S", "15M", "5d", "1,5h", ".5s", "5.s", "1e3", "1_000", "0x10", "1:30", "--5s"),
        *("٣s", "９s", "9²", "90s.", "90s\x00", "PT15M", "5s5", "m5"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_forms_that_are(value: object) -> None:
    with pytest.raises(ValueError, match=r'^must be a duration like "500ms", "90s", "15m" or "2h"'):
        duration_s(value)


@pytest.mark.parametrize("value", ["1h30m", "1h 30m", "1m30s", "1.5h20ms", "1h30m10s"])
def test_several_units_are_refused_with_a_way_to_write_it(value: str) -> None:
    with pytest.raises(ValueError, match="one number with one unit: 1h30m is written 90m"):
        duration_s(value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, "0", "-5s", "0ms", -math.inf, -(10**400)])
def test_what_is_not_more_than_nothing_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be more than 0$"):
        duration_s(value)


@pytest.mark.parametrize("value", ["0.9ms", 0.0009, "0.0009s", 5e-324])
def test_less_than_a_millisecond_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be at least 1ms$"):
        duration_s(value)


@pytest.mark.parametrize(
    "value", ["8761h", 31_536_000.5, "31536001s", math.inf, 10**400, "9" * 400, "9" * 5000 + "ms"]
)
def test_more_than_a_year_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be at most 365 days$"):
        duration_s(value)


def test_exactly_a_year_is_taken() -> None:
    assert duration_s("8760h") == duration_s(LONGEST_S) == LONGEST_S


@given(st.floats() | st.integers())
def test_a_number_is_its_seconds_or_refused(value: float) -> None:
    if 0.001 <= value <= LONGEST_S:
        assert duration_s(value) == value
    else:
        with pytest.raises(ValueError, match=r"^must be "):
            duration_s(value)


@given(st.integers(1, 8760), st.sampled_from(sorted(UNITS_S)), st.sampled_from(["", " ", "\t\n"]))
def test_a_text_is_its_number_times_its_unit(number: int, unit: str, around: str) -> None:
    read = duration_s(f"{around}{number}{unit}{around}")

    assert read == pytest.approx(number * UNITS_S[unit], rel=1e-12)


@given(st.floats(0.001, LONGEST_S))
def test_a_number_reads_the_same_as_a_text(number: float) -> None:
    text = f"{number:.6f}"

    assert duration_s(text) == float(text)
    assert duration_s(f"{text}s") == float(text)


@given(
    st.none()
    | st.text()
    | st.from_regex(r"[0-9.+\- ]{0,9}(ms|s|m|h)?[0-9smh]{0,4}", fullmatch=True)
    | st.booleans()
    | st.floats()
    | st.lists(st.integers())
)
def test_anything_at_all_is_a_duration_within_its_bounds_or_a_value_error(value: object) -> None:
    try:
        seconds = duration_s(value)
    except ValueError:
        pass
    else:
        assert 0.001 <= seconds <= LONGEST_S
