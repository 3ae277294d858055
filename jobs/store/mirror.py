"""Which jobs is RQ's failed registry to be told about, and what is there to tell?

The scripts that fail, supersede or archive a job put its id on one list; whoever works it off
looks at the job as it is by then, so an id may be there twice or be looked at twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from redis import Redis

from jobs.domain.job import Job
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.codec import job_from_fields
from jobs.store.connection import store_errors

logger = logging.getLogger(__name__)


class Mirror:
    """The list `{gq}:mirror`. Every method raises StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def waiting(self, limit: int) -> list[str]:
        """Up to `limit` ids, longest waiting first; they stay on the list until `done`."""
        with store_errors():
            newest_first = self._redis.lrange(keys.MIRROR(), -limit, -1)
        return cast("list[str]", newest_first)[::-1]

    def done(self, job_ids: Sequence[str]) -> None:
        """Take off the list what was looked at: of each id its longest waiting entry, so that
        one put there in the meantime is looked at again."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.lrem(keys.MIRROR(), -1, job_id)
            pipe.execute()

    def failed(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Those of these jobs that are failed now, in one round trip."""
        if not job_ids:
            return {}
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hgetall(keys.JOB(job_id))
                pipe.get(keys.ERROR(job_id))
            replies = pipe.execute()
        found = {}
        for number, job_id in enumerate(job_ids):
            fields, error = replies[2 * number : 2 * number + 2]
            if fields.get("state") != State.FAILED:
                continue
            try:
                found[job_id] = job_from_fields(job_id, fields, None, error)
            except (KeyError, ValueError) as problem:
                # One record that can't be read must not hide all others.
                logger.warning("job %.80r is not shown as failed: %r", job_id, problem)
        return found
