"""Does Redis live, take writes, and keep what it is given? (X13)"""

from __future__ import annotations

from redis import Redis

from jobs.domain.errors import StoreUnavailableError
from jobs.store import keys
from jobs.store.connection import store_errors


def refuse_lossy(redis: Redis) -> None:
    """Raise StoreUnavailableError unless Redis keeps what it is given: with any other
    maxmemory-policy than noeviction it may drop accepted work."""
    with store_errors():
        info = redis.info("memory")
    _refuse_eviction(info)


def probe(redis: Redis) -> int | None:
    """Ask all of it in one round trip, and the time since the last reclaim sweep in ms, None
    where there was none. Raises StoreUnavailableError, which says what is wrong."""
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        # A write that is refused as any other (read-only, disk or memory full) and changes
        # nothing, not even a key that isn't there.
        pipe.setrange(keys.SEQ(), 0, "")
        pipe.info("memory")
        pipe.time()
        pipe.get(keys.SWEPT_AT())
        _, info, (second, microsecond), swept_at = pipe.execute()
    _refuse_eviction(info)
    if swept_at is None:
        return None
    age_ms: int = max(0, second * 1000 + microsecond // 1000 - int(swept_at))
    return age_ms


def _refuse_eviction(info: dict[str, object]) -> None:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnavailableError(
            f"Redis has maxmemory-policy {policy}: it may drop accepted work; set noeviction"
        )
