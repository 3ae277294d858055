"""What does a delivery say? The bytes of its body, the same however often they are made (C16)."""

from __future__ import annotations

from typing import Any, Final

from jobs.domain.canonical_json import canonical_json
from jobs.domain.delivery import DeliveryKind
from jobs.domain.escalation import ChainState
from jobs.domain.give_up_report import report, report_markdown
from jobs.domain.request_ids import request_id_of
from jobs.store.turns import RequestView

WAKE_EVENT: Final = "$workflows_llm_generation_finished"
STEP_EVENT: Final = "$workflows_step_finished"


def outcome_body(kind: DeliveryKind, view: RequestView, first_at_ms: int) -> bytes:
    """The outcome of a chain that ended, as canonical JSON. `first_at_ms` is when it was first
    posted. A notification channel gets whom it is for and a text to show as well.

    Raises ValueError where the chain has not ended.
    """
    if view.state is None or view.ended_at_ms is None:
        raise ValueError("the chain has not ended")
    body: dict[str, Any] = {
        "request_id": request_id_of(view.job_id),
        "state": view.state.value,
        "attempts": view.attempts,
        "timestamp": first_at_ms / 1000,
    }
    if view.state is ChainState.ACHIEVED:
        body["result"] = text = view.result or ""
    else:
        body["report"] = report(
            view.state,
            view.detail,
            body["request_id"],
            view.message or "",
            view.entries,
            view.created_at_ms,
            view.ended_at_ms,
        )
        text = report_markdown(body["report"])
    if kind is DeliveryKind.CHANNEL:
        body |= {"user_id": view.user_id, "text": text}
    return canonical_json(body)


def wake_body(generation_id: str, team_id: str, wake_token: str) -> bytes:
    """The event that wakes who waits for a generation; it carries no output."""
    return canonical_json(
        {
            "event": WAKE_EVENT,
            "generation_id": generation_id,
            "team_id": team_id,
            "wake_token": wake_token,
        }
    )


def step_body(step_id: str, team_id: str, state: str) -> bytes:
    """The event that tells that a step of a workflow ended, and in which state; it carries no
    output."""
    return canonical_json(
        {"event": STEP_EVENT, "step_id": step_id, "team_id": team_id, "state": state}
    )
