"""What is told of one job? Its record, history, the jobs of its prompt, usage, decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from jobs.domain.job import Job, Kind
from jobs.runtime import Runtime
from jobs.store.records import AuditRow, JobView, LedgerRow, PromptView
from service.cli.jobs import error_named
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


def print_details(runtime: Runtime, view: JobView, *, as_json: bool) -> None:
    """Print a job with all that belongs to it."""
    details = show_view(runtime.records, view)
    prompt = runtime.records.prompt(view.job.prompt_id)
    if as_json:
        print_json(_as_json(runtime, details, prompt))
        return
    is_generation = view.job.kind is Kind.GENERATION
    codes = runtime.generations.codes_of([view.job.id] if is_generation else [])
    _print_record(details, codes.get(view.job.id, ""))
    _print_history(details)
    if prompt is not None:
        _print_prompt(prompt, view.job)


def _as_json(runtime: Runtime, details: ShownJob, prompt: PromptView | None) -> dict[str, Any]:
    value: dict[str, Any] = {"job": JobDetailSchema().dump(details)}
    if prompt is not None:
        jobs = show_jobs(runtime.records, prompt.jobs)
        value["prompt"] = PromptViewSchema().dump(ShownPrompt(prompt, jobs))
        value["ledger"] = [_ledger_json(row) for row in prompt.ledger]
        value["audit"] = [_audit_json(row) for row in prompt.audit]
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


def _print_record(details: ShownJob, code: str) -> None:
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
