"""What goes over the stream of a chat turn, in which order? Its text as it is written, then how
the turn ended, in the same envelope as without a stream (C9).

Tokens are a signal: what counts is `completed`. The events of the organisation tell of the
job's end, with a poll each second behind them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobs.domain.errors import StoreUnavailableError
from jobs.domain.request_ids import request_id_of
from jobs.store.tokens import FROM_THE_START, PROGRESS, RESTART, TEXT, Said
from jobs.store.turns import RequestStanding, RequestStatus, RequestView
from service.fanout import Subscription
from service.request_views import is_answered, turn_envelope
from service.schemas.chat import ChatResponseSchema
from service.sse import COMMENT, COMMENT_EVERY_S, frame

BLOCK_MS: Final = 200
"""One read of the text waits so long; so late is the job's end noticed at most, where it is
heard."""

POLL_EVERY_S: Final = 1.0
AWAY_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WatchedTurn:
    """A stored turn: how to read what it says after a position, waiting some ms (None: not at
    all), how to ask how far it came, how to look at its record, which may be large, and how to ask
    whether its client is gone.

    `read`, `standing` and `look` may raise StoreUnavailableError: they are asked again."""

    job_id: str
    read: Callable[[str, int | None], Sequence[Said]]
    standing: Callable[[], RequestStanding | None]
    look: Callable[[], RequestView | None]
    is_gone: Callable[[], bool]


class _Frames:
    """Numbers the events, and knows whether text is out that does not stand."""

    def __init__(self) -> None:
        self._number = 0
        self._has_text = False

    def event(self, name: str, data: dict[str, Any]) -> bytes:
        """One event under the next number."""
        self._number += 1
        return frame(name, self._number, data)

    def said(self, pieces: Sequence[Said]) -> bytes:
        """The events of what was said; what is of a kind that is not known here has none."""
        return b"".join(self._said(piece) for piece in pieces)

    def completed(self, view: RequestView) -> bytes:
        """The last event; before it a `restart` where text is out that is not the answer."""
        void = b""
        if self._has_text and view.status is not RequestStatus.COMPLETED:
            void = self.event("restart", {})
        return void + self.event("completed", ChatResponseSchema().dump(turn_envelope(view)))

    def _said(self, piece: Said) -> bytes:
        if piece.what == TEXT:
            self._has_text = True
            return self.event("delta", {"text": piece.text})
        if piece.what == RESTART:
            self._has_text = False
            return self.event("restart", {})
        if piece.what == PROGRESS:
            task, count, agent = piece.text.split("|", 2)
            return self.event("progress", {"task": int(task), "of": int(count), "agent": agent})
        return b""


def stream(
    place: Subscription, turn: WatchedTurn, *, comment_every_s: float = COMMENT_EVERY_S
) -> Iterator[bytes]:
    """The frames for one client: `started`, what the turn says, exactly one `completed`.

    Ends without `completed` where the client goes, the process stops or the record is gone; the
    turn goes on. Closes the place.
    """
    with place:
        frames = _Frames()
        yield frames.event("started", {"request_id": request_id_of(turn.job_id)})
        after = FROM_THE_START
        looked_at_s = float("-inf")
        comment_at_s = time.monotonic() + comment_every_s
        while not place.is_over and not turn.is_gone():
            pieces = _read(turn, place, after, BLOCK_MS)
            if pieces:
                after = pieces[-1].position
                yield frames.said(pieces)
            heard, now_s = place.take(0), time.monotonic()
            if heard or now_s - looked_at_s >= POLL_EVERY_S:
                looked_at_s = now_s
                is_there, view = _look(turn)
                if not is_there:
                    return
                if view is not None:
                    yield _rest(frames, turn, place, after) + frames.completed(view)
                    return
            if now_s >= comment_at_s:
                comment_at_s = now_s + comment_every_s
                yield COMMENT


def _rest(frames: _Frames, turn: WatchedTurn, place: Subscription, after: str) -> bytes:
    """What was said up to the end and not read yet; the end came after it."""
    rest = b""
    while pieces := _read(turn, place, after, None):
        after = pieces[-1].position
        rest += frames.said(pieces)
    return rest


def _read(
    turn: WatchedTurn, place: Subscription, after: str, block_ms: int | None
) -> Sequence[Said]:
    try:
        return turn.read(after, block_ms)
    except StoreUnavailableError:
        if block_ms is not None:
            place.take(AWAY_PAUSE_S)
        return ()


def _look(turn: WatchedTurn) -> tuple[bool, RequestView | None]:
    """Whether the request is still there, and how its caller's turn ended; None where it has not,
    or where that can't be read now. The whole of it is read once, at the end."""
    try:
        standing = turn.standing()
        if standing is None or not is_answered(standing):
            return standing is not None, None
        view = turn.look()
    except StoreUnavailableError:
        return True, None
    return view is not None, view
