"""How does a worker process begin and end, long-running or once from cron? (A6)"""

from __future__ import annotations

import logging

from jobs import logs
from jobs.domain.job import PRIORITY_MAX
from jobs.runtime import Runtime, refuse_lossy_redis
from jobs.worker.assembly import assemble
from jobs.worker.observation import start_metrics_page, start_sentry
from jobs.worker.thread_worker import ThreadWorker


def run_worker(runtime: Runtime, concurrency: int | None = None) -> int:
    """Work until told to stop; answers the exit code. Raises StoreUnavailableError at the
    start where Redis may drop accepted work; later outages are waited out."""
    logs.configure_if_nobody_did(runtime.settings)
    start_sentry(runtime.settings)
    start_metrics_page(runtime.settings)
    refuse_lossy_redis(runtime.redis)
    worker = ThreadWorker(
        [runtime.settings.queue_name],
        connection=runtime.rq_redis,
        runtime=runtime,
        concurrency=concurrency,
    )
    worker.work(logging_level=logging.getLevelName(logging.getLogger().getEffectiveLevel()))
    return 0


def run_once(runtime: Runtime, batch_size: int, priority_ceiling: int = PRIORITY_MAX) -> int:
    """Claim one batch, run it to its end, answer how many attempts that were (A5, A6)."""
    crew = assemble(runtime, concurrency=batch_size, ceiling=priority_ceiling)
    count = crew.pool.take(batch_size)
    crew.heartbeat.stop()
    return count
