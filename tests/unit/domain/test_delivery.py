"""Is a delivery tried again, and when? (C16, C17)"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.delivery import DeliveryKind, DeliveryState, Tried, TryError, judge

pytestmark = pytest.mark.req("C16", "C17")
HOOK, WAKE = DeliveryKind.WEBHOOK, DeliveryKind.WAKE
PENDING = DeliveryState.PENDING
TRIED = st.one_of(
    st.builds(
        Tried,
        st.integers(100, 599),
        retry_after_s=st.one_of(st.none(), st.floats(0, 1e9)),
    ),
    st.builds(Tried, st.none(), st.sampled_from(TryError)),
)


def least(_spread: float) -> float:
    return 0.0


def most(spread: float) -> float:
    return spread


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_any_2xx_delivers(code: int) -> None:
    assert judge(Tried(code), HOOK, 0, 3, least).state is DeliveryState.DELIVERED


@pytest.mark.parametrize("code", [100, 301, 302, 307, 400, 401, 404, 409, 429, 500, 503])
def test_all_else_with_a_status_is_tried_again(code: int) -> None:
    assert judge(Tried(code), HOOK, 0, 0, least).state is PENDING


def test_410_is_gone_at_once() -> None:
    assert judge(Tried(410), HOOK, 0, 0, least).state is DeliveryState.GONE


def test_only_an_invalid_url_and_a_record_that_is_gone_fail_for_good() -> None:
    states = {error: judge(Tried(error=error), HOOK, 0, 0, least).state for error in TryError}
    failed = {error for error, state in states.items() if state is DeliveryState.FAILED}
    assert failed == {TryError.INVALID_URL, TryError.NO_RECORD}
    assert {states[error] for error in set(TryError) - failed} == {PENDING}


def test_the_waits_are_those_of_the_ladder_plus_a_fifth_at_most() -> None:
    waits = [5, 30, 300, 1800, 7200, 18000, 36000, 36000]
    low = [judge(Tried(500), HOOK, n, 0, least).after_ms for n in range(8)]
    high = [judge(Tried(500), HOOK, n, 0, most).after_ms for n in range(8)]
    assert low == [wait * 1000 for wait in waits]
    assert high == [wait * 1200 for wait in waits]


def test_a_wake_is_tried_four_times() -> None:
    states = [judge(Tried(500), WAKE, n, 0, least).state for n in range(4)]
    assert states == [PENDING, PENDING, PENDING, DeliveryState.GIVEN_UP]


@given(TRIED, st.integers(0, 50), st.integers(0, 50), st.floats(0, 1))
def test_a_retry_after_is_never_undercut_and_never_shortens_a_wait(
    tried: Tried, tries: int, failures: int, share: float
) -> None:
    verdict = judge(tried, HOOK, tries, failures, lambda spread: spread * share)
    if verdict.state is PENDING and verdict.counts:
        alone = judge(Tried(500), HOOK, tries, failures, least)
        assert verdict.after_ms >= alone.after_ms
        assert verdict.after_ms >= (tried.retry_after_s or 0) * 1000


def test_a_receiver_pauses_by_its_failures_in_a_row_for_5_minutes_at_most() -> None:
    pauses = [judge(Tried(500), HOOK, 0, n, least).pause_ms for n in range(5)]
    assert pauses == [5_000, 30_000, 300_000, 300_000, 300_000]
    longest = judge(Tried(503, retry_after_s=86_400), HOOK, 0, 9, most).pause_ms
    assert longest == 360_000, "others need not wait for what one was told"


@pytest.mark.parametrize("code", [200, 204, 302, 400, 404, 410])
def test_a_receiver_that_answers_does_not_pause(code: int) -> None:
    assert judge(Tried(code), HOOK, 0, 5, least).pause_ms == 0


@pytest.mark.parametrize("tried", [Tried(429), Tried(500), Tried(error=TryError.TIMEOUT)])
def test_one_that_is_overloaded_broken_or_silent_does(tried: Tried) -> None:
    assert judge(tried, HOOK, 0, 0, least).pause_ms == 5_000


@pytest.mark.parametrize(
    "error", [TryError.NO_KEY, TryError.INTERNAL, TryError.INVALID_URL, TryError.NO_LOOKUP]
)
def test_what_is_our_own_fault_says_nothing_about_the_receiver(error: TryError) -> None:
    assert judge(Tried(error=error), HOOK, 0, 0, least).pause_ms is None


@pytest.mark.parametrize("kind", [HOOK, WAKE])
def test_where_no_name_could_be_looked_up_it_is_tried_again_soon_and_that_was_no_try(
    kind: DeliveryKind,
) -> None:
    verdict = judge(Tried(error=TryError.NO_LOOKUP), kind, 6, 9, least)

    assert (verdict.state, verdict.after_ms, verdict.counts) == (PENDING, 5_000, False)
    assert judge(Tried(500), kind, 0, 0, least).counts
