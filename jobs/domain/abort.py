"""How is a blocked call told to end? Through a scope that the innermost I/O looks at (A11, A17).

The worker opens a scope around each attempt; the network backend of a provider asks
`current()` before and during every operation. Whoever decides that the attempt is over
(heartbeat, shutdown) calls `abort`, from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault


class AbortScope:
    """The wall-clock bound and the cancel flag of one attempt.

    `budget_s` is the bound in seconds from now; `clock` is monotonic seconds.
    """

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline_s = clock() + budget_s
        self._budget_s = budget_s
        self._aborted = threading.Event()
        self._reason = ""

    def abort(self, reason: str) -> None:
        """End the attempt: its next look at the scope raises. The first reason stays."""
        if not self._aborted.is_set():
            self._reason = reason
            self._aborted.set()

    @property
    def reason(self) -> str:
        """Why the attempt was aborted; empty while it was not."""
        return self._reason

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted.is_set()

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._deadline_s - self._clock())

    def check(self) -> None:
        """Raise AttemptAbortedError when aborted, AttemptError(timeout) when out of time."""
        if self._aborted.is_set():
            raise AttemptAbortedError(self._reason)
        if self.remaining_s() <= 0.0:
            raise AttemptError(
                ErrorKind.TIMEOUT,
                f"the call did not end within {self._budget_s:g} s",
                fault=Fault.NO_ANSWER,
            )

    def wait(self, for_s: float) -> None:
        """Sleep for `for_s` seconds, or less: raises as `check` does as soon as it would."""
        self._aborted.wait(min(for_s, self.remaining_s()))
        self.check()


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
