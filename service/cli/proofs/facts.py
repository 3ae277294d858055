"""How does a proof say what held, and what did not?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from jobs.domain.errors import GenqueueError

POLL_PAUSE_S: Final = 0.05
Answer = TypeVar("Answer")


class ProofBrokenError(GenqueueError):
    """A fact did not hold: `reason` says which, and what was found instead."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ProofSkippedError(GenqueueError):
    """The proof can't be made here: `reason` says what is missing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Facts:
    """The sentences that held so far, in order."""

    def __init__(self) -> None:
        self.held: list[str] = []

    def hold(self, is_so: bool, sentence: str, found: object) -> None:
        """Note a sentence that holds; raises ProofBrokenError with what was `found` otherwise."""
        if not is_so:
            raise ProofBrokenError(f"not so: {sentence} (found {found})")
        self.held.append(sentence)


def wait_for(look: Callable[[], Answer | None], within_s: float, what: str) -> Answer:
    """The first truthy answer of `look`; raises ProofBrokenError after `within_s` seconds."""
    until_s = time.monotonic() + within_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > until_s:
            raise ProofBrokenError(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_PAUSE_S)
