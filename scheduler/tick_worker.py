"""Who runs the ticks? A small RQ worker inside the scheduler, for their queue alone (decision 9).

Reclaim must go on while attempts are suspended. It runs the newest of the copies of a tick that
piled up and drops the others.
"""

from __future__ import annotations

import logging
import time
import uuid

from redis import Redis

from jobs.domain.errors import StoreUnavailableError
from jobs.store.ticks import TickLog, TickRun
from jobs.tickets import TickJob
from scheduler.queue_worker import QueueWorker

logger = logging.getLogger(__name__)


class TickWorker(QueueWorker):
    """Runs what is on the queue of ticks, one after another."""

    def __init__(self, queue_name: str, redis: Redis, log: TickLog) -> None:
        super().__init__(queue_name, redis, TickJob, "ticks")
        self._tick_log = log

    def run_each(self, ids: list[str]) -> None:
        """Run these ticks. Raises StoreUnavailableError."""
        for job_id in ids:
            self.run_tick(job_id)

    def run_tick(self, job_id: str) -> None:
        """Run one tick and write down what it did. A tick that fails is logged and written down
        as well. Raises StoreUnavailableError where that can't be written."""
        job = self.fetch(job_id)
        if job is None:
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
