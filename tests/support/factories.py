"""What does an ordinary job, claim or response look like in a test?"""

from __future__ import annotations

import uuid
from typing import Any

from redis import Redis

from jobs.domain.entities import Response, Usage, response_id
from jobs.domain.job import Attempt, NewJob
from jobs.store.answers import Claimed, ClaimRequest
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts


def new_id() -> str:
    """A fresh UUID."""
    return str(uuid.uuid4())


def new_job(**changes: Any) -> NewJob:
    """A prompt job of org `acme`, with `changes`."""
    values: dict[str, Any] = {
        "id": new_id(),
        "prompt_id": new_id(),
        "org_id": "acme",
        "created_by": "ada",
        "prompt_text": "Say hello.",
        "target": "mock:mock-1",
    }
    return NewJob(**{**values, **changes})


def claim(queue: Queue, count: int = 1, **changes: Any) -> Claimed:
    """A claim under a fresh token with a lease of a minute."""
    values: dict[str, Any] = {"token": new_id(), "count": count, "window_ms": 60_000}
    return queue.claim(ClaimRequest(**{**values, **changes}))


def claim_one(queue: Queue, **changes: Any) -> Attempt:
    """The one attempt of a claim that must find work."""
    (attempt,) = claim(queue, **changes).attempts
    return attempt


def response_for(attempt: Attempt, **changes: Any) -> Response:
    """A response to `attempt`."""
    job = attempt.job
    request_id = f"req-{new_id()}"
    values: dict[str, Any] = {
        "id": response_id(job.prompt_id, request_id, job.id, job.attempt),
        "text": "Hello.",
        "provider": "mock",
        "model": "mock-1",
        "provider_request_id": request_id,
        "finish_reason": "stop",
        "usage": Usage(3, 2),
        "cost_usd_micros": 7,
        "source_refs": (job.prompt_id,),
    }
    return Response(**{**values, **changes})


def records_of(redis: Redis) -> Records:
    """The read side of the store behind `redis`."""
    return Records(redis, Scripts(redis, queue_name="genqueue"))
