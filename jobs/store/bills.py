"""How is a bill handed to a script? One text: its sums, then a line a call (B17)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from jobs.domain.billing import Bill, BilledCall, Payer, usage_event
from jobs.domain.canonical_json import compact_json
from jobs.domain.job import Job


def payer_of(job: Job) -> Payer:
    """On whose account a generation runs."""
    options = job.execution_options
    return Payer(
        team_id=job.team_id or "",
        org_id=job.org_id,
        generation_id=job.id,
        invocation_id=str(options.get("invocation_id", "")),
        hog_flow_id=options.get("hog_flow_id"),
    )


def events_of(job: Job, bill: Bill | None) -> list[Mapping[str, Any]]:
    """What a reporter gets to see of the calls of an attempt."""
    payer = payer_of(job)
    calls = enumerate(bill.calls if bill else ())
    return [usage_event(call, payer, _event_id(job, n)) for n, call in calls]


def bill_text(job: Job, bill: Bill | None, *, is_captured: bool) -> str:
    """The ARGV `bill` of the scripts that settle; "" where there is none. Usage and event are
    compact JSON, in which neither tab nor newline occurs. `is_captured` also puts the events
    where a reporter takes them from."""
    if bill is None:
        return ""
    head = f"{bill.spent_usd_micros}|{bill.unsettled_usd_micros}|{int(is_captured)}"
    rows = [
        f"{compact_json(_usage(call))}\t{compact_json(event)}"
        for call, event in zip(bill.calls, events_of(job, bill), strict=True)
    ]
    return "\n".join([head, *rows])


def _event_id(job: Job, number: int) -> str:
    """The same for the same call of the same attempt, and for no other."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"genqueue:{job.id}:{job.worker_claim}:{number}"))


def _usage(call: BilledCall) -> Mapping[str, Any]:
    return {
        "prompt_tokens": call.usage.prompt_tokens,
        "completion_tokens": call.usage.completion_tokens,
        "cost_usd_micros": call.cost_usd_micros,
        "provider": call.provider,
        "model": call.model,
        "provider_request_id": call.provider_request_id,
        "pass": call.pass_number,
        "error": call.error or None,
    }
