"""What does an ordinary chat request look like in a test, as the store shows it?"""

from __future__ import annotations

from typing import Any

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, Delivery, Failure
from jobs.domain.turn_plan import Plan, Task
from jobs.store.turns import RequestStatus, RequestView

JOB_ID = "0123abcd-0000-4000-8000-00000000beef"
REQUEST_ID = "req_0123abcd00004000800000000000beef"
CREATED_AT_MS = 1_790_000_000_000


def request_view(**changes: Any) -> RequestView:
    """A request of client `c1` and user `ada` that runs, with `changes`."""
    values: dict[str, Any] = {
        "job_id": JOB_ID,
        "client_id": "c1",
        "user_id": "ada",
        "status": RequestStatus.PROCESSING,
        "escalated": False,
        "delivery": Delivery.POLLING,
        "webhook_url": None,
        "message": "Chart the Q3 numbers",
        "result": None,
        "awaiting": None,
        "question": None,
        "error_kind": None,
        "error_message": None,
        "state": None,
        "detail": "",
        "entries": (),
        "attempts": 0,
        "created_at_ms": CREATED_AT_MS,
        "ended_at_ms": None,
    }
    return RequestView(**{**values, **changes})


def failed_attempt(number: int = 1, reason: str = "the report timed out") -> AttemptEntry:
    """A failed attempt with a plan of one task."""
    plan = Plan((Task("assistant", f"Fetch the numbers, way {number}"),))
    return AttemptEntry(number, plan, Failure(ErrorKind.TIMEOUT, reason))
