"""How does a test get a delivery? By a chat turn whose chain of attempts ends."""

from __future__ import annotations

from jobs.domain.client_keys import client_id_of
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Delivery,
    Failure,
    NextAttempt,
)
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan, Task
from jobs.store.queue import Queue
from jobs.store.turns import NewTurn, Turns
from tests.support.factories import claim_one, new_id, response_for

KEY = "fmc_0123456789abcdef"
CLIENT = client_id_of(KEY)
USER = "user-1"
MESSAGE = "Pull the Q3 numbers — ünïcode, 1.0, 12345678901234567890."
POLICY = ChainPolicy(max_attempts=1, idle_timeout_s=900, deadline_s=None)


def end_chain(
    turns: Turns,
    queue: Queue,
    url: str,
    *,
    client_id: str = CLIENT,
    user_id: str = USER,
    delivery: Delivery = Delivery.WEBHOOK,
    answer: str | None = None,
) -> str:
    """End the chain of a fresh turn, which is due for delivery then: with `answer`, or else as
    budget_exhausted. Answers the request's job id, which is the delivery's id."""
    new = NewTurn(new_id(), new_id(), client_id, user_id, "acme", MESSAGE, delivery, url)
    turns.submit(new)
    attempt = claim_one(queue)
    assert attempt.job.id == new.id
    begun = TurnLeft(entry=_entry(1), next=NextAttempt(0), policy=POLICY)
    queue.fail(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "in vain", turn=begun)
    attempt = claim_one(queue)
    assert attempt.job.root_id == new.id
    if answer is not None:
        response = response_for(attempt, text=answer)
        queue.succeed(attempt.job.id, attempt.token, response, turn=TurnLeft())
    else:
        end = ChainEnd(ChainState.BUDGET_EXHAUSTED, "all 1 async attempt(s) failed")
        left = TurnLeft(entry=_entry(2), end=end)
        queue.fail(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "in vain", turn=left)
    return new.id


def _entry(number: int) -> AttemptEntry:
    plan = Plan((Task("assistant", f"Try {number}"),))
    return AttemptEntry(number, plan, Failure(ErrorKind.TIMEOUT, f"try {number} timed out"))
