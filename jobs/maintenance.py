"""What has to be done now and then, by whoever is there? Bounded, idempotent, each with a count.

The clock of a deployment calls these (the scheduler's ticks); a worker that sees that nobody
does stands in. Each may run twice or late without harm: the scripts decide.
"""

from __future__ import annotations

import logging

from jobs.retry_events import tell_ended
from jobs.runtime import Runtime
from jobs.store.answers import Promoted, Reclaimed, Repaired
from jobs.store.billing import Outbox
from jobs.usage_reports import HttpCapture, report_waiting

logger = logging.getLogger(__name__)


def promote(runtime: Runtime) -> Promoted:
    """Let due jobs, and lanes whose gate has room again, into the turn; make up for a ticket
    that was lost. Raises StoreUnavailableError."""
    done = runtime.queue.promote()
    tell_ended(done.ended_chains)
    if done.ticket_wanted:
        runtime.tickets.issue()
    return done


def reclaim(runtime: Runtime) -> Reclaimed:
    """Take back attempts whose lease ended (A8, A12). Raises StoreUnavailableError."""
    settings = runtime.settings
    done = runtime.queue.reclaim(
        window_ms=settings.lease_window_s * 1000,
        interval_ms=settings.sweep_interval_s * 1000,
        ceiling_ms=settings.stuck_after_s * 1000,
    )
    for job_id in done.failed_ids:
        logger.warning("job %s failed: the worker of its last attempt is gone", job_id)
    if done.requeued:
        logger.warning("%d attempts of workers that are gone run again", done.requeued)
    if done.ticket_wanted:
        runtime.tickets.issue()
    return done


def repair(runtime: Runtime) -> Repaired:
    """Look over some of the stored jobs and put right what is wrong (A8). Raises
    StoreUnavailableError."""
    done = runtime.upkeep.repair(window_ms=runtime.settings.lease_window_s * 1000)
    if done.ticket_wanted:
        runtime.tickets.issue()
    return done


def mirror(runtime: Runtime) -> int:
    """Show in RQ's failed registry what failed, and no longer what is not failed any more (X7);
    answers how many jobs and entries that were. Raises StoreUnavailableError."""
    return runtime.failed_tickets.mirror()


def report_usage(runtime: Runtime) -> int:
    """Post what generations used to the receiver that the settings name (B17); answers how many
    events it took. Raises StoreUnavailableError."""
    capture = HttpCapture(runtime.settings.capture_url)
    return report_waiting(Outbox(runtime.redis), capture)
