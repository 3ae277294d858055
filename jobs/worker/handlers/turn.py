"""What does a job of a chat turn do? The attempt that a caller waits for, or one of its chain. (C1)

Each is a job of its own, so that leases, sweeps and restarts hold for chains as well (C20).
"""

from __future__ import annotations

import math

from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.domain.job import Attempt, Kind
from jobs.domain.outcome import Abandoned, Failed, Outcome, Snooze
from jobs.worker.turns.background import BackgroundRun
from jobs.worker.turns.run import STORE_PAUSE_MS, Tools
from jobs.worker.turns.synchronous import SynchronousRun


class TurnHandler:
    """Runs attempts of chat turns with `tools`; safe to share between threads."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @property
    def budget_s(self) -> float:
        """None: an attempt that works may run for hours (C6)."""
        return math.inf

    def __call__(self, attempt: Attempt) -> Outcome:
        """How this attempt ended, with what its request keeps of it."""
        try:
            turn = self._tools.turns.load(attempt)
        except StoreUnavailableError as error:
            return Snooze(error.reason, after_ms=STORE_PAUSE_MS)
        if turn is None:
            return Failed(ErrorKind.UNKNOWN, "the record of the request is gone")
        if turn.has_ended:
            return Abandoned("the request has ended")
        if attempt.job.kind is Kind.CHAT:
            return SynchronousRun(self._tools, attempt, turn).outcome()
        if turn.policy is None:
            return Failed(ErrorKind.UNKNOWN, "the record of the chain is broken")
        return BackgroundRun(self._tools, attempt, turn, turn.policy).outcome()
