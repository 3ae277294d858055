"""Who hears that there is something to post? A small RQ worker beside the pool of deliveries (C17).

A ticket on its queue is a signal: it nudges the pool of this process and is forgotten.
"""

from __future__ import annotations

import logging

from redis import Redis

from jobs.store.connection import store_errors
from jobs.tickets import TicketJob
from scheduler.queue_worker import QueueWorker

logger = logging.getLogger(__name__)


class DeliveryWorker(QueueWorker):
    """Takes the tickets of deliveries."""

    def __init__(self, queue_name: str, redis: Redis) -> None:
        super().__init__(queue_name, redis, TicketJob, "deliveries")

    def run_each(self, ids: list[str]) -> None:
        """Run the first of these tickets, which all say the same, and forget all. Raises
        StoreUnavailableError."""
        any(self._run(job_id) for job_id in ids)
        with store_errors():
            self.connection.delete(*(TicketJob.key_for(job_id) for job_id in ids))

    def _run(self, job_id: str) -> bool:
        job = self.fetch(job_id)
        if job is None:
            return False
        try:
            job.perform()
        except Exception as error:
            logger.warning("deliveries: dropped %.80r: %s", job_id, type(error).__name__)
            return False
        return True
