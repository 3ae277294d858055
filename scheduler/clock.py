"""Who fires the ticks? An rq-scheduler that survives what its parent dies of (A8, decision 9).

rq-scheduler's keys get our prefix, so that a foreign one on the same Redis can't touch them;
its jobs are JSON and on the allow-list. It has no lock: of several schedulers the script
`fire` lets one have each firing, so there is no lock that a dead one could leave behind.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue as RqQueue
from rq.job import JobStatus
from rq.serializers import JSONSerializer
from rq_scheduler import Scheduler

from jobs.domain.errors import StoreUnavailableError
from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.ticks import TickLog, Ticks
from jobs.tickets import TickJob
from scheduler.patience import keep_on
from scheduler.schedule import Tick, first_due_s, latest_due_s, next_due_s

logger = logging.getLogger(__name__)

VERIFY_EVERY_S: Final = 10.0
"""The table is compared with Redis so often: what was lost there is back in this time."""

TRY_AGAIN_S: Final = 2.0
SHOWN_S: Final = 20
BATCH: Final = 100
LONGEST_PAUSE_S: Final = 1.0


class TickScheduler(Scheduler):  # type: ignore[misc]  # rq-scheduler has no types
    """Fires the ticks of `table` onto the RQ queue `queue_name`. `redis` answers bytes, as RQ
    wants them."""

    redis_scheduler_namespace_prefix = keys.SCHEDULER("")
    scheduler_key = keys.SCHEDULER("self")
    scheduler_lock_key = keys.SCHEDULER("lock")
    scheduled_jobs_key = keys.SCHEDULER_DUE()

    def __init__(
        self, table: Sequence[Tick], redis: Redis, queue_name: str, log: TickLog, ticks: Ticks
    ) -> None:
        super().__init__(queue_name=queue_name, connection=redis, job_class=TickJob)
        self._table = {tick.job_id: tick for tick in table}
        self._ticks = ticks
        self._tick_log = log
        self._tick_queue = RqQueue(queue_name, connection=redis, serializer=JSONSerializer)
        self._is_registered = False
        self._kept_at_s = -VERIFY_EVERY_S

    def acquire_lock(self) -> bool:
        """True: there is no lock."""
        return True

    def remove_lock(self) -> None:
        """Nothing to remove."""

    def run(self, stop: threading.Event) -> None:
        """Fire what is due until `stop`; whatever goes wrong is logged, and the clock goes on."""
        keep_on(lambda: stop.wait(self.step()), stop, "clock")
        with contextlib.suppress(RedisError):
            self.register_death()

    def step(self) -> float:
        """One round; answers the seconds until the next. Raises RedisError and
        StoreUnavailableError."""
        if time.monotonic() - self._kept_at_s >= VERIFY_EVERY_S:
            self._keep_table()
        _, due_in_s = self.enqueue_jobs()
        return min(LONGEST_PAUSE_S, due_in_s)

    def _keep_table(self) -> None:
        """Register at the first time, later verify. Full memory may forbid it, and must not
        keep from firing what is there: ticks are what frees memory."""
        try:
            with store_errors():
                self.register_birth()
                if self._is_registered:
                    self.verify_table()
                else:
                    self.register_table()
        except StoreUnavailableError as error:
            logger.warning("clock: the table could not be written: %s", error)
            self._kept_at_s = time.monotonic() - VERIFY_EVERY_S + TRY_AGAIN_S
        else:
            if not self._is_registered:
                logger.info("clock: %s", ", ".join(tick.name for tick in self._table.values()))
            self._is_registered = True
            self._kept_at_s = time.monotonic()

    def register_birth(self) -> None:
        """Show this process, or go on to show it."""
        with self.connection.pipeline() as pipe:
            pipe.hsetnx(self.key, "birth", time.time())
            pipe.expire(self.key, SHOWN_S)
            pipe.execute()

    def register_table(self) -> None:
        """Make Redis hold the table and nothing else, whatever was there before."""
        now_s, ran_at_s = self._now_s(), self._ran_at_s()
        stale = set(self._entries()) - self._table.keys()
        if stale:
            self.connection.zrem(self.scheduled_jobs_key, *stale)
        for job_id, tick in self._table.items():
            self._put(job_id, first_due_s(tick.interval_s, ran_at_s.get(tick.name), now_s))

    def verify_table(self) -> None:
        """Put back what Redis lost of the table, and bring near what is too far off."""
        now_s, ran_at_s = self._now_s(), self._ran_at_s()
        entries = self._entries()
        for job_id, tick in self._table.items():
            ran = ran_at_s.get(tick.name)
            if job_id not in entries or not self.connection.exists(TickJob.key_for(job_id)):
                logger.warning("clock: the tick %s was lost, it is put back", tick.name)
                self._put(job_id, first_due_s(tick.interval_s, ran, now_s))
            latest = latest_due_s(tick.interval_s, ran, now_s)
            self.connection.zadd(self.scheduled_jobs_key, {job_id: latest}, lt=True)

    def enqueue_jobs(self) -> tuple[list[str], float]:
        """Fire what is due, up to 100 entries; answers their ids, and the seconds until the next
        entry is due, 0 where something was due: look again."""
        with self.connection.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(self.scheduled_jobs_key, 0, BATCH - 1, withscores=True)
            (seconds, micros), entries = pipe.execute()
        now_s = seconds + micros / 1e6
        fired: list[str] = []
        for number, (raw_id, due_s) in enumerate(entries):
            if due_s > now_s:
                return fired, 0.0 if number else due_s - now_s
            job_id = raw_id.decode("utf-8", "replace")
            try:
                if self._fire(job_id, due_s, now_s):
                    fired.append(job_id)
            except StoreUnavailableError:
                raise
            except Exception as error:
                # One entry must not block those behind it.
                logger.warning("clock: removed %.80r: %s", job_id, type(error).__name__)
                self.connection.zrem(self.scheduled_jobs_key, raw_id)
                self._put_back(job_id, now_s)
        return fired, 0.0 if entries else LONGEST_PAUSE_S

    def _fire(self, job_id: str, due_s: float, now_s: float) -> bool:
        """Fire one due entry; answers whether it was this process that did. Raises whatever is
        wrong with its RQ job: there is none, it is no tick, it can't be imported."""
        with store_errors():
            job: Any = TickJob.fetch(job_id, connection=self.connection)
        if not callable(job.func):
            raise TypeError(job.func_name)
        later = ""
        if "interval" in job.meta:
            later = repr(next_due_s(due_s, float(job.meta["interval"]), now_s))
        meta = {**job.meta, "due_at_ms": round(due_s * 1000)}
        answer = self._tick_log.fire(
            job.id,
            due=repr(due_s),
            later=later,
            queues_key=self._tick_queue.redis_queues_keys,
            queue_key=self._tick_queue.key,
            meta=JSONSerializer.dumps(meta).decode(),
        )
        return answer == "OK"

    def _put_back(self, job_id: str, now_s: float) -> None:
        """Write an entry of the table anew, due soon: at once would spin where it is our own
        function that can't be imported."""
        if job_id in self._table:
            self._put(job_id, now_s + min(self._table[job_id].interval_s, VERIFY_EVERY_S))

    def _put(self, job_id: str, due_s: float) -> None:
        """Write the entry anew, due at `due_s` or at an earlier time for which it was due."""
        tick = self._table[job_id]
        job: Any = TickJob.create(
            tick.entry_point,
            id=job_id,
            connection=self.connection,
            description=f"tick {tick.name}",
            origin=self.queue_name,
            result_ttl=-1,
            timeout=-1,
            meta={"interval": tick.interval_s, "name": tick.name},
            status=JobStatus.SCHEDULED,
        )
        with self.connection.pipeline() as pipe:
            pipe.delete(job.key)  # it may be of another type
            job.save(pipeline=pipe)
            pipe.zadd(self.scheduled_jobs_key, {job_id: due_s}, lt=True)
            pipe.execute()

    def _entries(self) -> dict[str, float]:
        found = self.connection.zrange(self.scheduled_jobs_key, 0, -1, withscores=True)
        return {job_id.decode("utf-8", "replace"): due_s for job_id, due_s in found}

    def _ran_at_s(self) -> dict[str, float]:
        """When the last good run of each tick began."""
        found = self._ticks.all().values()
        return {s.name: s.ran_at_ms / 1000 for s in found if s.ran_at_ms is not None}

    def _now_s(self) -> float:
        return self._ticks.now_ms() / 1000
