"""Does the log say what became of an attempt, and warn only of what went wrong?"""

from __future__ import annotations

import logging

import pytest

from jobs.domain import abort
from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.job import Attempt, Kind
from jobs.domain.outcome import Succeeded
from jobs.store.queue import Queue
from jobs.worker.attempt import SHUTDOWN, AttemptRunner, Handler
from jobs.worker.heartbeat import Heartbeat
from tests.support.factories import claim_one, new_job, response_for


def told(queue: Queue, handler: Handler, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """Level and words of the line in which an attempt that `handler` runs is told of."""
    job = new_job(max_attempts=1)
    queue.submit(job)
    attempt = claim_one(queue)
    runner = AttemptRunner(
        queue,
        {Kind.PROMPT: handler},
        Heartbeat(queue, interval_s=30, window_s=90),
        patience_s=5,
        jitter=lambda _spread_s: 0.0,
        issue_ticket=lambda: None,
    )
    with caplog.at_level(logging.INFO, "jobs.worker.attempt"):
        runner.run(attempt, runner.scope(attempt))
    (line,) = [row for row in caplog.records if row.name == "jobs.worker.attempt"]
    return line.levelname, line.getMessage().partition("attempt 1: ")[2]


class Answers:
    """A handler that answers after `first` was done."""

    budget_s = 30.0

    def __init__(self, queue: Queue, first: str = "") -> None:
        self._queue = queue
        self._first = first

    def __call__(self, attempt: Attempt) -> Succeeded:
        scope = abort.current()
        assert scope is not None
        match self._first:
            case "fail":
                raise AttemptError(ErrorKind.PROVIDER_4XX, "declined")
            case "cancel":
                self._queue.cancel(attempt.job.id, attempt.job.org_id)
            case "be cancelled":
                scope.abort("cancelled")
                scope.check()
            case "lose the lease":
                scope.abort("the lease is lost")
                scope.check()
            case "leave":
                scope.abort(SHUTDOWN)
                scope.check()
        return Succeeded(response_for(attempt))


@pytest.mark.parametrize(
    ("first", "level", "words"),
    [
        ("", "INFO", "succeeded, recorded"),
        ("fail", "INFO", "failed, recorded"),
        ("leave", "INFO", "snooze, recorded"),
        ("be cancelled", "INFO", "abandoned, cancelled"),
        ("cancel", "WARNING", "succeeded, refused: WRONG_STATE"),
        ("lose the lease", "WARNING", "abandoned, NOT_WRITTEN: the lease is lost"),
    ],
)
def test_an_attempt_is_told_of_in_words_and_only_a_refusal_is_a_warning(
    queue: Queue,
    caplog: pytest.LogCaptureFixture,
    first: str,
    level: str,
    words: str,
) -> None:
    assert told(queue, Answers(queue, first), caplog) == (level, words)
