"""Which dotted paths does RQ store? These; they are never renamed (decision 11)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Final

from rq import get_current_job

from jobs import maintenance
from jobs.domain.errors import StoreUnavailableError
from jobs.domain.states import Answer, State
from jobs.runtime import Runtime, build
from jobs.worker.assembly import assemble
from jobs.worker.current import current_pool
from jobs.worker.run import run_once

if TYPE_CHECKING:
    from jobs.delivery.pool import DeliveryPool

logger = logging.getLogger(__name__)

TICK_BATCH: Final = 100
"""What one call of a tick's script does at most."""

DRAIN_THREAD: Final = "drain"
REPORT_THREAD: Final = "report-usage"
OUTBOX_THREAD: Final = "outbox"
DRAIN_BATCH: Final = 5
"""Attempts at once where a scheduler has to do a worker's work."""

TICK_CATCHES_UP_S: Final = 1.0
"""A tick that has much to do goes on for so long; it must not hold up the ticks behind it."""


def take_work() -> int:
    """Work on a ticket: run attempts until there are none to claim; answers how many ran.

    In a ThreadWorker the process's pool does it; in the child that a plain `rq worker` forked,
    a pool of one slot, which ends with the child.
    """
    ticket = get_current_job()
    ticket_id = ticket.id if ticket else ""
    pool = current_pool()
    if pool is not None:
        return pool.drain(ticket_id)
    worker_name = (ticket.worker_name or "") if ticket else ""
    crew = assemble(build(), concurrency=1, worker_name=worker_name, is_horse=True)
    return crew.pool.drain(ticket_id)


def retry_job(job_id: str) -> int:
    """Retry a failed job, as whoever requeued it in RQ asks for (X7), then take work; answers
    how many attempts ran.

    The job that replaces it has an id that is made from the old one: running this twice makes
    one. Raises StoreUnavailableError, and RQ shows the job as failed again.
    """
    runtime = _runtime()
    view = runtime.records.job(job_id)
    if view is None or view.job.state not in {State.FAILED, State.SUPERSEDED}:
        logger.warning("requeue: job %.80r is not there or is not failed", job_id)
        return take_work()
    new_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"genqueue:rq-requeue:{job_id}"))
    done = runtime.queue.supersede(job_id, new_id, view.job.org_id, view.job.created_by)
    if done.answer is Answer.OK:
        logger.info("requeue: job %s is retried as %s", job_id, new_id)
    elif done.answer is Answer.FINAL:
        logger.warning("requeue: job %s is of a kind that is not retried", job_id)
    else:
        logger.warning("requeue: job %s was retried before, as %s", job_id, done.superseded_by)
    if done.ticket_wanted:
        with contextlib.suppress(StoreUnavailableError):
            runtime.tickets.issue()
    return take_work()


def deliver() -> int:
    """Post what is due (C16); answers how many deliveries were tried.

    In a scheduler its pool does it, and the answer is 0; in the child that a plain `rq worker`
    forked, a pool that ends with the child.
    """
    pool = _delivery_pool()
    if pool is None:
        return _new_pool(build()).drain()
    pool.nudge()
    return 0


def tick_promote() -> int:
    """Due jobs, and lanes whose gate has room again, come into the turn; lost tickets are made
    up for. Answers how many jobs and lanes that were."""
    total = 0
    for _ in _rounds():
        done = maintenance.promote(_runtime())
        total += done.promoted + done.reopened
        if done.promoted < TICK_BATCH:
            break
    return total


def tick_reclaim() -> int:
    """Attempts whose lease ended go back to the queue, or fail as stuck (A8, A12). Answers how
    many that were."""
    total = 0
    for _ in _rounds():
        done = maintenance.reclaim(_runtime())
        total += done.requeued + done.failed
        if done.requeued + done.failed < TICK_BATCH:
            break
    return total


def tick_repair() -> int:
    """Some of the stored jobs are looked over and put right (A8). Answers how many jobs were
    put back and ids removed."""
    done = maintenance.repair(_runtime())
    return done.mended + done.dangling


def tick_mirror() -> int:
    """What failed shows in RQ's failed registry (X7). Answers how many jobs were looked at and
    entries removed."""
    total = 0
    for _ in _rounds():
        done = maintenance.mirror(_runtime())
        total += done
        if done < TICK_BATCH:
            break
    return total


def tick_outbox() -> int:
    """Deliveries that are due are posted, also where their signal was lost (C17). Answers 1 where
    it had somebody look."""
    pool = _delivery_pool()
    if pool is None:
        return _begin(OUTBOX_THREAD, _post_due)
    pool.nudge()
    return 1


# What posts costs 70 ms to import, which a child that takes work never needs.
def _delivery_pool() -> DeliveryPool | None:
    from jobs.delivery.pool import current_pool  # noqa: PLC0415  # see above

    return current_pool()


def _new_pool(runtime: Runtime) -> DeliveryPool:
    from jobs.delivery.assembly import assemble_pool  # noqa: PLC0415  # see above

    return assemble_pool(runtime.settings, runtime.deliveries, runtime.turns)


def _post_due() -> None:
    try:
        _new_pool(_runtime()).drain()
    except StoreUnavailableError as error:
        logger.warning("deliveries not posted: %s", error)


def tick_report_usage() -> int:
    """What generations used is posted where the settings say (B17). Answers 1 where it began to:
    a receiver that is slow must not hold up the other ticks."""
    return _begin(REPORT_THREAD, _report_usage)


def _report_usage() -> None:
    for _ in _rounds():
        try:
            if maintenance.report_usage(_runtime()) < TICK_BATCH:
                return
        except StoreUnavailableError as error:
            logger.warning("usage not reported: %s", error)
            return


def tick_drain() -> int:
    """Where no worker is up, this process works off a batch itself (A6; off by default). Answers
    1 where it began to. The batch has its own thread: it must not hold up the other ticks."""
    runtime = _runtime()
    if runtime.tickets.count_workers():
        return 0
    return _begin(DRAIN_THREAD, partial(run_once, runtime, DRAIN_BATCH))


def _begin(name: str, work: Callable[[], object]) -> int:
    """Do `work` in a thread of that name; answers 0 where the one before has not ended."""
    if any(thread.name == name for thread in threading.enumerate()):
        return 0
    threading.Thread(target=work, name=name, daemon=True).start()
    return 1


@cache
def _runtime() -> Runtime:
    """One object graph for all ticks and retries of a process: some run every second."""
    return build()


def _rounds() -> Iterator[int]:
    """The rounds of a tick that has a full batch to do again and again."""
    until_s = time.monotonic() + TICK_CATCHES_UP_S
    for number in count():
        yield number
        if time.monotonic() > until_s:
            return
