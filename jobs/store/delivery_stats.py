"""Does what is posted arrive? Deliveries by kind and state, in one round trip. (C17)

The scripts count as they add, end and replay deliveries; what is due is looked at as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redis import Redis

from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.store import keys
from jobs.store.connection import store_errors

_RETRIED = "retried"


@dataclass(frozen=True, slots=True)
class DeliveryStats:
    """Counts by kind. `pending` is so now. `ended`, by end state, and `retried`, tries after which
    another one follows, are counted since ever; what is replayed and ends again counts again.

    `origins` have something that is to be posted to them, `due` of them now; `late_ms` is how long
    the one has waited that is due longest, which is seconds at most wherever something posts.
    """

    pending: Mapping[DeliveryKind, int]
    ended: Mapping[tuple[DeliveryKind, DeliveryState], int]
    retried: Mapping[DeliveryKind, int]
    origins: int
    due: int
    late_ms: int


def read_delivery_stats(redis: Redis, now_ms: int) -> DeliveryStats:
    """The figures at `now_ms`, which is Redis's clock: every kind and state is there, with 0 where
    there was none. Raises StoreUnavailableError."""
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        pipe.hgetall(keys.DELIVERY_STATS())
        pipe.zcard(keys.ORIGINS())
        pipe.zcount(keys.ORIGINS(), "-inf", now_ms)
        pipe.zrange(keys.ORIGINS(), 0, 0, withscores=True)
        counts, origins, due, first = pipe.execute()
    return DeliveryStats(
        pending={kind: _count(counts, kind, DeliveryState.PENDING) for kind in DeliveryKind},
        ended={
            (kind, state): _count(counts, kind, state)
            for kind in DeliveryKind
            for state in DeliveryState
            if state is not DeliveryState.PENDING
        },
        retried={kind: _count(counts, kind, _RETRIED) for kind in DeliveryKind},
        origins=origins,
        due=due,
        late_ms=max(0, now_ms - int(first[0][1])) if first else 0,
    )


def _count(counts: Mapping[str, str], kind: DeliveryKind, what: str) -> int:
    # Where a worker of an older release added it, its end alone is counted.
    return max(0, int(counts.get(f"{kind}:{what}", 0)))
