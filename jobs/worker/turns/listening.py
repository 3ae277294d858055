"""Who listens to a running turn? Its idle bound, and the caller of a streamed one (C6, C9)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from jobs.domain.abort import AbortScope
from jobs.domain.errors import StoreUnavailableError
from jobs.store.tokens import PROGRESS, RESTART, TEXT

logger = logging.getLogger(__name__)

SAY_EVERY_S: Final = 0.05
"""Pieces that come faster are sent together, in one round trip."""

Say = Callable[[int, list[tuple[str, str]]], object]
"""Takes the number of the first piece, from 1, and pieces of (what, text)."""


class Listening:
    """The watch of one attempt. Whatever happens begins the time of `idle` anew; `say` sends
    pieces to who listens, None where nobody does."""

    def __init__(self, idle: AbortScope | None, say: Say | None) -> None:
        self._idle = idle
        self._say = say
        self._text = ""
        self._said_at_s = 0.0
        self._count = 0

    def on_activity(self) -> None:
        """Something happened."""
        if self._idle is not None:
            self._idle.touch()

    def on_pause(self, for_s: float) -> None:
        """A pause that was asked for begins: idleness is counted from its end."""
        if self._idle is not None:
            self._idle.touch(for_s)

    def on_progress(self, task_number: int, count: int, agent: str) -> None:
        """An agent begins a task."""
        self.on_activity()
        self._send([(PROGRESS, f"{task_number}|{count}|{agent}")])

    def on_text(self, piece: str) -> None:
        """The next piece of the answer."""
        if self._say is None:
            return
        self._text += piece
        if time.monotonic() - self._said_at_s >= SAY_EVERY_S:
            self.flush()

    def on_restart(self) -> None:
        """What was said so far is void."""
        self._text = ""
        self._send([(RESTART, "")])

    def flush(self) -> None:
        """Send what is held back."""
        if self._text:
            self._send([(TEXT, self._text)])
            self._text = ""
            self._said_at_s = time.monotonic()

    def _send(self, pieces: list[tuple[str, str]]) -> None:
        if self._say is None:
            return
        first, self._count = self._count + 1, self._count + len(pieces)
        try:
            self._say(first, pieces)
        except StoreUnavailableError as error:
            # A signal: the whole answer is told when the turn has ended.
            logger.warning("a piece of a streamed turn was not sent: %s", error)
