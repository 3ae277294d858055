"""What is stored about a job or a prompt? The read side: each view in one round trip or two."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from jobs.domain.entities import Prompt, Response
from jobs.domain.job import Job, Transition
from jobs.store import keys
from jobs.store.codec import (
    job_from_fields,
    prompt_from_fields,
    response_from_fields,
    transition_from_row,
)
from jobs.store.connection import store_errors


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


class Records:
    """Reads; nothing here writes. Another org's ids answer None, like ids that never were."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

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
        return JobView(job, tuple(transition_from_row(row) for row in history))

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
