"""How does the text of a running turn reach who listens? Over a short-lived stream (C9).

A signal: the answer is in the record when the turn has ended, whatever was heard of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.job import Attempt
from jobs.domain.states import Answer
from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

READ_COUNT: Final = 500
FROM_THE_START: Final = "0-0"

PROGRESS: Final = "progress"
TEXT: Final = "text"
RESTART: Final = "restart"


@dataclass(frozen=True, slots=True)
class Said:
    """One piece. `what` is progress (`text` is `task|count|agent`), text, or restart: what was
    said so far is void."""

    position: str
    what: str
    text: str


class Tokens:
    """Both ends of the stream. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def say(
        self,
        attempt: Attempt,
        run: int,
        first: int,
        pieces: Sequence[tuple[str, str]],
    ) -> Answer:
        """Append pieces of (what, text) in one round trip; only for the holder of the lease.
        `first` is the number of the first one, from 1, in run `run` of the attempt: pieces that
        are sent twice are said once."""
        word = self._scripts.run(
            "say",
            id=attempt.job.id,
            token=attempt.token,
            request=attempt.job.root_id,
            run=run,
            first=first,
            pieces=[part for piece in pieces for part in piece],
        )
        return Answer(word)

    def read(
        self, request_job_id: str, after: str = FROM_THE_START, block_ms: int | None = None
    ) -> list[Said]:
        """Up to 500 pieces after a position, oldest first; waits up to `block_ms` for the first
        one, None does not wait."""
        with store_errors():
            found = self._redis.xread(
                {keys.TOKENS(request_job_id): after}, count=READ_COUNT, block=block_ms
            )
        return [
            Said(position, piece["what"], piece["text"])
            for _, pieces in cast("Any", found)
            for position, piece in pieces
        ]
