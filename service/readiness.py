"""Can this process take work now? Redis answers, takes writes, and keeps what it is given."""

from __future__ import annotations

from typing import Final

from redis import Redis

from jobs.domain.errors import StoreUnavailableError
from jobs.runtime import refuse_lossy_redis
from jobs.store import keys
from jobs.store.connection import store_errors
from service.errors import NotReadyError

PROBE_TIMEOUT_S: Final = 1.0
"""A probe is asked every few seconds: it says no rather than wait."""


def check_ready(redis: Redis) -> None:
    """Raise NotReadyError unless work can be taken (X13)."""
    try:
        with store_errors():
            redis.ping()
            # A write that is refused as any other (read-only, disk or memory full) and
            # changes nothing, not even a key that isn't there.
            redis.setrange(keys.SEQ(), 0, "")
        refuse_lossy_redis(redis)
    except StoreUnavailableError as error:
        raise NotReadyError(error.reason) from error
