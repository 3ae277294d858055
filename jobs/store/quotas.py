"""How many jobs may an organisation run at once, and how many does it run? (A31)"""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors


@dataclass(frozen=True, slots=True)
class Quota:
    """The most running jobs of an org, None without a limit, and those that run now."""

    org_id: str
    most: int | None
    running: int


class Quotas:
    """Reads; Upkeep.set_quota writes. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def all(self) -> list[Quota]:
        """Every org that has a quota, by name."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.QUOTAS())
            pipe.hgetall(keys.RUNNING_BY_ORG())
            quotas, running = pipe.execute()
        return [
            Quota(org, int(most), int(running.get(org, 0))) for org, most in sorted(quotas.items())
        ]

    def of(self, org_id: str) -> Quota:
        """The quota of one org."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hget(keys.QUOTAS(), org_id)
            pipe.hget(keys.RUNNING_BY_ORG(), org_id)
            most, running = pipe.execute()
        return Quota(org_id, None if most is None else int(most), int(running or 0))
