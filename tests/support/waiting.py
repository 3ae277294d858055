"""How do tests wait? Until something is true, and never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

POLL_PAUSE_S = 0.01
Answer = TypeVar("Answer")


def wait_until(predicate: Callable[[], Answer], within_s: float, what: str) -> Answer:
    """The first truthy answer of `predicate`; fails the test with `what` after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what} (last answer: {answer!r})")
        time.sleep(POLL_PAUSE_S)
