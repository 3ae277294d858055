"""How does a test get a job into a state? By the verbs, on an otherwise empty store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import Redis

from jobs.domain.entities import Response, Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer, State, Verb
from jobs.store import keys
from jobs.store.answers import Reclaimed
from jobs.store.queue import Queue
from tests.support.factories import claim, claim_one, new_id, new_job, response_for

NO_TOKEN = "never-issued.1"


@dataclass(frozen=True)
class Reached:
    """A job in the state that was asked for, and the last lease token that it had."""

    job_id: str
    prompt_id: str
    token: str


def reach(queue: Queue, state: State, *, window_ms: int = 60_000, **changes: Any) -> Reached:
    """A fresh job in `state`; running attempts are leased for `window_ms`."""
    job = new_job(**changes)
    queue.submit(job)
    if state is State.QUEUED:
        return Reached(job.id, job.prompt_id, NO_TOKEN)
    if state is State.CANCELLED:
        assert queue.cancel(job.id, job.org_id).answer is Answer.OK
        return Reached(job.id, job.prompt_id, NO_TOKEN)
    attempt = claim_one(queue, window_ms=window_ms)
    assert attempt.job.id == job.id
    if state is State.SUCCEEDED:
        queue.succeed(job.id, attempt.token, response_for(attempt))
    elif state is not State.RUNNING:
        queue.fail(job.id, attempt.token, ErrorKind.PARSE, "unreadable")
    if state is State.SUPERSEDED:
        successor = queue.supersede(job.id, new_id(), job.org_id, job.created_by).superseded_by
        assert queue.cancel(str(successor), job.org_id).answer is Answer.OK
    return Reached(job.id, job.prompt_id, attempt.token)


def some_response(response_id: str) -> Response:
    """A response that a settling test hands over where its text does not matter."""
    return Response(
        id=response_id,
        text="Hello.",
        provider="mock",
        model="mock-1",
        provider_request_id=response_id,
        finish_reason="stop",
        usage=Usage(3, 2),
        cost_usd_micros=7,
        source_refs=(),
    )


def apply(
    verb: Verb, redis: Redis, queue: Queue, job_id: str, token: str, *, org_id: str = "acme"
) -> Answer | None:
    """Send `verb` for one job; None for claim and reclaim, which name no job and just look."""
    match verb:
        case Verb.CLAIM:
            claim(queue)
            return None
        case Verb.RECLAIM:
            sweep(redis, queue)
            return None
        case Verb.SUCCEED:
            return queue.succeed(job_id, token, some_response("response-1")).answer
        case Verb.RETRY:
            return queue.retry(job_id, token, ErrorKind.TIMEOUT, "too slow", 0).answer
        case Verb.SNOOZE:
            return queue.snooze(job_id, token, "busy", 0).answer
        case Verb.FAIL:
            return queue.fail(job_id, token, ErrorKind.AUTH, "no key").answer
        case Verb.EXPIRE:
            return queue.expire(job_id, ErrorKind.BLOCKED, "never").answer
        case Verb.CANCEL:
            return queue.cancel(job_id, org_id, "not wanted").answer
        case Verb.SUPERSEDE:
            return queue.supersede(job_id, f"{job_id}-next", org_id, "ada").answer
    raise AssertionError(verb)


def sweep(
    redis: Redis, queue: Queue, *, since_ms: int = 15_000, ceiling_ms: int = 900_000
) -> Reclaimed:
    """A reclaim sweep as the tick makes it, `since_ms` after the one before it."""
    redis.set(keys.SWEPT_AT(), now_ms(redis) - since_ms)
    return queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=ceiling_ms)


def now_ms(redis: Redis) -> int:
    """The server's clock."""
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000
