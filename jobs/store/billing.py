"""Which usage is still to be reported? A list that scripts fill and the clock works off. (B17)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors


class Outbox:
    """The list `{gq}:billing` of events as JSON, the newest 100,000 at most. All raise
    StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def waiting(self, limit: int) -> list[str]:
        """Up to `limit` events, longest waiting first; they stay until `done`."""
        with store_errors():
            return cast("list[str]", self._redis.lrange(keys.BILLING(), 0, limit - 1))

    def done(self, rows: Sequence[str]) -> None:
        """Take these off the list, each once, wherever they stand by now: somebody else may have
        taken some, and an event that came since must stay."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for row in rows:
                pipe.lrem(keys.BILLING(), 1, row)
            pipe.execute()
