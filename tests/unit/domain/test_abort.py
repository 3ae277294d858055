import threading

import pytest

from jobs.domain.abort import AbortScope, current, entered
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.req("A11")
def test_a_scope_that_ran_out_of_time_raises_a_timeout_that_names_its_budget() -> None:
    clock = Clock()
    scope = AbortScope(3.0, clock)
    scope.check()

    clock.now_s += 3.0

    with pytest.raises(AttemptError, match=r"within 3 s") as caught:
        scope.check()
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert scope.remaining_s() == 0.0


@pytest.mark.req("A11")
def test_remaining_time_is_never_negative() -> None:
    clock = Clock()
    scope = AbortScope(3.0, clock)
    clock.now_s += 30.0

    assert scope.remaining_s() == 0.0


@pytest.mark.req("A17")
def test_the_first_reason_of_an_abort_stays() -> None:
    scope = AbortScope(3.0)

    scope.abort("cancelled")
    scope.abort("shutdown")

    assert scope.is_aborted
    assert scope.reason == "cancelled"
    with pytest.raises(AttemptAbortedError, match="cancelled"):
        scope.check()


@pytest.mark.req("A17")
def test_an_abort_wins_over_a_deadline_that_has_passed() -> None:
    scope = AbortScope(0.0)
    scope.abort("lease lost")

    with pytest.raises(AttemptAbortedError):
        scope.check()


@pytest.mark.req("A17")
def test_an_abort_from_another_thread_ends_a_wait() -> None:
    scope = AbortScope(30.0)
    timer = threading.Timer(0.05, scope.abort, ["cancelled"])
    timer.start()

    with pytest.raises(AttemptAbortedError):
        scope.wait(20.0)
    assert scope.remaining_s() > 25.0


@pytest.mark.req("A11")
def test_a_wait_longer_than_the_budget_ends_at_the_deadline() -> None:
    scope = AbortScope(0.05)

    with pytest.raises(AttemptError):
        scope.wait(20.0)


def test_a_wait_that_fits_returns() -> None:
    AbortScope(5.0).wait(0.01)


def test_the_current_scope_is_that_of_this_thread_and_is_put_back() -> None:
    seen: list[AbortScope | None] = []
    with entered(AbortScope(1.0)) as outer:
        with entered(AbortScope(2.0)) as inner:
            assert current() is inner
        assert current() is outer
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()

    assert seen == [None]
    assert current() is None
