"""How is a record spelled in Redis? From the fields of a hash to the values of the domain."""

from __future__ import annotations

import json
from collections.abc import Mapping

from jobs.domain.entities import Prompt, Response, Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.job import Job, Kind, Transition
from jobs.domain.states import State, Verb


def whole(fields: Mapping[str, str], name: str) -> int | None:
    """A number of a hash, None where it has none."""
    value = fields.get(name)
    return int(value) if value else None


def job_from_fields(
    job_id: str, fields: Mapping[str, str], options: str | None, error_message: str | None
) -> Job:
    """The job of a hash; KeyError or ValueError where the record is not one of ours."""
    kind = fields.get("error_kind")
    return Job(
        id=job_id,
        prompt_id=fields["prompt_id"],
        kind=Kind(fields["kind"]),
        state=State(fields["state"]),
        priority=int(fields["priority"]),
        attempt=int(fields["attempt"]),
        max_attempts=int(fields["max_attempts"]),
        execution_options=json.loads(options) if options else {},
        org_id=fields["org_id"],
        created_by=fields["created_by"],
        target=fields["target"],
        schema_version=int(fields["schema_version"]),
        seq=int(fields["seq"]),
        created_at_ms=int(fields["created_at"]),
        updated_at_ms=int(fields["updated_at"]),
        worker_claim=fields.get("worker_claim"),
        claimed_at_ms=whole(fields, "claimed_at"),
        started_at_ms=whole(fields, "started_at"),
        running_heartbeat_at_ms=whole(fields, "running_heartbeat_at"),
        finished_at_ms=whole(fields, "finished_at"),
        run_at_ms=whole(fields, "run_at"),
        scheduled_for_ms=whole(fields, "scheduled_for"),
        depends_on=fields.get("depends_on"),
        response_id=fields.get("response_id"),
        error_kind=ErrorKind(kind) if kind else None,
        error_message=error_message,
        supersedes=fields.get("supersedes"),
        superseded_by=fields.get("superseded_by"),
        root_id=fields.get("root_id", job_id),
        outcome=State(fields["outcome"]) if "outcome" in fields else None,
        team_id=fields.get("team_id"),
        reserved_usd_micros=whole(fields, "reserved"),
    )


def submission_of(job: Job) -> Transition:
    """The first transition of a job, which its record tells."""
    reason = "supersede" if job.supersedes else ""
    return Transition(job.seq, job.created_at_ms, Verb.SUBMIT, None, State.QUEUED, 1, reason)


def transition_from_row(row: str) -> Transition:
    """One row of a job's history."""
    seq, at_ms, verb, source, target, attempt, reason = row.split("|", 6)
    return Transition(
        seq=int(seq),
        at_ms=int(at_ms),
        verb=verb,
        source=State(source) if source else None,
        target=State(target),
        attempt=int(attempt),
        reason=reason,
    )


def prompt_from_fields(
    prompt_id: str, fields: Mapping[str, str], text: str | None, metadata: str | None
) -> Prompt:
    """The prompt of a hash; a conversation's first prompt is its own correlation id (A18)."""
    return Prompt(
        id=prompt_id,
        org_id=fields["org_id"],
        created_by=fields["created_by"],
        text=text or "",
        parent_id=fields.get("parent_id"),
        correlation_id=fields.get("correlation_id", prompt_id),
        causation_id=fields.get("causation_id"),
        metadata=json.loads(metadata) if metadata else {},
        created_at_ms=int(fields["created_at"]),
    )


def response_from_fields(response_id: str, fields: Mapping[str, str], text: str | None) -> Response:
    """The response of a hash."""
    return Response(
        id=response_id,
        text=text or "",
        provider=fields["provider"],
        model=fields["model"],
        provider_request_id=fields.get("provider_request_id"),
        finish_reason=fields["finish_reason"],
        usage=Usage(whole(fields, "prompt_tokens"), whole(fields, "completion_tokens")),
        cost_usd_micros=whole(fields, "cost_usd_micros"),
        source_refs=tuple(json.loads(fields["source_refs"])),
        truth_class=fields["truth_class"],
        state_class=fields["state_class"],
    )
