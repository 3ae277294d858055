"""What is told of a chat request: as an answer to its message, as a status, as a line of a log?

(C3, C8, C9, C14, C15) All of it from what is recorded; nothing here asks or keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState
from jobs.domain.escalation_text import escalation_text
from jobs.domain.give_up_report import report, what_would_unblock
from jobs.domain.request_ids import request_id_of
from jobs.store.turns import LogEntry, RequestStanding, RequestStatus, RequestView

ESCALATED: Final = "escalated"
"""What the answer to a message is where the chain still runs; its request is `processing`."""

CANCELLED_TEXT: Final = "This request was cancelled. Nothing more will be done for it."
UNKNOWN_FAILURE: Final = "The turn failed, and its record does not say why."
LINE_MAX_CHARS: Final = 1_000

AWAITING: Final = frozenset(
    {
        RequestStatus.AWAITING_CLARIFICATION,
        RequestStatus.AWAITING_APPROVAL,
        RequestStatus.AWAITING_CREDENTIAL,
    }
)
_RUNS: Final = frozenset({RequestStatus.QUEUED, RequestStatus.PROCESSING})
_WITHOUT_SUCCESS: Final = frozenset({RequestStatus.FAILED, RequestStatus.CANCELLED})


def is_answered(view: RequestView | RequestStanding) -> bool:
    """Whether the caller's turn is over: it ended, or it goes on without the caller."""
    return view.escalated or view.status not in _RUNS


def as_first_told(view: RequestView) -> RequestView:
    """The request for who has waited since it was sent: a turn that failed is told as escalated
    also where its chain was quick and is over (C8). One that was cancelled is told so."""
    if not view.escalated or view.status is RequestStatus.CANCELLED:
        return view
    return replace(view, status=RequestStatus.PROCESSING, state=None)


def turn_status(view: RequestView) -> str:
    """The status of the answer to the message: that of the request, and `escalated` while its
    chain runs. A chain that has ended since is told by its end."""
    if view.status in _RUNS:
        return ESCALATED if view.escalated else RequestStatus.PROCESSING.value
    return view.status.value


def turn_envelope(view: RequestView) -> dict[str, Any]:
    """The answer to the message, for ChatResponseSchema (C8, C9)."""
    request_id, status = request_id_of(view.job_id), turn_status(view)
    metadata: dict[str, Any] = {
        "escalated": view.escalated,
        "request_id": request_id,
        "delivery": view.delivery if view.escalated else None,
    }
    if view.status in AWAITING:
        metadata["awaiting"] = view.awaiting
    if (account := report_of(view)) is not None:
        metadata["report"] = account
    data = {"content": _content(view, status), "status": status, "metadata": metadata}
    if view.status is RequestStatus.FAILED and not view.escalated:
        data["error"] = error_of(view)
    is_success = view.status not in _WITHOUT_SUCCESS
    return _enveloped(request_id, data, is_success=is_success)


def receipt_envelope(job_id: str) -> dict[str, Any]:
    """The answer while the turn goes on, or where its record can't be read now."""
    request_id = request_id_of(job_id)
    metadata = {"escalated": False, "request_id": request_id, "delivery": None}
    status = RequestStatus.PROCESSING.value
    data = {"content": None, "status": status, "metadata": metadata}
    return _enveloped(request_id, data, is_success=True)


def _enveloped(request_id: str, data: Mapping[str, Any], *, is_success: bool) -> dict[str, Any]:
    return {
        "object": "chat_response",
        "type": f"chat.turn.{data['status']}",
        "success": is_success,
        "request": {"id": request_id},
        "data": {"role": "assistant", **data},
    }


def _content(view: RequestView, status: str) -> str | None:
    if status == ESCALATED:
        return escalation_text(request_id_of(view.job_id), view.delivery)
    if view.status is RequestStatus.COMPLETED:
        return view.result or ""
    if view.status in AWAITING:
        return view.question or ""
    return CANCELLED_TEXT if view.status is RequestStatus.CANCELLED else None


def status_envelope(view: RequestView) -> dict[str, Any]:
    """The request as a poll sees it, for RequestStatusSchema (C15). What does not apply is left
    out: a chain is told from its start, its report once it has ended without an answer."""
    data: dict[str, Any] = {
        "request_id": request_id_of(view.job_id),
        "user_id": view.user_id or None,
        "status": view.status,
        "created_at_ms": view.created_at_ms,
        "ended_at_ms": view.ended_at_ms,
    }
    if view.escalated:
        data["escalated"] = True
    if view.status is RequestStatus.COMPLETED:
        data["result"] = view.result or ""
    if view.status in AWAITING:
        data["question"] = view.question or ""
    if (account := report_of(view)) is not None:
        data["report"] = account
    elif view.status is RequestStatus.FAILED:
        data["error"] = error_of(view)
    return {
        "object": "request_status",
        "type": "request.status.retrieved",
        "success": True,
        "data": data,
    }


def error_of(view: RequestView) -> dict[str, str]:
    """Kind and message of a failure that was not escalated (C3)."""
    kind = view.error_kind or ErrorKind.UNKNOWN
    return {"kind": kind.value, "message": view.error_message or UNKNOWN_FAILURE}


def report_of(view: RequestView) -> dict[str, Any] | None:
    """The give-up report of a chain that has ended without an answer (C13), else None. An
    abandoned one is pushed to nobody: here it can be read."""
    if view.state is None or view.state is ChainState.ACHIEVED:
        return None
    return report(
        state=view.state,
        detail=view.detail,
        request_id=request_id_of(view.job_id),
        original_message=view.message or "",
        entries=view.entries,
        created_at_ms=view.created_at_ms,
        ended_at_ms=view.ended_at_ms or view.created_at_ms,
    )


def log_entries(entries: Sequence[LogEntry]) -> list[dict[str, Any]]:
    """The lines of a day's captain's log, for CaptainsLogSchema (C14)."""
    return [
        {
            "at_ms": entry.at_ms,
            "request_id": request_id_of(entry.request_job_id),
            "state": entry.state,
            "decision": decision_line(entry),
        }
        for entry in entries
    ]


def decision_line(entry: LogEntry) -> str:
    """One line that says what was decided, and what it would take; at most LINE_MAX_CHARS."""
    request_id = request_id_of(entry.request_job_id)
    done = "Let go of" if entry.state is ChainState.ABANDONED else "Gave up on"
    attempts = "1 attempt" if entry.attempts == 1 else f"{entry.attempts} attempts"
    detail = entry.detail.rstrip(".")
    line = f"{done} {request_id} after {attempts}: {detail}."
    if entry.reasons and entry.state is not ChainState.ABANDONED:
        line += f" To unblock: {what_would_unblock(entry.state, entry.reasons)}"
    return _one_line(line)


def _one_line(text: str) -> str:
    """`text` without whatever could begin another line, hide one or turn it round."""
    visible = "".join(one if one.isprintable() else " " for one in text)
    line = re.sub(r"\s+", " ", visible).strip()
    return line if len(line) <= LINE_MAX_CHARS else line[: LINE_MAX_CHARS - 1] + "…"
