"""What waits, and on what? The figures of a scrape, in one round trip however long the queue is."""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors


@dataclass(frozen=True, slots=True)
class Backlog:
    """`open_lanes` have work that may be claimed now, `shut_lanes` wait behind `shut_gates`.
    `scheduled`, `blocked` and `running` count jobs; `tickets` wait on the RQ queue. `swept_at_ms`
    is the last reclaim sweep, None where there was none; `now_ms` is Redis's clock."""

    open_lanes: int
    shut_lanes: int
    shut_gates: int
    scheduled: int
    blocked: int
    running: int
    tickets: int
    swept_at_ms: int | None
    now_ms: int


def read_backlog(redis: Redis, *, rq_prefix: str, queue_name: str) -> Backlog:
    """The figures of now. Raises StoreUnavailableError."""
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        pipe.zcard(keys.TURNS())
        pipe.hlen(keys.SHUT_BY())
        pipe.scard(keys.GATES())
        pipe.zcard(keys.SCHEDULED())
        pipe.zcard(keys.BLOCKED())
        pipe.zcard(keys.RUNNING())
        pipe.llen(f"{rq_prefix}:queue:{queue_name}")
        pipe.get(keys.SWEPT_AT())
        pipe.time()
        lanes, shut, gates, scheduled, blocked, running, tickets, swept_at, now = pipe.execute()
    second, microsecond = now
    return Backlog(
        open_lanes=lanes,
        shut_lanes=shut,
        shut_gates=gates,
        scheduled=scheduled,
        blocked=blocked,
        running=running,
        tickets=tickets,
        swept_at_ms=None if swept_at is None else int(swept_at),
        now_ms=second * 1000 + microsecond // 1000,
    )
