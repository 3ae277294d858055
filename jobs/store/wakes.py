"""Which generations ended that somebody waits for? A stream, and how far it was matched (B26)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

BATCH: Final = 100
FROM_THE_START: Final = "0-0"


@dataclass(frozen=True, slots=True)
class Wake:
    """One event: it carries no output. `position` is its place in the stream."""

    position: str
    generation_id: str
    wake_token: str


class Wakes:
    """Reads the stream `{gq}:wakes`. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def after(self, position: str, wait_ms: int) -> list[Wake]:
        """Up to 100 events after `position`, oldest first; waits up to `wait_ms` for one."""
        with store_errors():
            found = self._redis.xread({keys.WAKES(): position}, count=BATCH, block=wait_ms)
        return [
            Wake(at, event.get("generation_id", ""), event.get("wake_token", ""))
            for _, events in cast("Any", found)
            for at, event in events
        ]

    def matched(self) -> str:
        """How far the stream was matched, by whoever did it last."""
        with store_errors():
            position = cast("str | None", self._redis.get(keys.WAKES_AT()))
        return position or FROM_THE_START

    def last(self) -> str:
        """The place of the newest event, whatever it holds; FROM_THE_START where there is none."""
        return str(self._scripts.run("last_wake"))

    def note_matched(self, position: str) -> None:
        """Matched as far as `position`: who begins anew goes on from there."""
        with store_errors():
            self._redis.set(keys.WAKES_AT(), position)
