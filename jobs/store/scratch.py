"""How does a proof use Redis and leave nothing behind? (A26)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors

ABANDONED_AFTER_S: Final = 600
"""A scratch database that was taken so long ago belongs to a proof that was killed."""

BATCH: Final = 500


class Scratch:
    """A logical database that holds nothing but what a proof writes.

    Only keys of genqueue and of RQ are ever removed there, and only while our mark is in it.
    """

    def __init__(self, redis: Redis, *, rq_prefix: str) -> None:
        self._redis = redis
        self._prefixes = (keys.PREFIX, f"{rq_prefix}:")

    def take(self) -> bool:
        """Mark the database as ours; False where anything is in it, or another proof. Raises
        StoreUnavailableError, and redis-py's ResponseError for a database that can't be had."""
        with store_errors():
            now_s = int(self._redis.time()[0])
            mark = cast("str | None", self._redis.get(keys.SCRATCH()))
            if mark is not None and now_s - int(mark) > ABANDONED_AFTER_S:
                self._empty()
            if self._redis.dbsize() or not self._redis.set(keys.SCRATCH(), now_s, nx=True):
                return False
            if self._redis.dbsize() == 1:
                return True
            self._redis.delete(keys.SCRATCH())
            return False

    def give_back(self) -> None:
        """Remove what was written, the mark last. Raises StoreUnavailableError."""
        with store_errors():
            self._empty()

    def _empty(self) -> None:
        for prefix in self._prefixes:
            pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in prefix) + "*"
            _unlink(
                self._redis,
                (
                    name
                    for name in self._redis.scan_iter(match=pattern, count=BATCH)
                    if name != keys.SCRATCH()
                ),
            )
        self._redis.delete(keys.SCRATCH())


def forget_org(redis: Redis, org_id: str, job_ids: Sequence[str]) -> None:
    """Remove what an organisation leaves behind that has no jobs any more: its events, counts
    and name, and what is remembered of these archived jobs. Raises StoreUnavailableError."""
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.unlink(keys.EVENTS(org_id), keys.CHANGED(org_id), keys.STATS(org_id))
        for job_id in job_ids:
            pipe.unlink(keys.TOMBSTONE(job_id))
        pipe.zrem(keys.ORGS(), org_id)
        pipe.execute()


def _unlink(redis: Redis, names: Iterable[str]) -> None:
    batch: list[str] = []
    for name in names:
        batch.append(name)
        if len(batch) == BATCH:
            redis.unlink(*batch)
            batch.clear()
    if batch:
        redis.unlink(*batch)
