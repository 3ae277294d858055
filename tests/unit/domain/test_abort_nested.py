"""Which of several bounds ends a call, and what moves them? (C6, A11)"""

import math
import threading
import time

import pytest

from jobs.domain.abort import AbortScope
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def timeout_of(scope: AbortScope) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        scope.check()
    assert (caught.value.kind, caught.value.fault) == (ErrorKind.TIMEOUT, Fault.NO_ANSWER)
    return caught.value


@pytest.mark.req("C6")
def test_a_narrowed_scope_ends_by_its_own_bound_and_leaves_the_one_around_it_running() -> None:
    clock = Clock()
    attempt = AbortScope(60.0, clock)
    call = attempt.narrowed(3.0)
    assert call.remaining_s() == 3.0

    clock.now_s += 3.0

    assert timeout_of(call).message == "the call did not end within 3 s"
    assert (call.is_over, attempt.is_over) == (True, False)
    attempt.check()


@pytest.mark.req("C6")
def test_a_narrowed_scope_never_outlives_the_one_around_it() -> None:
    clock = Clock()
    attempt = AbortScope(3.0, clock, "nothing happened for 3 s")
    call = attempt.narrowed(60.0)
    assert call.remaining_s() == 3.0

    clock.now_s += 3.0

    assert timeout_of(call).message == "nothing happened for 3 s"
    assert (call.is_over, call.remaining_s()) == (True, 0.0)


@pytest.mark.req("C6")
def test_of_two_bounds_that_are_over_the_outer_one_is_told() -> None:
    clock = Clock()
    outer = AbortScope(3.0, clock, "the outer one")
    inner = outer.narrowed(2.0, "the one between").narrowed(1.0, "the inner one")

    clock.now_s += 1.0
    assert timeout_of(inner).message == "the inner one"
    clock.now_s += 1.0
    assert timeout_of(inner).message == "the one between"
    clock.now_s += 1.0
    assert timeout_of(inner).message == "the outer one"


@pytest.mark.req("C6")
def test_a_touched_scope_begins_anew_also_for_those_within_it() -> None:
    clock = Clock()
    idle = AbortScope(10.0, clock)
    call = idle.narrowed(1_000.0)
    for _ in range(50):
        clock.now_s += 9.0
        idle.touch()
        assert call.remaining_s() == 10.0
        call.check()

    clock.now_s += 10.0

    assert not AbortScope(1.0, clock).is_over
    assert timeout_of(call)


@pytest.mark.req("C6")
def test_to_touch_a_scope_moves_no_other_bound() -> None:
    clock = Clock()
    attempt = AbortScope(10.0, clock, "the attempt")
    call = attempt.narrowed(10.0, "the call")
    clock.now_s += 9.0

    call.touch()
    assert call.remaining_s() == 1.0, "that of the attempt"
    clock.now_s += 1.0

    assert timeout_of(call).message == "the attempt"


@pytest.mark.req("C6")
@pytest.mark.parametrize("look", ["check", "is_over"])
def test_a_bound_that_was_found_over_stays_over(look: str) -> None:
    clock = Clock()
    idle = AbortScope(10.0, clock)
    call = idle.narrowed(math.inf)
    clock.now_s += 10.0
    if look == "check":
        timeout_of(call)
    else:
        assert idle.is_over

    idle.touch()

    assert idle.is_over
    assert call.remaining_s() == 0.0
    assert timeout_of(call)


@pytest.mark.req("A17")
@pytest.mark.parametrize("by", ["outer", "inner"])
def test_an_abort_reaches_every_scope_of_the_attempt(by: str) -> None:
    outer = AbortScope(60.0)
    inner = outer.narrowed(30.0)
    sibling = outer.narrowed(0.0)

    (outer if by == "outer" else inner).abort("cancelled")

    for scope in (outer, inner, sibling, outer.narrowed(5.0)):
        assert (scope.is_aborted, scope.reason) == (True, "cancelled")
        with pytest.raises(AttemptAbortedError, match="cancelled"):
            scope.check()


@pytest.mark.req("A17")
def test_an_abort_ends_a_wait_without_any_bound() -> None:
    outer = AbortScope(math.inf)
    assert outer.remaining_s() == math.inf
    threading.Timer(0.05, outer.abort, ["cancelled"]).start()

    with pytest.raises(AttemptAbortedError):
        outer.narrowed(math.inf).wait(math.inf)


@pytest.mark.req("C6")
def test_a_wait_goes_on_past_a_bound_that_moved_on_meanwhile() -> None:
    begun_s = time.monotonic()
    idle = AbortScope(0.3)
    threading.Timer(0.15, idle.touch).start()

    with pytest.raises(AttemptError):
        idle.narrowed(60.0).wait(math.inf)

    assert 0.4 <= time.monotonic() - begun_s < 5.0


@pytest.mark.req("C6")
def test_many_threads_touch_and_look_at_one_scope() -> None:
    idle = AbortScope(0.5)
    end_s = time.monotonic() + 1.5
    failures: list[Exception] = []

    def work() -> None:
        call = idle.narrowed(60.0)
        try:
            while time.monotonic() < end_s:
                idle.touch()
                call.check()
        except AttemptError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
