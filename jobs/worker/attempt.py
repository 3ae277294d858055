"""How does an attempt go? Admit, run, decide, settle, announce; it ends in a value (decision 6)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from jobs import logs, metrics
from jobs.domain.abort import AbortScope, entered
from jobs.domain.entities import Response
from jobs.domain.errors import (
    AttemptAbortedError,
    AttemptError,
    ErrorKind,
    StoreUnavailableError,
)
from jobs.domain.job import Attempt, Kind
from jobs.domain.outcome import Abandoned, Failed, Outcome, Retry, Snooze, Succeeded
from jobs.domain.retry import Jitter, decide
from jobs.domain.states import Answer
from jobs.store.answers import Settled
from jobs.store.queue import Queue
from jobs.worker.heartbeat import Heartbeat

logger = logging.getLogger(__name__)

SHUTDOWN: Final = "worker_shutdown"
"""The reason of an abort, and of the snooze it becomes, when the worker has to leave."""

SETTLE_PAUSE_MAX_S: Final = 2.0


class Handler(Protocol):
    """What a kind of job does; raises AttemptError or AttemptAbortedError."""

    def __call__(self, attempt: Attempt) -> Response:
        """The response to `attempt`."""
        ...


class AttemptRunner:
    """Runs claimed attempts, each in the thread that calls `run`.

    `call_budget_s` bounds one call (A11). `patience_s` is how long a finished attempt keeps
    trying to be written while Redis is away: a paid answer must survive an outage.
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Mapping[Kind, Handler],
        heartbeat: Heartbeat,
        *,
        call_budget_s: float,
        patience_s: float,
        jitter: Jitter,
        issue_ticket: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._handlers = handlers
        self._heartbeat = heartbeat
        self._call_budget_s = call_budget_s
        self._patience_s = patience_s
        self._jitter = jitter
        self._issue_ticket = issue_ticket
        self._leaving = threading.Event()

    def scope(self) -> AbortScope:
        """A fresh scope for one attempt; its time begins now."""
        return AbortScope(self._call_budget_s)

    def leave(self) -> None:
        """Stop waiting for a Redis that is away: the process has to end."""
        self._leaving.set()

    def run(self, attempt: Attempt, scope: AbortScope) -> Outcome:
        """Run one attempt to its end and write how it ended. Never raises."""
        job = attempt.job
        started_s = time.monotonic()
        self._heartbeat.add(attempt, scope)
        with (
            logs.bound(job_id=job.id, attempt=job.attempt, org=job.org_id),
            metrics.ATTEMPTS_RUNNING.track_inprogress(),
        ):
            try:
                outcome = self._outcome(attempt, scope)
                took_s = time.monotonic() - started_s
                settled = self._settle(attempt, outcome)
            finally:
                self._heartbeat.remove(attempt)
            self._announce(attempt, outcome, settled, took_s)
        return outcome

    def _outcome(self, attempt: Attempt, scope: AbortScope) -> Outcome:
        job = attempt.job
        try:
            with entered(scope):
                scope.check()
                return Succeeded(self._handlers[job.kind](attempt))
        except AttemptAbortedError:
            if scope.reason == SHUTDOWN:
                return Snooze(SHUTDOWN, after_ms=0)
            return Abandoned(scope.reason)
        except AttemptError as error:
            failure = error
        except Exception as error:
            # The text of a surprise may hold the prompt or a key: jobs.logs shows its class and
            # stack, and the record only its class.
            name = type(error).__name__
            logger.error("attempt of job %s raised %s", job.id, name, exc_info=error)
            failure = AttemptError(ErrorKind.UNKNOWN, f"unexpected {name}")
        return decide(failure, job.attempt, job.max_attempts, self._jitter)

    def _settle(self, attempt: Attempt, outcome: Outcome) -> Settled | None:
        """Write the outcome; None where Redis stayed away for longer than our patience."""
        give_up_at_s = time.monotonic() + self._patience_s
        pause_s = 0.05
        while True:
            try:
                return self._write(attempt, outcome)
            except StoreUnavailableError as error:
                is_late = time.monotonic() >= give_up_at_s
                if is_late or self._leaving.wait(pause_s):
                    logger.critical("job %s: outcome not written: %s", attempt.job.id, error)
                    return None
                pause_s = min(2 * pause_s, SETTLE_PAUSE_MAX_S)

    def _write(self, attempt: Attempt, outcome: Outcome) -> Settled | None:
        job_id, token = attempt.job.id, attempt.token
        match outcome:
            case Succeeded(response):
                return self._queue.succeed(job_id, token, response)
            case Retry(kind, message, after_ms):
                return self._queue.retry(job_id, token, kind, message, after_ms)
            case Snooze(reason, after_ms):
                return self._queue.snooze(job_id, token, reason, after_ms)
            case Failed(kind, message):
                return self._queue.fail(job_id, token, kind, message)
            case Abandoned():
                return None

    def _book(self, attempt: Attempt, outcome: Succeeded) -> None:
        """The answer is nobody's any more; that it was paid for stays true (X16)."""
        try:
            self._queue.book(attempt.job.id, attempt.job.attempt, outcome.response)
        except StoreUnavailableError as error:
            logger.warning("late usage of job %s not booked: %s", attempt.job.id, error)

    def _announce(
        self, attempt: Attempt, outcome: Outcome, settled: Settled | None, took_s: float
    ) -> None:
        job = attempt.job
        word = settled.answer if settled else "NOT_WRITTEN"
        verb = type(outcome).__name__.lower()
        error_kind = outcome.kind if isinstance(outcome, Retry | Failed) else ""
        metrics.ATTEMPTS.labels(job.kind, verb, error_kind).inc()
        metrics.ATTEMPT_SECONDS.labels(job.kind, verb).observe(took_s)
        fields = {"kind": job.kind, "outcome": verb, "duration_ms": round(took_s * 1000, 1)}
        if error_kind:
            fields["error_kind"] = error_kind
        level = logging.INFO if word == Answer.OK else logging.WARNING
        message = "job %s attempt %d: %s %s"
        logger.log(level, message, job.id, job.attempt, verb, word, extra={"fields": fields})
        is_refused = settled is not None and settled.answer != Answer.OK
        if isinstance(outcome, Succeeded) and is_refused:
            self._book(attempt, outcome)
        if settled and settled.ticket_wanted:
            try:
                self._issue_ticket()
            except StoreUnavailableError as error:
                logger.warning("no ticket issued: %s", error)
