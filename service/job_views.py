"""What is told of a job beside its record? Why it waits, asked for a whole page at once (X14)."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.domain.errors import JobMissingError
from jobs.domain.job import Job
from jobs.domain.states import State
from jobs.store.records import JobView, Records
from service.errors import JobGoneError
from service.schemas.jobs import ShownJob


def show_job(records: Records, job_id: str, org_id: str) -> ShownJob:
    """A job with its history. Raises as `missing_job` says where this org has none of that id."""
    view = records.job(job_id, org_id)
    if view is None:
        raise missing_job(records, job_id, org_id)
    return show_view(records, view)


def missing_job(records: Records, job_id: str, org_id: str) -> JobGoneError | JobMissingError:
    """What to say of an id that names no job of this org: it was archived, or it never was."""
    stone = records.tombstone(job_id, org_id)
    return JobGoneError(stone.state, stone.finished_at_ms) if stone else JobMissingError(job_id)


def show_view(records: Records, view: JobView) -> ShownJob:
    """As `show_job`, of one that was read."""
    (shown,) = show_jobs(records, [view.job])
    return ShownJob(view.job, shown.waiting_on, view.history)


def show_jobs(records: Records, jobs: Sequence[Job]) -> list[ShownJob]:
    """Each job with what it waits on, in one further round trip where any is queued."""
    queued = [job.id for job in jobs if job.state is State.QUEUED]
    waiting = records.waiting_on_each(queued)
    return [ShownJob(job, waiting.get(job.id)) for job in jobs]
