"""How do failed jobs show in RQ, and how does RQ's "requeue" become a retry? (X7, decision 2)

A job that failed for good is mirrored as an RQ job in the failed registry of the queue of
tickets. It has our job's id, and its function is `retry_job`: whoever requeues it, by
`rq requeue` or in rq-dashboard, has a worker retry our job through the state machine. The mirror
is a view: nothing here is read to decide about a job.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from redis import Redis
from rq import Queue as RqQueue
from rq.job import JobStatus
from rq.registry import FailedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer

from jobs.domain.job import Job
from jobs.store.connection import store_errors
from jobs.store.keys import MIRROR_KEPT
from jobs.store.mirror import Mirror
from jobs.tickets import FAILURE_TTL_S, RETRY_JOB, TicketJob

logger = logging.getLogger(__name__)

SHOWN_S: Final = 30 * 86_400
"""A failed job is shown for so long after its end."""

HASH_OUTLIVES_S: Final = 86_400
"""The RQ job outlives its entry in the registry by this: one id there that names nothing stops
`rq requeue --all`."""

BATCH: Final = 100
DESCRIPTION_MAX: Final = 200
"""Characters of what a list shows of a failed job; the whole message is its exception."""

_OURS: Final = "genqueue_job"
_REQUEUED: Final = frozenset({JobStatus.QUEUED, JobStatus.STARTED})
"""An RQ job in these states is RQ's, until the retry has run."""


class FailedTickets:
    """Keeps the failed registry of `queue_name` in step with our failed jobs. `redis` answers
    bytes, as RQ wants them."""

    def __init__(self, redis: Redis, queue_name: str, mirror: Mirror) -> None:
        self._redis = redis
        self._queue_name = queue_name
        self._mirror = mirror
        self._registry = FailedJobRegistry(
            queue_name, connection=redis, job_class=TicketJob, serializer=JSONSerializer
        )
        self._looked_to = 0

    def mirror(self, limit: int = BATCH) -> int:
        """Show or remove up to `limit` jobs whose turn it is, then look over as many entries of
        the registry; answers how many jobs were looked at and entries removed.

        Repeatable at any point: an id leaves the list after its mirror was written. Raises
        StoreUnavailableError.
        """
        waiting = self._mirror.waiting(limit)
        if waiting:
            failed = self._mirror.failed(waiting)
            # Removing goes first: it frees memory, and full memory refuses the rest.
            self._remove(set(waiting) - failed.keys())
            self._show(failed)
            self._mirror.done(waiting)
        return len(waiting) + self._look_over(limit)

    def _show(self, failed: Mapping[str, Job]) -> None:
        """Write the mirrors of these jobs, in one transaction."""
        if not failed:
            return
        with store_errors():
            held = self._held(list(failed))
            pipe = self._redis.pipeline(transaction=True)
            for job_id, job in failed.items():
                if held[job_id][0] not in _REQUEUED:
                    self._write(job, pipe)
            # Else rq-dashboard lists the queue only once a ticket was issued.
            pipe.sadd(RqQueue.redis_queues_keys, self._registry.get_queue().key)
            pipe.execute()
            self._trim()

    def _write(self, job: Job, pipe: Any) -> None:
        ended_at_s = (job.finished_at_ms or job.updated_at_ms) // 1000
        message = job.error_message or "no message was kept"
        try:
            ticket: Any = TicketJob.create(
                RETRY_JOB,
                args=(job.id,),
                id=job.id,
                connection=self._redis,
                description=description_of(job),
                origin=self._queue_name,
                timeout=-1,
                result_ttl=0,
                failure_ttl=SHOWN_S,
                status=JobStatus.FAILED,
                meta={_OURS: job.id, "org": job.org_id, "attempt": job.attempt},
            )
        except ValueError as error:
            logger.warning("job %.80r can't be shown in RQ: %s", job.id, error)
            return
        ticket.created_at = _instant(job.created_at_ms)
        ticket.ended_at = _instant(ended_at_s * 1000)
        results = Result.get_key(job.id)
        pipe.delete(ticket.key, results)
        ticket.save(pipeline=pipe)
        Result.create_failure(ticket, None, f"{job.error_kind}: {message}", pipeline=pipe)
        for key in (ticket.key, results):
            pipe.expireat(key, ended_at_s + SHOWN_S + HASH_OUTLIVES_S)
        pipe.zadd(self._registry.key, {job.id: ended_at_s + SHOWN_S})

    def _trim(self) -> None:
        """Keep the newest mirrors only. Tickets that failed end within a minute by themselves,
        and sort before every mirror."""
        now_s = int(self._redis.time()[0])
        mirrored = (now_s + 2 * FAILURE_TTL_S, "+inf")
        excess = self._redis.zcount(self._registry.key, *mirrored) - MIRROR_KEPT
        if excess > 0:
            oldest: Any = self._redis.zrangebyscore(self._registry.key, *mirrored, 0, excess)
            self._remove(raw_id.decode() for raw_id in oldest)

    def _look_over(self, limit: int) -> int:
        """Look at the next `limit` entries of the registry, and remove those that name nothing
        (RQ's cleanup, or somebody's hand, took the RQ job), and mirrors of jobs that are not
        failed any more. Answers how many were removed."""
        first = self._looked_to
        with store_errors():
            found: Any = self._redis.zrange(self._registry.key, first, first + limit - 1)
            job_ids = [raw_id.decode("utf-8", "replace") for raw_id in found]
            self._looked_to = first + limit if len(found) == limit else 0
            held = self._held(job_ids)
        mirrors = [job_id for job_id in job_ids if held[job_id][1]]
        failed = self._mirror.failed(mirrors)
        stale = {job_id for job_id in job_ids if not held[job_id][0]}
        stale |= set(mirrors) - failed.keys()
        self._remove(stale)
        return len(stale)

    def _remove(self, job_ids: Iterable[str]) -> None:
        """Remove entry and RQ job of each; a foreign RQ job is left alone."""
        job_ids = list(job_ids)
        with store_errors():
            held = self._held(job_ids)
            pipe = self._redis.pipeline(transaction=True)
            for job_id in job_ids:
                status, is_mirror = held[job_id]
                if is_mirror or not status:
                    pipe.zrem(self._registry.key, job_id)
                if is_mirror and status not in _REQUEUED:
                    pipe.delete(TicketJob.key_for(job_id), Result.get_key(job_id))
            pipe.execute()

    def _held(self, job_ids: Sequence[str]) -> dict[str, tuple[str, bool]]:
        """What RQ holds under each id: the status, "" where there is nothing, and whether it is
        a mirror of ours."""
        if not job_ids:
            return {}
        pipe = self._redis.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hmget(TicketJob.key_for(job_id), "status", "meta")
        rows = zip(job_ids, pipe.execute(), strict=True)
        return {
            job_id: ((status or b"").decode(), _is_mirror(meta, job_id))
            for job_id, (status, meta) in rows
        }


def description_of(job: Job) -> str:
    """One line that names a failed job: kind, id, org, what went wrong."""
    message = " ".join((job.error_message or "").split())
    line = f"{job.kind} {job.id} of {job.org_id}: {job.error_kind}: {message}"
    return line if len(line) <= DESCRIPTION_MAX else line[: DESCRIPTION_MAX - 1] + "…"


def _is_mirror(meta: bytes | None, job_id: str) -> bool:
    try:
        found = json.loads(meta or b"null")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get(_OURS) == job_id


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
