"""What is told of one job? Its record, history, its chat request, the jobs of its prompt, usage,
decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from jobs.domain.job import MAX_ATTEMPTS_LIMIT, Job, Kind
from jobs.runtime import Runtime
from jobs.store.records import AuditRow, JobView, LedgerRow, PromptView
from jobs.store.turn_codec import next_job_id
from jobs.store.turns import RequestView
from service.cli.jobs import error_named, request_named
from service.cli.moments import duration
from service.cli.output import (
    heading,
    print_fields,
    print_json,
    print_table,
    shown_block,
    state_cell,
)
from service.instants import rfc3339
from service.job_views import show_jobs, show_view
from service.schemas.jobs import JobDetailSchema, ShownJob
from service.schemas.prompts import PromptViewSchema, ShownPrompt

TEXT_SHOWN = 2000
"""Characters of a prompt or a response that people get to see; --json has all."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The chat request that a job is an attempt of: the first one, the turn itself, is 1. `view`
    is None where it is archived."""

    id: str
    attempt: int | None
    view: RequestView | None


def print_details(runtime: Runtime, view: JobView, *, as_json: bool) -> None:
    """Print a job with all that belongs to it."""
    details = show_view(runtime.records, view)
    prompt = runtime.records.prompt(view.job.prompt_id)
    request = _request(runtime, view.job)
    if as_json:
        print_json(_as_json(runtime, details, prompt, request))
        return
    is_generation = view.job.kind is Kind.GENERATION
    codes = runtime.generations.codes_of([view.job.id] if is_generation else [])
    _print_record(details, codes.get(view.job.id, ""), request)
    _print_history(details)
    if prompt is not None:
        _print_prompt(prompt, view.job)


def _request(runtime: Runtime, job: Job) -> _Request | None:
    request_id = request_named(job)
    if request_id is None:
        return None
    return _Request(request_id, _number_of(job), runtime.turns.read(job.root_id))


def _number_of(job: Job) -> int | None:
    """Which attempt of its request a job is: their ids follow from each other, also where earlier
    ones are archived."""
    job_id = job.root_id
    for number in range(1, MAX_ATTEMPTS_LIMIT + 2):
        if job_id == job.id:
            return number
        job_id = next_job_id(job_id)
    return None


def _as_json(
    runtime: Runtime, details: ShownJob, prompt: PromptView | None, request: _Request | None
) -> dict[str, Any]:
    value: dict[str, Any] = {"job": JobDetailSchema().dump(details)}
    if request is not None:
        value["request"] = _request_json(request)
    if prompt is not None:
        jobs = show_jobs(runtime.records, prompt.jobs)
        value["prompt"] = PromptViewSchema().dump(ShownPrompt(prompt, jobs))
        value["ledger"] = [_ledger_json(row) for row in prompt.ledger]
        value["audit"] = [_audit_json(row) for row in prompt.audit]
    return value


def _request_json(request: _Request) -> dict[str, Any]:
    """Where it is archived only which one it is, and which attempt of it the job."""
    value: dict[str, Any] = {"request_id": request.id, "attempt": request.attempt}
    view = request.view
    if view is not None:
        value |= {
            "status": view.status.value,
            "escalated": view.escalated,
            "attempts": view.attempts,
            "state": view.state.value if view.state else None,
            "detail": view.detail,
        }
    return value


def _ledger_json(row: LedgerRow) -> dict[str, Any]:
    return {
        "at": rfc3339(row.at_ms),
        "job_id": row.job_id,
        "attempt": row.attempt,
        "usage": dict(row.usage),
    }


def _audit_json(row: AuditRow) -> dict[str, Any]:
    return {
        "at": rfc3339(row.at_ms),
        "verb": row.verb,
        "job_id": row.job_id,
        "attempt": row.attempt,
        "detail": row.detail,
    }


def _print_record(details: ShownJob, code: str, request: _Request | None) -> None:
    job = details.job
    error = f"{error_named(job, code)}: {job.error_message or ''}" if job.error_kind else code
    options = json.dumps(job.execution_options, ensure_ascii=False)
    fields: list[tuple[str, str | Text]] = [
        ("job id", job.id),
        ("state", state_cell(job.state)),
        ("had ended", job.outcome.value if job.outcome else ""),
        ("waits on", _waiting(details)),
        ("org", job.org_id),
        ("created by", job.created_by),
        ("kind", job.kind.value),
        ("model", job.target),
        ("priority", str(job.priority)),
        ("attempt", f"{job.attempt} of {job.max_attempts}"),
        *_request_fields(request),
        ("options", options if job.execution_options else ""),
        ("error", error),
        ("prompt id", job.prompt_id),
        ("response id", job.response_id or ""),
        ("root job id", job.root_id if job.root_id != job.id else ""),
        ("supersedes", job.supersedes or ""),
        ("superseded by", job.superseded_by or ""),
        ("depends on", job.depends_on or ""),
        ("lease token", job.worker_claim or ""),
    ]
    fields += [(name, rfc3339(at_ms)) for name, at_ms in _instants(job) if at_ms is not None]
    print_fields(fields)


def _request_fields(request: _Request | None) -> list[tuple[str, str | Text]]:
    if request is None:
        return []
    fields: list[tuple[str, str | Text]] = [
        ("request id", request.id),
        ("attempt of it", str(request.attempt or "")),
    ]
    view = request.view
    if view is None:
        return [*fields, ("request", "archived")]
    chain = ""
    if view.escalated:
        chain = f"{view.state}: {view.detail}" if view.detail else str(view.state or "goes on")
    return [*fields, ("request", state_cell(view.status)), ("chain", chain)]


def _instants(job: Job) -> list[tuple[str, int | None]]:
    return [
        ("created", job.created_at_ms),
        ("scheduled for", job.scheduled_for_ms),
        ("runs at", job.run_at_ms),
        ("claimed", job.claimed_at_ms),
        ("heartbeat", job.running_heartbeat_at_ms),
        ("finished", job.finished_at_ms),
    ]


def _waiting(details: ShownJob) -> str:
    waiting = details.waiting_on
    if waiting is None:
        return ""
    text = waiting.reason
    if waiting.until_ms is not None:
        text += f", until {rfc3339(waiting.until_ms)}"
    if waiting.ahead is not None:
        text += f", {waiting.ahead} ahead in its lane"
    return text


def _print_history(details: ShownJob) -> None:
    heading("History")
    rows: list[tuple[str | Text, ...]] = []
    before_ms = None
    for move in details.history:
        took = "" if before_ms is None else f"+{duration(max(0, move.at_ms - before_ms))}"
        before_ms = move.at_ms
        state = state_cell(move.target)
        rows.append((rfc3339(move.at_ms), took, move.verb, state, str(move.attempt), move.reason))
    columns = ("at", "after", "verb", "to", "attempt", "reason")
    print_table(columns, rows, empty="It has not moved.")


def _print_prompt(prompt: PromptView, job: Job) -> None:
    if len(prompt.jobs) > 1:
        heading("Jobs of its prompt, oldest first")
        print_table(
            ("job id", "state", "attempt", "created", "created by", "error"),
            [_sibling(one) for one in prompt.jobs],
            empty="",
        )
    if prompt.ledger:
        heading("Ledger")
        _print_ledger(prompt.ledger)
    if prompt.audit:
        heading("Audit")
        print_table(
            ("at", "verb", "job id", "attempt", "detail"),
            [
                (rfc3339(row.at_ms), row.verb, row.job_id, str(row.attempt), row.detail)
                for row in prompt.audit
            ],
            empty="",
        )
    if prompt.prompt.text:
        heading("Prompt")
        click.echo(_cut(prompt.prompt.text))
    else:
        heading("Prompt: no longer kept")
    if prompt.response is not None and prompt.response.id == job.response_id:
        heading("Response")
        click.echo(_cut(prompt.response.text))


def _print_ledger(rows: Sequence[LedgerRow]) -> None:
    """A row a call; its pass where a call of these has one, as those of generations have."""
    columns = ["at", "job id", "attempt", "pass", "model", "tokens in", "tokens out", "cost in $"]
    cells = [_ledger_row(row) for row in rows]
    where = columns.index("pass")
    if not any(row[where] for row in cells):
        for one in (columns, *cells):
            del one[where]
    print_table(columns, cells, empty="")


def _sibling(job: Job) -> tuple[str | Text, ...]:
    return (
        job.id,
        state_cell(job.state),
        f"{job.attempt}/{job.max_attempts}",
        rfc3339(job.created_at_ms),
        job.created_by,
        str(job.error_kind or ""),
    )


def _ledger_row(row: LedgerRow) -> list[str]:
    usage = row.usage
    cost = usage.get("cost_usd_micros")
    return [
        rfc3339(row.at_ms),
        row.job_id,
        str(row.attempt),
        str(usage.get("pass") or ""),
        str(usage.get("model", "")),
        _number(usage.get("prompt_tokens")),
        _number(usage.get("completion_tokens")),
        "unknown" if cost is None else f"{cost / 1_000_000:.6f}",
    ]


def _number(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _cut(text: str) -> str:
    if len(text) <= TEXT_SHOWN:
        return shown_block(text)
    return f"{shown_block(text[:TEXT_SHOWN])}…\n({len(text)} characters; --json has all of them)"
