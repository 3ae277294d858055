"""How does a submit answer: at once, or with the result? Switched without a deploy (A27)."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors

CACHE_S: Final = 2.0
"""A switch reaches every web process within this time."""


class Mode(StrEnum):
    """What a submit without a preference of its own gets.

    `async` is the receipt at once. `sync` holds the request until the job has ended and answers
    the result: what callers of a synchronous service know, and the way back to it. `shadow` is
    `sync` for the caller, with the mark `mode: shadow` in the job's execution options, so that
    the records made beside a synchronous service can be told and judged before it is switched.
    """

    SYNC = "sync"
    SHADOW = "shadow"
    ASYNC = "async"


class Modes:
    """The switch. `async` where it was never set."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._cached: tuple[float, Mode] | None = None

    def current(self) -> Mode:
        """The mode, at most `CACHE_S` old. Raises StoreUnavailableError."""
        cached, now_s = self._cached, self._clock()
        if cached and now_s - cached[0] < CACHE_S:
            return cached[1]
        with store_errors():
            stored = cast("str | None", self._redis.get(keys.MODE()))
        mode = Mode(stored) if stored in set(Mode) else Mode.ASYNC
        self._cached = (now_s, mode)
        return mode

    def switch(self, mode: Mode) -> None:
        """Set the mode for all processes. Raises StoreUnavailableError."""
        with store_errors():
            self._redis.set(keys.MODE(), mode.value)
        self._cached = None
