"""Who tells a parked step that its generation has ended? (B26)

A thread in the scheduler's process reads the stream of ended generations and moves the steps
whose token an event carries. It is a signal: behind it stand the backup polls (B27), so an
event may be lost, come twice, or be forged. Several matchers at once do no harm.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from jobs.domain.errors import StoreUnavailableError
from jobs.store.steps import Steps, Woken
from jobs.store.wakes import Wakes

logger = logging.getLogger(__name__)

WAIT_MS: Final = 1_000
PAUSE_S: Final = 1.0


class WakeMatcher:
    """Matches events with steps until it is stopped."""

    def __init__(self, wakes: Wakes, steps: Steps, issue_ticket: Callable[[], None]) -> None:
        self._wakes = wakes
        self._steps = steps
        self._issue_ticket = issue_ticket

    def run(self, stop: threading.Event) -> None:
        """Match until `stop` is set; outlives a Redis that is away, and any surprise."""
        position: str | None = None
        while not stop.is_set():
            try:
                if position is None:
                    position = self._wakes.matched()
                position = self.match_some(position)
            except StoreUnavailableError as error:
                logger.warning("wakes: %s", error)
                # Its data may be another's by then: where to go on is asked anew.
                position = None
                stop.wait(PAUSE_S)
            except Exception:
                logger.exception("wakes: unexpected failure")
                stop.wait(PAUSE_S)

    def match_some(self, position: str, wait_ms: int = WAIT_MS) -> str:
        """Match what comes after `position`; answers how far that is."""
        found = self._wakes.after(position, wait_ms)
        is_ticket_wanted = False
        for wake in found:
            word, wanted = self._steps.wake(wake.wake_token)
            is_ticket_wanted = is_ticket_wanted or wanted
            if word is Woken.REFUSED:
                logger.warning("a wake of generation %s had a wrong token", wake.generation_id)
        if is_ticket_wanted:
            self._issue_ticket()
        if not found:
            return position
        self._wakes.note_matched(found[-1].position)
        return found[-1].position
