from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.outcome import Failed, Retry
from jobs.domain.retry import RETRY_AFTER_MAX_S, backoff_s, decide, parse_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RETRYABLE = ["timeout", "rate_limit", "provider_5xx", "worker_crash", "unknown"]
FINAL = ["provider_4xx", "parse", "auth", "stuck", "migration", "blocked"]


def least(_spread_s: float) -> float:
    return 0.0


def most(spread_s: float) -> float:
    return spread_s


def evenly(of: int) -> Callable[[float], float]:
    """A jitter that walks through its spread in `of` steps."""
    steps = iter(range(of))
    return lambda spread_s: spread_s * next(steps) / of


@pytest.mark.req("A9")
@pytest.mark.parametrize("kind", RETRYABLE)
def test_a_retryable_failure_is_tried_again(kind: str) -> None:
    assert isinstance(decide(AttemptError(ErrorKind(kind), "m"), 1, 3, least, "p:m"), Retry)


@pytest.mark.req("A9")
@pytest.mark.case("LLM-03")
@pytest.mark.parametrize("kind", FINAL)
def test_a_final_failure_is_not_tried_again(kind: str) -> None:
    assert decide(AttemptError(ErrorKind(kind), "m"), 1, 3, least, "p:m") == Failed(
        ErrorKind(kind), "m"
    )


@pytest.mark.req("A9")
def test_every_kind_is_known_as_retryable_or_final() -> None:
    assert {*RETRYABLE, *FINAL} == set(ErrorKind)
    assert {kind for kind in ErrorKind if kind.is_retryable} == set(RETRYABLE)


@pytest.mark.req("A13")
@pytest.mark.parametrize(("attempt", "max_attempts"), [(1, 1), (3, 3), (10, 10), (4, 3)])
def test_the_last_attempt_fails(attempt: int, max_attempts: int) -> None:
    outcome = decide(AttemptError(ErrorKind.TIMEOUT, "slow"), attempt, max_attempts, least, "p:m")

    assert outcome == Failed(ErrorKind.TIMEOUT, "slow")


@pytest.mark.req("A10")
@pytest.mark.parametrize(
    ("next_attempt", "shortest_s", "longest_s"),
    [(2, 5, 10), (3, 25, 40), (4, 125, 170), (5, 125, 170), (10, 125, 170)],
)
@pytest.mark.parametrize("kind", ["timeout", "provider_5xx", "unknown"])
def test_the_ladder(kind: str, next_attempt: int, shortest_s: float, longest_s: float) -> None:
    assert backoff_s(ErrorKind(kind), next_attempt, None, least) == shortest_s
    assert backoff_s(ErrorKind(kind), next_attempt, None, most) == longest_s


@pytest.mark.req("A10")
def test_a_crashed_worker_costs_no_wait() -> None:
    assert backoff_s(ErrorKind.WORKER_CRASH, 2, None, most) == 0.0


@pytest.mark.req("A10")
@pytest.mark.parametrize("next_attempt", [2, 3, 9])
def test_a_rate_limit_without_a_wait_takes_a_minute(next_attempt: int) -> None:
    assert backoff_s(ErrorKind.RATE_LIMIT, next_attempt, None, least) == 60.0
    assert backoff_s(ErrorKind.RATE_LIMIT, next_attempt, None, most) == 75.0


@pytest.mark.req("A10")
@pytest.mark.case("LLM-01", "LLM-05")
@given(wait_s=st.floats(0, 3600))
def test_a_wait_of_the_provider_is_kept_and_jittered_upwards(wait_s: float) -> None:
    assert backoff_s(ErrorKind.RATE_LIMIT, 2, wait_s, least) == wait_s
    assert backoff_s(ErrorKind.RATE_LIMIT, 2, wait_s, most) > wait_s


@pytest.mark.case("LLM-01")
def test_a_wait_beyond_all_reason_is_clamped() -> None:
    assert backoff_s(ErrorKind.RATE_LIMIT, 2, 10.0**9, least) == RETRY_AFTER_MAX_S


@pytest.mark.case("LLM-05")
def test_forty_jobs_that_were_told_the_same_wait_do_not_come_back_together() -> None:
    jitter = evenly(40)
    waits = [backoff_s(ErrorKind.RATE_LIMIT, 2, 30.0, jitter) for _ in range(40)]

    assert min(waits) >= 30.0
    assert max(Counter(int(wait_s) for wait_s in waits).values()) <= 40 * 0.2


@pytest.mark.req("A10")
@pytest.mark.parametrize("kind", ["provider_5xx", "timeout"])
def test_an_overloaded_provider_that_names_a_wait_is_not_called_before(kind: str) -> None:
    assert backoff_s(ErrorKind(kind), 2, 90.0, least) >= 90.0
    assert backoff_s(ErrorKind(kind), 2, 1.0, least) == 5.0


@pytest.mark.req("A10")
@given(
    kind=st.sampled_from([kind for kind in ErrorKind if kind.is_retryable]),
    attempt=st.integers(1, 9),
    retry_after_s=st.none() | st.floats(0, 1e12),
)
def test_a_retry_is_never_in_the_past_and_whole_milliseconds(
    kind: ErrorKind, attempt: int, retry_after_s: float | None
) -> None:
    outcome = decide(AttemptError(kind, "m", retry_after_s), attempt, 10, most, "p:m")

    assert isinstance(outcome, Retry)
    assert isinstance(outcome.after_ms, int)
    assert outcome.after_ms >= 0


@pytest.mark.req("A10")
@pytest.mark.case("LLM-01")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("61", 61.0),
        ("3600", 3600.0),
        (" 7 ", 7.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thursday, 01-Jan-26 00:01:00 GMT", 60.0),
        ("Thu Jan  1 00:01:00 2026", 60.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("+5", None),
        ("nan", None),
        ("inf", None),
        ("1_0", None),
        ("1e3", None),
        ("soon", None),
        ("30, 60", None),
        ("٣", None),
        ("99999999999", None),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
        ("Thu, 01 Jan 2026 00:01:00 +99999999999999999", None),
    ],
)
def test_retry_after_is_read_strictly(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.case("LLM-01")
@given(st.text(max_size=60))
def test_no_retry_after_header_crashes_the_reader(value: str) -> None:
    seconds = parse_retry_after(value, NOW)

    assert seconds is None or seconds >= 0
