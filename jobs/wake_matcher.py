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
from jobs.store.wakes import FROM_THE_START, Wakes

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
                # What can't be read is passed over: the polls collect what it was about.
                logger.exception("wakes: unexpected failure")
                stop.wait(PAUSE_S)
                position = self._newest(position)

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
            return self._after_a_step_back(position)
        self._wakes.note_matched(found[-1].position)
        return found[-1].position

    def _newest(self, position: str | None) -> str | None:
        try:
            return self._wakes.last()
        except StoreUnavailableError:
            return position

    def _after_a_step_back(self, position: str) -> str:
        """`position`, unless the newest event is older: the clock was set back, and events would
        be passed over for as long. Matching anew does no harm."""
        newest = self._wakes.last()
        is_back = newest != FROM_THE_START and _place(newest) < _place(position)
        return FROM_THE_START if is_back else position


def _place(position: str) -> tuple[int, int]:
    at_ms, _, number = position.partition("-")
    return int(at_ms), int(number or 0)
