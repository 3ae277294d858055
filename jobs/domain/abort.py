"""How is a blocked call told to end? Through a scope that the innermost I/O looks at (A11, A17).

The worker opens a scope around each attempt; the network backend of a provider asks
`current()` before and during every operation. Whoever decides that the attempt is over
(heartbeat, shutdown) calls `abort`, from any thread. A part of an attempt gets a bound of its
own by `narrowed`; a bound of idleness is one that `touch` sets anew (C6).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault


class AbortScope:
    """The wall-clock bound and the cancel flag of one attempt, for any number of threads.

    `budget_s` is the bound in seconds from now, `math.inf` for none; `clock` is monotonic
    seconds; `message` is what the timeout says, a sentence about the budget where it is None.
    """

    def __init__(
        self,
        budget_s: float,
        clock: Callable[[], float] = time.monotonic,
        message: str | None = None,
    ) -> None:
        self._clock = clock
        self._flag = _Flag()
        self._own = _Bound(budget_s, clock, message)
        self._bounds: tuple[_Bound, ...] = (self._own,)

    def narrowed(self, budget_s: float, message: str | None = None) -> AbortScope:
        """A scope within this one: a bound of its own, `budget_s` seconds from now, beside that
        of this one wherever it has moved to. To abort either is to abort both."""
        inner = AbortScope(budget_s, self._clock, message)
        inner._flag = self._flag
        inner._bounds = (*self._bounds, inner._own)
        return inner

    def abort(self, reason: str) -> None:
        """End the attempt: its next look at the scope raises. The first reason stays."""
        self._flag.hoist(reason)

    def touch(self, pause_s: float = 0.0) -> None:
        """Begin this scope's own time anew, after a pause of `pause_s`: something happened. One
        that was found to be over stays so, or who asks afterwards which bound ended a call would
        be told of the wrong one."""
        self._own.begin(pause_s)

    @property
    def reason(self) -> str:
        """Why the attempt was aborted; empty while it was not."""
        return self._flag.reason

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._flag.event.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the time is up, this scope's own or that of one around it."""
        return any(bound.is_over() for bound in self._bounds)

    def remaining_s(self) -> float:
        """Seconds left of the nearest bound, never negative; `math.inf` where there is none."""
        return max(0.0, min(bound.left_s() for bound in self._bounds))

    def check(self) -> None:
        """Raise AttemptAbortedError when aborted, AttemptError(timeout) when out of time: that of
        the outermost scope whose time is up."""
        if self._flag.event.is_set():
            raise AttemptAbortedError(self._flag.reason)
        for bound in self._bounds:
            if bound.is_over():
                raise AttemptError(ErrorKind.TIMEOUT, bound.message, fault=Fault.NO_ANSWER)

    def wait(self, for_s: float) -> None:
        """Sleep for `for_s` seconds, or less: raises as `check` does as soon as it would."""
        end_s = time.monotonic() + for_s
        self.check()
        while (left_s := end_s - time.monotonic()) > 0.0:
            # Not longer than the bounds are now: by then they may have moved on.
            self._flag.event.wait(min(left_s, self.remaining_s(), threading.TIMEOUT_MAX))
            self.check()


class _Bound:
    """A time that runs out, unless it begins anew before anybody has seen that it did."""

    def __init__(self, budget_s: float, clock: Callable[[], float], message: str | None) -> None:
        self.message = message or f"the call did not end within {budget_s:g} s"
        self._budget_s = budget_s
        self._clock = clock
        self._lock = threading.Lock()
        self._end_s = clock() + budget_s
        self._was_found_over = False

    def begin(self, pause_s: float) -> None:
        with self._lock:
            if not self._was_found_over:
                self._end_s = self._clock() + pause_s + self._budget_s

    def is_over(self) -> bool:
        with self._lock:
            if self._end_s <= self._clock():
                self._was_found_over = True
            return self._was_found_over

    def left_s(self) -> float:
        with self._lock:
            return self._end_s - self._clock()


class _Flag:
    """What a scope and those within it share."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason = ""
        self._lock = threading.Lock()

    def hoist(self, reason: str) -> None:
        with self._lock:
            if not self.event.is_set():
                self.reason = reason
                self.event.set()


_current: ContextVar[AbortScope | None] = ContextVar("abort_scope", default=None)


def current() -> AbortScope | None:
    """The scope of the attempt that runs in this thread, if any."""
    return _current.get()


@contextmanager
def entered(scope: AbortScope) -> Iterator[AbortScope]:
    """Make `scope` the current one for the block."""
    reset_token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(reset_token)
