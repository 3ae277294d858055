"""Which dotted paths does RQ store? These; they are never renamed (decision 11)."""

from __future__ import annotations

from rq import get_current_job

from jobs.runtime import build
from jobs.worker.assembly import assemble
from jobs.worker.current import current_pool


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
