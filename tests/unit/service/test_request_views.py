"""Is what is told of a chat request what its record says, and nothing else?"""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState, Delivery
from jobs.domain.escalation_text import escalation_text
from jobs.domain.turn_plan import Awaiting
from jobs.store.turns import LogEntry, RequestStatus
from service.request_views import (
    CANCELLED_TEXT,
    LINE_MAX_CHARS,
    as_first_told,
    decision_line,
    is_answered,
    status_envelope,
    turn_envelope,
)
from service.schemas.chat import ChatResponseSchema
from service.schemas.requests import RequestStatusSchema
from tests.support.chat_requests import (
    CREATED_AT_MS,
    JOB_ID,
    REQUEST_ID,
    failed_attempt,
    request_view,
)

ENDED_AT_MS = CREATED_AT_MS + 1500
ENTRIES = (failed_attempt(1, "r1"), failed_attempt(2, "r2"), failed_attempt(3, "r1"))
GIVEN_UP = {
    "status": RequestStatus.FAILED,
    "escalated": True,
    "state": ChainState.BUDGET_EXHAUSTED,
    "detail": "all 2 async attempt(s) failed",
    "entries": ENTRIES,
    "attempts": 3,
    "ended_at_ms": ENDED_AT_MS,
}
ACHIEVED = {
    "status": RequestStatus.COMPLETED,
    "escalated": True,
    "state": ChainState.ACHIEVED,
    "result": "42",
    "entries": ENTRIES[:1],
    "attempts": 2,
    "ended_at_ms": ENDED_AT_MS,
}


def answer(**changes: Any) -> dict[str, Any]:
    """The answer to a message as it is sent."""
    dumped: dict[str, Any] = ChatResponseSchema().dump(turn_envelope(request_view(**changes)))
    return dumped


def status(**changes: Any) -> dict[str, Any]:
    """What a poll gets, as it is sent."""
    dumped: dict[str, Any] = RequestStatusSchema().dump(status_envelope(request_view(**changes)))
    return dumped


@pytest.mark.req("C1")
def test_a_completed_turn_is_told_in_the_envelope_with_its_answer() -> None:
    assert answer(status=RequestStatus.COMPLETED, result="42", ended_at_ms=ENDED_AT_MS) == {
        "object": "chat_response",
        "type": "chat.turn.completed",
        "success": True,
        "request": {"id": REQUEST_ID},
        "data": {
            "role": "assistant",
            "content": "42",
            "status": "completed",
            "metadata": {"escalated": False, "request_id": REQUEST_ID, "delivery": None},
        },
    }


@pytest.mark.req("C8", "C10")
@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("state", [RequestStatus.QUEUED, RequestStatus.PROCESSING])
def test_an_escalated_turn_carries_the_fixed_text_byte_for_byte(
    delivery: Delivery, state: RequestStatus
) -> None:
    told = answer(status=state, escalated=True, delivery=delivery, entries=ENTRIES[:1])
    assert told["type"] == "chat.turn.escalated"
    assert told["success"] is True
    assert told["data"]["status"] == "escalated"
    assert told["data"]["content"] == escalation_text(REQUEST_ID, delivery)
    assert told["data"]["metadata"] == {
        "escalated": True,
        "request_id": REQUEST_ID,
        "delivery": delivery.value,
    }


@pytest.mark.req("C8", "X4")
def test_once_its_chain_has_ended_the_answer_is_that_end_and_still_says_escalated() -> None:
    achieved = answer(**ACHIEVED)
    assert (achieved["data"]["status"], achieved["data"]["content"]) == ("completed", "42")
    assert achieved["data"]["metadata"] == {
        "escalated": True,
        "request_id": REQUEST_ID,
        "delivery": "polling",
    }
    given_up = answer(**GIVEN_UP)
    assert (given_up["data"]["status"], given_up["data"]["content"]) == ("failed", None)
    assert (given_up["success"], given_up["data"]["metadata"]["escalated"]) == (False, True)
    assert given_up["data"]["metadata"]["report"]["detail"] == "all 2 async attempt(s) failed"
    assert "error" not in given_up["data"]


@pytest.mark.req("C8")
@pytest.mark.parametrize("over", [GIVEN_UP, ACHIEVED])
def test_who_has_waited_from_the_start_is_told_of_the_chain_however_quick_it_was(
    over: dict[str, Any],
) -> None:
    told = ChatResponseSchema().dump(turn_envelope(as_first_told(request_view(**over))))
    assert told == answer(escalated=True)
    for other in (
        request_view(status=RequestStatus.COMPLETED, result="42"),
        request_view(status=RequestStatus.FAILED),
        request_view(status=RequestStatus.CANCELLED, escalated=True, state=ChainState.ABANDONED),
    ):
        assert as_first_told(other) == other


@pytest.mark.req("C3")
@pytest.mark.parametrize("awaiting", list(Awaiting))
def test_a_turn_that_waits_for_a_human_returns_its_question(awaiting: Awaiting) -> None:
    waiting = {
        "status": RequestStatus(f"awaiting_{awaiting}"),
        "awaiting": awaiting,
        "question": "Which quarter?",
    }
    told = answer(**waiting)
    assert told["data"]["content"] == "Which quarter?"
    assert told["data"]["status"] == f"awaiting_{awaiting}"
    assert told["data"]["metadata"]["awaiting"] == awaiting.value
    polled = status(**waiting)["data"]
    assert (polled["status"], polled["question"]) == (f"awaiting_{awaiting}", "Which quarter?")


@pytest.mark.req("C3")
def test_a_cancelled_turn_says_so_in_a_sentence_of_its_own() -> None:
    told = answer(status=RequestStatus.CANCELLED, ended_at_ms=ENDED_AT_MS)
    assert (told["data"]["status"], told["data"]["content"]) == ("cancelled", CANCELLED_TEXT)
    assert told["success"] is False


@pytest.mark.req("C3", "C9")
def test_a_failure_without_a_chain_is_the_error_itself() -> None:
    failed = {
        "status": RequestStatus.FAILED,
        "error_kind": ErrorKind.AUTH,
        "error_message": "assistant: no key",
        "ended_at_ms": ENDED_AT_MS,
    }
    error = {"kind": "auth", "message": "assistant: no key"}
    told = answer(**failed)
    assert (told["data"]["status"], told["data"]["error"]) == ("failed", error)
    assert (told["success"], told["data"]["metadata"]["escalated"]) == (False, False)
    polled = status(**failed)["data"]
    assert polled["error"] == error
    assert not {"escalated", "report", "result", "question"} & set(polled)


@pytest.mark.req("C15")
def test_a_poll_sees_escalated_from_the_start_of_the_chain_and_not_before() -> None:
    before = status()
    assert (before["object"], before["type"]) == ("request_status", "request.status.retrieved")
    assert before["success"] is True
    assert set(before["data"]) == {"request_id", "user_id", "status", "created_at", "ended_at"}
    after = status(escalated=True, entries=ENTRIES[:1])
    assert after["data"] == {**before["data"], "escalated": True}


@pytest.mark.req("C15", "C13")
def test_a_chain_that_gave_up_is_failed_with_its_report_and_no_result() -> None:
    data = status(**GIVEN_UP)["data"]
    assert (data["status"], data["escalated"]) == ("failed", True)
    assert not {"result", "error", "question"} & set(data)
    assert data["report"] == {
        "state": "budget_exhausted",
        "detail": "all 2 async attempt(s) failed",
        "request_id": REQUEST_ID,
        "original_message": "Chart the Q3 numbers",
        "attempts": [
            {
                "attempt": entry.number,
                "kind": "sync" if entry.number == 1 else "async",
                "plan_summary": f"Fetch the numbers, way {entry.number}",
                "failure_reason": entry.failure.reason,
            }
            for entry in ENTRIES
        ],
        "what_would_unblock": "Address the underlying failure(s) and resubmit: r1; r2",
        "wall_time_seconds": 1.5,
    }


@pytest.mark.req("C15")
def test_a_chain_that_has_its_answer_is_completed_with_it_and_no_report() -> None:
    data = status(**ACHIEVED)["data"]
    assert (data["status"], data["escalated"], data["result"]) == ("completed", True, "42")
    assert "report" not in data


@pytest.mark.req("C13", "C15")
def test_the_report_of_an_abandoned_chain_can_be_read_where_nobody_is_told() -> None:
    data = status(**{**GIVEN_UP, "status": RequestStatus.CANCELLED, "state": ChainState.ABANDONED})
    assert data["data"]["status"] == "cancelled"
    assert data["data"]["report"]["state"] == "abandoned"


def test_a_request_of_no_user_shows_none() -> None:
    assert status(user_id="")["data"]["user_id"] is None
    assert status()["data"]["user_id"] == "ada"


@pytest.mark.req("C1", "C8")
def test_a_caller_is_answered_at_the_end_or_at_the_start_of_the_chain() -> None:
    assert not is_answered(request_view(status=RequestStatus.QUEUED))
    assert not is_answered(request_view(status=RequestStatus.PROCESSING))
    assert is_answered(request_view(status=RequestStatus.QUEUED, escalated=True))
    for one in set(RequestStatus) - {RequestStatus.QUEUED, RequestStatus.PROCESSING}:
        assert is_answered(request_view(status=one))


def entry(**changes: Any) -> LogEntry:
    """A line of the log for a chain that gave up, with `changes`."""
    values: dict[str, Any] = {
        "at_ms": ENDED_AT_MS,
        "request_job_id": JOB_ID,
        "state": ChainState.BUDGET_EXHAUSTED,
        "attempts": 3,
        "detail": "all 2 async attempt(s) failed",
        "reasons": ("r1", "r2"),
    }
    return LogEntry(**{**values, **changes})


@pytest.mark.req("C14")
def test_a_decision_is_a_line_that_says_what_it_would_take() -> None:
    assert decision_line(entry()) == (
        f"Gave up on {REQUEST_ID} after 3 attempts: all 2 async attempt(s) failed. To unblock:"
        " Address the underlying failure(s) and resubmit: r1; r2"
    )
    unplanned = decision_line(entry(reasons=()))
    assert unplanned == f"Gave up on {REQUEST_ID} after 3 attempts: all 2 async attempt(s) failed."
    abandoned = entry(state=ChainState.ABANDONED, attempts=1, detail="cancelled while it ran")
    assert decision_line(abandoned) == (
        f"Let go of {REQUEST_ID} after 1 attempt: cancelled while it ran."
    )


@pytest.mark.req("C14")
@pytest.mark.parametrize(
    "sign",
    [*"\n\r\t\x0b\x0c\x1b\x85\u2028\u2029\u202e\u2066\u200b\u0000", "\r\n"],
    ids=ascii,
)
def test_nothing_from_outside_makes_a_second_line_or_hides_one(sign: str) -> None:
    forged = f"x{sign}Gave up on req_other after 1 attempt"
    line = decision_line(entry(detail=forged, reasons=(forged,)))
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert line.count("x Gave up on req_other") == 2


@pytest.mark.req("C14")
def test_a_line_has_an_end() -> None:
    line = decision_line(entry(reasons=("y" * 100_000,)))
    assert len(line) == LINE_MAX_CHARS
    assert line.endswith("…")
