"""Who runs the ticks? A small RQ worker inside the scheduler, for their queue alone (decision 9).

`rq info` shows it as a worker. It ignores `rq suspend`, since reclaim must go on while attempts
are suspended; it runs the newest of the copies of a tick that piled up and drops the others;
and it keeps none of RQ's books (registries, results), which cost more than the ticks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError
from rq.worker import BaseWorker
from rq.worker.base import WorkerStatus

from jobs.domain.errors import StoreUnavailableError
from jobs.store.connection import store_errors
from jobs.store.ticks import TickLog, TickRun
from jobs.tickets import TickJob
from scheduler.patience import keep_on

logger = logging.getLogger(__name__)

BLOCK_S: Final = 1
"""Longest block on the queue: a stop is noticed in this time."""

ALIVE_EVERY_S: Final = 10.0
DRAIN_MAX: Final = 1000


def newest_of_each(ids: Iterable[bytes]) -> list[bytes]:
    """The last of equal ids, in the order of those."""
    return list(dict.fromkeys(reversed(list(ids))))[::-1]


class TickWorker(BaseWorker):
    """Runs what is on the queue of ticks, one after another."""

    def __init__(self, queue_name: str, redis: Redis, log: TickLog) -> None:
        name = f"{queue_name}-{uuid.uuid4().hex[:12]}"
        super().__init__(
            [queue_name],
            name=name,
            connection=redis,
            job_class=TickJob,
            serializer="json",
            worker_ttl=60,
            prepare_for_work=False,  # it asks Redis, which may be away; see _show_life
        )
        self._tick_log = log
        self._is_known = False
        self._alive_at_s = 0.0

    @property
    def connection_timeout(self) -> int:
        """Seconds of RQ's least socket timeout."""
        return 5

    def run(self, stop: threading.Event) -> None:
        """Run ticks until `stop`; whatever goes wrong is logged, and the worker goes on."""
        keep_on(self.step, stop, "ticks")
        if self._is_known:
            with contextlib.suppress(RedisError):
                self.register_death()

    def step(self) -> int:
        """Wait up to a second for ticks and run them; answers how many. Raises RedisError."""
        self._show_life()
        key = self.queues[0].key
        popped: Any = self.connection.blpop([key], BLOCK_S)
        if popped is None:
            return 0
        waiting: Any = self.connection.lpop(key, DRAIN_MAX) or []
        ids = newest_of_each([popped[1], *waiting])
        if len(waiting) >= len(ids):
            logger.info("ticks: %d copies dropped", len(waiting) + 1 - len(ids))
        for raw_id in ids:
            self.run_tick(raw_id.decode("utf-8", "replace"))
        return len(ids)

    def run_tick(self, job_id: str) -> None:
        """Run one tick and write down what it did. A tick that fails is logged and written down
        as well. Raises StoreUnavailableError where that can't be written."""
        try:
            with store_errors():
                job: Any = TickJob.fetch(job_id, connection=self.connection)
        except StoreUnavailableError:
            raise
        except Exception as error:
            logger.warning("ticks: dropped %.80r: %s", job_id, type(error).__name__)
            return
        began_s = time.monotonic()
        count, failure = 0, ""
        try:
            count = int(job.perform())
        except StoreUnavailableError:
            raise
        except Exception as error:
            failure = type(error).__name__  # its text may quote what a job holds
            logger.exception("tick %s failed", job_id)
        self._tick_log.ticked(
            TickRun(
                name=str(job.meta.get("name", job_id)),
                token=uuid.uuid4().hex,
                interval_s=float(job.meta.get("interval", 0)),
                due_at_ms=job.meta.get("due_at_ms"),
                took_ms=round((time.monotonic() - began_s) * 1000),
                count=count,
                failure=failure,
            )
        )

    def _show_life(self) -> None:
        """Be registered with RQ, also after Redis lost it; full memory must not stop ticks."""
        now_s = time.monotonic()
        if self._is_known and now_s - self._alive_at_s < ALIVE_EVERY_S:
            return
        self._alive_at_s = now_s
        try:
            with store_errors():
                self._register_if_unknown()
                self.heartbeat()
        except StoreUnavailableError as error:
            logger.warning("ticks: not shown as a worker: %s", error)
        else:
            self._is_known = True

    def _register_if_unknown(self) -> None:
        if not self.connection.exists(self.key):
            self.hostname, self.pid = os.uname().nodename, os.getpid()
            self.register_birth()
            self.set_state(WorkerStatus.IDLE)
