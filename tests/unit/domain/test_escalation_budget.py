"""What follows the failure of an attempt: another one, when, or the end of the chain?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Failure,
    NextAttempt,
    after_failure,
    broken_end,
    deadline_end,
    stuck_end,
)
from jobs.domain.formation import NON_REPLANNABLE

NOW_MS = 1_700_000_000_000
POLICY = ChainPolicy(max_attempts=2, idle_timeout_s=900.0, deadline_s=None)
FLAKY = Failure(ErrorKind.UNKNOWN, "warehouse query returned no rows")
BLOCKED = Failure(ErrorKind.PROVIDER_4XX, "the role has no Permission to read")
SLOW = Failure(ErrorKind.TIMEOUT, "no answer within 15 s")
LIMITED = Failure(ErrorKind.RATE_LIMIT, "429")


def least(_spread_s: float) -> float:
    return 0.0


def most(spread_s: float) -> float:
    return spread_s


def chain(*failures: Failure) -> list[AttemptEntry]:
    return [AttemptEntry(number, None, failure) for number, failure in enumerate(failures, 1)]


def follows(
    *failures: Failure, policy: ChainPolicy = POLICY, deadline_ms: int | None = None
) -> NextAttempt | ChainEnd:
    return after_failure(chain(*failures), policy, NON_REPLANNABLE, deadline_ms, NOW_MS, least)


@pytest.mark.req("C5")
@pytest.mark.parametrize("max_attempts", [1, 2, 10])
def test_the_first_attempt_is_free_and_the_budget_is_told_when_it_is_spent(
    max_attempts: int,
) -> None:
    policy = replace(POLICY, max_attempts=max_attempts)

    for failed in range(1, max_attempts + 1):
        assert follows(*[FLAKY] * failed, policy=policy) == NextAttempt(0)
    assert follows(*[FLAKY] * (max_attempts + 1), policy=policy) == ChainEnd(
        ChainState.BUDGET_EXHAUSTED, f"all {max_attempts} async attempt(s) failed"
    )


@pytest.mark.req("C11")
def test_a_blocker_in_the_middle_of_a_chain_is_impossible_and_named() -> None:
    end = follows(FLAKY, BLOCKED)

    assert isinstance(end, ChainEnd)
    assert end.state is ChainState.IMPOSSIBLE
    assert BLOCKED.reason in end.detail


@pytest.mark.req("C11")
def test_a_blocker_of_the_synchronous_turn_is_not_for_the_chain_to_judge() -> None:
    assert follows(BLOCKED) == NextAttempt(0)
    assert follows(BLOCKED, FLAKY) == NextAttempt(0)


@pytest.mark.req("C11")
def test_of_several_ends_the_blocker_comes_first_then_the_deadline() -> None:
    policy = replace(POLICY, deadline_s=60.0)
    blocked = follows(FLAKY, FLAKY, BLOCKED, policy=policy, deadline_ms=NOW_MS)
    late = follows(FLAKY, FLAKY, FLAKY, policy=policy, deadline_ms=NOW_MS)

    assert isinstance(blocked, ChainEnd)
    assert blocked.state is ChainState.IMPOSSIBLE
    assert late == deadline_end(policy)


@pytest.mark.req("C7", "C11")
def test_a_deadline_ends_the_chain_from_its_very_millisecond() -> None:
    policy = replace(POLICY, max_attempts=10, deadline_s=60.0)

    assert follows(FLAKY, FLAKY, policy=policy, deadline_ms=NOW_MS) == deadline_end(policy)
    assert follows(FLAKY, FLAKY, policy=policy, deadline_ms=NOW_MS - 1) == deadline_end(policy)
    assert follows(FLAKY, FLAKY, policy=policy, deadline_ms=NOW_MS + 1) == NextAttempt(0)


@pytest.mark.req("A10", "C12")
def test_after_an_outage_the_next_attempt_waits_as_a_job_does() -> None:
    policy = replace(POLICY, max_attempts=10)

    assert follows(SLOW, policy=policy) == NextAttempt(5_000)
    assert follows(SLOW, SLOW, policy=policy) == NextAttempt(25_000)
    assert follows(FLAKY, FLAKY, SLOW, policy=policy) == NextAttempt(125_000)
    assert follows(replace(SLOW, retry_after_s=90.0), policy=policy) == NextAttempt(90_000)
    assert follows(LIMITED, policy=policy) == NextAttempt(60_000)
    assert follows(SLOW, FLAKY, policy=policy) == NextAttempt(0)


@pytest.mark.req("A10")
def test_the_wait_is_jittered_and_whole_milliseconds() -> None:
    entries = chain(SLOW)

    assert after_failure(entries, POLICY, [], None, NOW_MS, most) == NextAttempt(10_000)
    assert after_failure(entries, POLICY, [], None, NOW_MS, lambda _: 0.0001) == NextAttempt(5_001)


@pytest.mark.req("C7")
@given(
    st.sampled_from([FLAKY, SLOW, LIMITED]),
    st.none() | st.floats(0, 1e9),
    st.none() | st.integers(-10, 10**7),
    st.integers(1, 10),
)
def test_no_wait_reaches_beyond_the_deadline(
    failure: Failure, retry_after_s: float | None, left_ms: int | None, failed: int
) -> None:
    deadline = None if left_ms is None else NOW_MS + left_ms
    last = replace(failure, retry_after_s=retry_after_s)
    policy = ChainPolicy(max_attempts=10, idle_timeout_s=900.0, deadline_s=60.0)
    entries = chain(*[FLAKY] * (failed - 1), last)

    decided = after_failure(entries, policy, NON_REPLANNABLE, deadline, NOW_MS, most)

    if left_ms is not None and left_ms <= 0:
        assert decided == deadline_end(policy)
    else:
        assert isinstance(decided, NextAttempt)
        assert decided.after_ms >= 0
        assert left_ms is None or decided.after_ms <= left_ms


# The deadline's clock and the ends


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("deadline_s", "spelled"),
    [
        (7_200.0, "of 2h "),
        (1_800.0, "of 30m "),
        (90.0, "of 90s "),
        (0.5, "of 500ms "),
        (1.5, "of 1500ms "),
        (None, "the deadline has"),
    ],
)
def test_the_end_by_the_deadline_says_how_long_it_was(
    deadline_s: float | None, spelled: str
) -> None:
    end = deadline_end(replace(POLICY, deadline_s=deadline_s))

    assert end.state is ChainState.BUDGET_EXHAUSTED
    assert spelled in end.detail
    assert end.detail.endswith("has passed")


@pytest.mark.req("C11")
def test_stuck_and_broken_chains_say_so() -> None:
    assert stuck_end().state is ChainState.STUCK
    assert stuck_end().detail
    assert broken_end("its record is gone") == ChainEnd(
        ChainState.BUDGET_EXHAUSTED, "the chain itself broke: its record is gone"
    )
