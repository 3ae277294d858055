"""What is stored about a job or a prompt? The read side: each view in one round trip or two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from jobs.domain.entities import Prompt, Response
from jobs.domain.job import Job, Transition
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.codec import (
    job_from_fields,
    prompt_from_fields,
    response_from_fields,
    submission_of,
    transition_from_row,
)
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with its history, oldest move first."""

    job: Job
    history: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed relation between two entities, for example prompt `flows-to` response."""

    source_id: str
    type: str
    target_id: str


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What one successful call used and cost (A19)."""

    at_ms: int
    job_id: str
    attempt: int
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who or what decided about a job, when, and the detail of it (A19)."""

    at_ms: int
    verb: str
    job_id: str
    attempt: int
    detail: str


@dataclass(frozen=True, slots=True)
class PromptView:
    """A prompt with what came of it: its jobs oldest first (A25), the newest response."""

    prompt: Prompt
    response: Response | None
    response_created_at_ms: int | None
    jobs: tuple[Job, ...]
    edges: tuple[Edge, ...]
    ledger: tuple[LedgerRow, ...]
    audit: tuple[AuditRow, ...]


@dataclass(frozen=True, slots=True)
class WaitingOn:
    """Why a queued job waits (X14): `reason` is queue, org_quota, backoff, schedule or
    dependency; `until_ms` when it is known; `ahead` how many of its lane come first, counted up
    to 1,000."""

    reason: str
    until_ms: int | None
    ahead: int | None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is known of an archived job, for 30 days."""

    state: State
    finished_at_ms: int


class Records:
    """Reads; nothing here writes. Another org's ids answer None, like ids that never were."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def waiting_on(self, job_id: str) -> WaitingOn | None:
        """Why a job waits, in one round trip; None for one that does not."""
        return _waiting_on(self._scripts.run("waiting", id=job_id))

    def waiting_on_each(self, job_ids: Sequence[str]) -> dict[str, WaitingOn | None]:
        """As `waiting_on` for each of these, also in one round trip."""
        if not job_ids:
            return {}
        replies = self._scripts.run_each("waiting", [{"id": job_id} for job_id in job_ids])
        return {job_id: _waiting_on(reply) for job_id, reply in zip(job_ids, replies, strict=True)}

    def ended_before(self, at_ms: int, limit: int = 500) -> list[str]:
        """Ended jobs, longest ended first, that ended before an instant (A24)."""
        with store_errors():
            found = self._redis.zrangebyscore(keys.ENDED(), "-inf", f"({at_ms}", 0, limit)
        return cast("list[str]", found)

    def tombstone(self, job_id: str, org_id: str) -> Tombstone | None:
        """What is left to say of an archived job of this org; None where there was none."""
        with store_errors():
            row = cast("str | None", self._redis.get(keys.TOMBSTONE(job_id)))
        if row is None:
            return None
        owner, state, finished_at_ms = row.rsplit("|", 2)
        return Tombstone(State(state), int(finished_at_ms)) if owner == org_id else None

    def job(self, job_id: str, org_id: str | None = None) -> JobView | None:
        """A job with its history; `org_id` None is for operators, who see every org."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            _ask_job(pipe, job_id)
            pipe.lrange(keys.HISTORY(job_id), 0, -1)
            fields, options, error, history = pipe.execute()
        if not fields or (org_id is not None and fields.get("org_id") != org_id):
            return None
        job = job_from_fields(job_id, fields, options, error)
        moves = (transition_from_row(row) for row in history)
        return JobView(job, (submission_of(job), *moves))

    def prompt(self, prompt_id: str, org_id: str | None = None) -> PromptView | None:
        """A prompt, its response and its jobs, in two round trips."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.PROMPT(prompt_id))
            pipe.get(keys.TEXT(prompt_id))
            pipe.get(keys.METADATA(prompt_id))
            for key in (keys.REPLACED, keys.EDGES, keys.LEDGER, keys.AUDIT):
                pipe.lrange(key(prompt_id), 0, -1)
            fields, text, metadata, replaced, edges, ledger, audit = pipe.execute()
            if not fields or (org_id is not None and fields["org_id"] != org_id):
                return None
            job_ids = [*replaced, fields["job_id"]]
            response_id = fields.get("response_id")
            pipe = self._redis.pipeline(transaction=True)
            for job_id in job_ids:
                _ask_job(pipe, job_id)
            pipe.hgetall(keys.RESPONSE(response_id or ""))
            pipe.get(keys.TEXT(response_id or ""))
            *job_replies, response_fields, response_text = pipe.execute()
        jobs = [
            job_from_fields(job_id, *job_replies[3 * n : 3 * n + 3])
            for n, job_id in enumerate(job_ids)
            if job_replies[3 * n]
        ]
        response = None
        if response_id and response_fields:
            response = response_from_fields(response_id, response_fields, response_text)
        return PromptView(
            prompt=prompt_from_fields(prompt_id, fields, text, metadata),
            response=response,
            response_created_at_ms=int(response_fields["created_at"]) if response else None,
            jobs=tuple(jobs),
            edges=tuple(Edge(*row.split("|", 2)) for row in edges),
            ledger=tuple(_ledger_row(row) for row in ledger),
            audit=tuple(_audit_row(row) for row in audit),
        )


def _waiting_on(reply: Sequence[Any]) -> WaitingOn | None:
    reason, *rest = reply
    if not reason:
        return None
    until_ms, ahead = rest
    return WaitingOn(
        reason,
        int(float(until_ms)) if until_ms else None,
        int(ahead) if ahead != "" else None,
    )


def _ask_job(pipe: Any, job_id: str) -> None:
    pipe.hgetall(keys.JOB(job_id))
    pipe.get(keys.OPTIONS(job_id))
    pipe.get(keys.ERROR(job_id))


def _ledger_row(row: str) -> LedgerRow:
    at_ms, job_id, attempt, usage = row.split("|", 3)
    return LedgerRow(int(at_ms), job_id, int(attempt), json.loads(usage))


def _audit_row(row: str) -> AuditRow:
    at_ms, verb, job_id, attempt, detail = row.split("|", 4)
    return AuditRow(int(at_ms), verb, job_id, int(attempt), detail)
