"""How does a job change? The write side: one method a verb, one round trip each (decision 4)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import (
    ErrorKind,
    IdempotencyKeyReusedError,
    RelatedEntityMissingError,
)
from jobs.domain.job import SCHEMA_MIN, SCHEMA_VERSION, Attempt, Kind, NewJob
from jobs.domain.states import Answer
from jobs.store.answers import (
    Claimed,
    ClaimRequest,
    Promoted,
    Reclaimed,
    Settled,
    Submitted,
    Superseded,
)
from jobs.store.codec import job_from_fields
from jobs.store.settlements import MESSAGE_MAX, REASON_MAX, Settlements, ended_chains, kept, settled


def _optional_json(value: Mapping[str, Any]) -> str:
    return compact_json(value) if value else ""


def _idempotency_part(org_id: str, key: str | None) -> str:
    """The part of the record's key: scoped to the org, of fixed length whatever the client sent."""
    if key is None:
        return ""
    return hashlib.sha256(json.dumps([org_id, key]).encode()).hexdigest()[:40]


class Queue(Settlements):
    """The write side of the store. `ticket_cap` bounds the tickets that wait at a time."""

    def submit(self, job: NewJob) -> Submitted:
        """Store prompt and job (A1). Raises IdempotencyKeyReusedError (X4),
        RelatedEntityMissingError (A18), StoreUnavailableError; ValueError where one of the
        ids is another job's or prompt's. Each stores nothing."""
        reply = self._scripts.run(
            "submit",
            job_id=job.id,
            prompt_id=job.prompt_id,
            org_id=job.org_id,
            user_id=job.created_by,
            kind=job.kind,
            target=job.target,
            priority=job.priority,
            max_attempts=job.max_attempts,
            text=job.prompt_text,
            options=_optional_json(job.execution_options),
            metadata=_optional_json(job.metadata),
            parent_id=job.parent_id,
            correlation_id=job.correlation_id,
            causation_id=job.causation_id,
            scheduled_for=job.scheduled_for_ms,
            depends_on=job.depends_on,
            idem=_idempotency_part(job.org_id, job.idempotency_key),
            payload_hash=job.payload_hash,
            team_id=job.team_id,
            step_inputs=_optional_json(job.step_inputs),
            request=_optional_json(job.request),
            target_url=job.target_url,
            ticket_cap=self._ticket_cap,
            schema_version=job.kind.schema_version,
        )
        if reply[0] == "TAKEN":
            raise ValueError(f"job {job.id} or prompt {job.prompt_id} is another one's id")
        if reply[0] == "REUSED":
            raise IdempotencyKeyReusedError(reply[1])
        if reply[0] == "UNRELATED":
            raise RelatedEntityMissingError(reply[1])
        if reply[0] == "DUPLICATE":
            return Submitted(reply[1], reply[2], replayed=True, ticket_wanted=False)
        return Submitted(job.id, job.prompt_id, replayed=False, ticket_wanted=bool(reply[1]))

    def claim(self, request: ClaimRequest) -> Claimed:
        """Lease up to `count` attempts, 1,000 at most (A5); a repeat with the same token
        takes no more. Raises ValueError without a token: it would answer a stranger's jobs."""
        if not request.token:
            raise ValueError("a claim needs a token")
        reply = self._scripts.run(
            "claim",
            token=request.token,
            count=request.count,
            ceiling=request.ceiling,
            window_ms=request.window_ms,
            schema_min=SCHEMA_MIN,
            schema_max=SCHEMA_VERSION,
            worker=request.worker,
            ticket_id=request.ticket_id,
            ticket_names=request.ticket_names,
        )
        if reply[0] == "REFUSED":
            return Claimed((), refused=reply[1])
        now_ms = int(reply[4])
        return Claimed(
            attempts=tuple(_attempt(item) for item in reply[5:]),
            more=bool(reply[3]),
            due_in_ms=int(reply[1]) - now_ms if reply[1] else None,
            sweep_age_ms=now_ms - int(reply[2]) if reply[2] else None,
        )

    def renew(self, held: Mapping[str, str], *, window_ms: int) -> dict[str, str]:
        """Lease what is held (job id to token) for another window (A7). Answers what is not
        ours any more: job id to its state, empty where the job is gone."""
        return _pairs(self._scripts.run("renew", window_ms=window_ms, held=_flat(held)))

    def check(self, held: Mapping[str, str]) -> dict[str, str]:
        """As `renew`, but only looks (A17)."""
        return _pairs(self._scripts.run("check", held=_flat(held)))

    def expire(self, job_id: str, kind: ErrorKind, message: str) -> Settled:
        """Fail a queued job that may never run (A3)."""
        reply = self._scripts.run(
            "expire",
            id=job_id,
            kind=kind,
            message=kept(message, MESSAGE_MAX),
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def cancel(
        self, job_id: str, org_id: str, reason: str = "", *, is_request: bool = False
    ) -> Settled:
        """End a queued or running job at once (A17). Where it `is_request`, `job_id` is the first
        job of a chat request, whose current attempt ends (C15)."""
        reply = self._scripts.run(
            "cancel",
            id=job_id,
            org_id=org_id,
            reason=kept(reason, REASON_MAX),
            is_request="1" if is_request else "",
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def supersede(self, job_id: str, new_id: str, org_id: str, user_id: str) -> Superseded:
        """Replace an ended job by the new job `new_id` for the same prompt (A16). A generation is
        not retried: nobody would collect it (FINAL)."""
        reply = self._scripts.run(
            "supersede",
            id=job_id,
            new_id=new_id,
            org_id=org_id,
            user_id=user_id,
            ticket_cap=self._ticket_cap,
            schema_version=Kind.PROMPT.schema_version,
        )
        if reply[0] == Answer.OK:
            return Superseded(Answer.OK, new_id, bool(reply[1]))
        return Superseded(Answer(reply[0]), reply[1] or None)

    def promote(self, limit: int = 100) -> Promoted:
        """Let due jobs and lanes whose gate has room again into the turn."""
        reply = self._scripts.run("promote", limit=limit, ticket_cap=self._ticket_cap)
        now_ms = int(reply[3])
        return Promoted(
            promoted=int(reply[0]),
            reopened=int(reply[1]),
            ticket_wanted=bool(reply[2]),
            due_in_ms=int(reply[4]) - now_ms if reply[4] else None,
            sweep_age_ms=now_ms - int(reply[5]) if reply[5] else None,
            ended_chains=ended_chains(reply[6]),
        )

    def reclaim(
        self, *, window_ms: int, interval_ms: int, ceiling_ms: int, limit: int = 100
    ) -> Reclaimed:
        """Take back attempts whose lease ended (A8, A12, decision 7)."""
        reply = self._scripts.run(
            "reclaim",
            window_ms=window_ms,
            interval_ms=interval_ms,
            ceiling_ms=ceiling_ms,
            limit=limit,
            ticket_cap=self._ticket_cap,
        )
        return Reclaimed(
            requeued=int(reply[1]),
            failed=int(reply[2]),
            renewed=reply[0] == "RENEWED",
            ticket_wanted=bool(reply[3]),
            since_ms=int(reply[4]) if reply[4] else None,
            dangling=int(reply[5]),
            failed_ids=tuple(reply[6]),
        )


def _flat(held: Mapping[str, str]) -> list[str]:
    return [part for pair in held.items() for part in pair]


def _pairs(reply: Iterable[str]) -> dict[str, str]:
    items = list(reply)
    return dict(zip(items[::2], items[1::2], strict=True))


def _attempt(item: Sequence[Any]) -> Attempt:
    job_id, token, text, options, record = item
    job = job_from_fields(job_id, _pairs(record), options or None, None)
    return Attempt(job=job, token=token, prompt_text=text)
