"""How does an attempt go? Admit, run, decide, settle, announce; it ends in a value (decision 6)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from jobs import logs, metrics
from jobs.domain.abort import AbortScope, entered
from jobs.domain.billing import Bill
from jobs.domain.errors import (
    AttemptAbortedError,
    AttemptError,
    ErrorKind,
    StoreUnavailableError,
)
from jobs.domain.job import Attempt, Job, Kind
from jobs.domain.outcome import (
    Abandoned,
    Answered,
    Completed,
    Failed,
    Generated,
    Outcome,
    Retry,
    Snooze,
    Succeeded,
)
from jobs.domain.retry import Jitter, decide
from jobs.domain.states import Answer, State
from jobs.domain.turn_left import TurnLeft
from jobs.retry_events import tell_ended, tell_failed
from jobs.store.answers import Settled
from jobs.store.bills import bill_text, events_of
from jobs.store.queue import Queue
from jobs.worker.heartbeat import Heartbeat

logger = logging.getLogger(__name__)

SHUTDOWN: Final = "worker_shutdown"
"""The reason of an abort, and of the snooze it becomes, when the worker has to leave."""

SETTLE_PAUSE_MAX_S: Final = 2.0


class Handler(Protocol):
    """What a kind of job does; may raise AttemptError or AttemptAbortedError."""

    @property
    def budget_s(self) -> float:
        """The wall clock of an attempt, in seconds."""
        ...

    def __call__(self, attempt: Attempt) -> Outcome:
        """How `attempt` ended."""
        ...


def aborted(
    scope: AbortScope, bill: Bill | None = None, turn: TurnLeft | None = None
) -> Snooze | Abandoned:
    """How an attempt ends whose scope was aborted: back to the queue where its worker leaves,
    else it is nobody's any more."""
    if scope.reason == SHUTDOWN:
        return Snooze(SHUTDOWN, after_ms=0, bill=bill, turn=turn)
    return Abandoned(scope.reason, bill=bill, turn=turn)


def surprise(job: Job, error: Exception) -> AttemptError:
    """The failure of an attempt by something that nobody expected, which is logged. Its text may
    hold the prompt or a key: jobs.logs shows its class and stack, the record only its class."""
    name = type(error).__name__
    logger.error("attempt of job %s raised %s", job.id, name, exc_info=error)
    return AttemptError(ErrorKind.UNKNOWN, f"unexpected {name}")


class AttemptRunner:
    """Runs claimed attempts, each in the thread that calls `run`.

    `patience_s` is how long a finished attempt keeps trying to be written while Redis is away:
    a paid answer must survive an outage. `report` gets the usage of what was settled (B17);
    `is_captured` puts it where the clock takes it from as well.
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Mapping[Kind, Handler],
        heartbeat: Heartbeat,
        *,
        patience_s: float,
        jitter: Jitter,
        issue_ticket: Callable[[], None],
        issue_delivery_ticket: Callable[[], None] = lambda: None,
        report: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _events: None,
        is_captured: bool = False,
    ) -> None:
        self._queue = queue
        self._handlers = handlers
        self._heartbeat = heartbeat
        self._patience_s = patience_s
        self._jitter = jitter
        self._issue_ticket = issue_ticket
        self._issue_delivery_ticket = issue_delivery_ticket
        self._report = report
        self._is_captured = is_captured
        self._leaving = threading.Event()

    def scope(self, attempt: Attempt) -> AbortScope:
        """A fresh scope for an attempt, as long as its kind may take; its time begins now."""
        return AbortScope(self._handlers[attempt.job.kind].budget_s)

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
                return self._handlers[job.kind](attempt)
        except AttemptAbortedError:
            return aborted(scope)
        except AttemptError as error:
            failure = error
        except Exception as error:
            failure = surprise(job, error)
        return decide(failure, job.attempt, job.max_attempts, self._jitter, job.target)

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
            case Generated(envelope, bill):
                return self._queue.succeed_generation(
                    job_id, token, envelope, self._bill(attempt, bill)
                )
            case Completed():
                return self._queue.complete(job_id, token)
            case Answered(response, turn):
                if response is None:
                    return self._queue.complete(job_id, token, turn)
                return self._queue.succeed(job_id, token, response, turn)
            case Retry(kind, message, after_ms, cooldown):
                return self._queue.retry(job_id, token, kind, message, after_ms, cooldown)
            case Snooze(reason, after_ms, bill, turn):
                return self._queue.snooze(
                    job_id, token, reason, after_ms, self._bill(attempt, bill), turn
                )
            case Failed(kind, message, code, bill, cooldown, turn):
                return self._queue.fail(
                    job_id,
                    token,
                    kind,
                    message,
                    code=code,
                    bill=self._bill(attempt, bill),
                    cooldown=cooldown,
                    turn=turn,
                )
            case Abandoned():
                return None

    def _bill(self, attempt: Attempt, bill: Bill | None) -> str:
        return bill_text(attempt.job, bill, is_captured=self._is_captured)

    def _book(self, attempt: Attempt, outcome: Outcome) -> Settled | None:
        """The outcome is nobody's any more; that it was paid for stays true (X16), and a call
        that is over holds no slot (B18)."""
        job = attempt.job
        try:
            if isinstance(outcome, Succeeded):
                return self._queue.book(job.id, job.attempt, outcome.response)
            turn = turn_of(outcome)
            if turn is not None:
                return self._queue.book_turn(job.id, job.attempt, attempt.token, turn)
            if job.kind is Kind.GENERATION:
                bill = self._bill(attempt, _bill_of(outcome))
                return self._queue.book_generation(job.id, job.team_id or "", attempt.token, bill)
        except StoreUnavailableError as error:
            logger.warning("late usage of job %s not booked: %s", job.id, error)
        return None

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
        level, how = _told(outcome, word)
        message = "job %s attempt %d: %s, %s"
        logger.log(level, message, job.id, job.attempt, verb, how, extra={"fields": fields})
        is_lost = isinstance(outcome, Abandoned)
        if is_lost or (settled is not None and settled.answer != Answer.OK):
            settled = self._book(attempt, outcome)
        elif settled is not None:
            tell_failed(job, outcome)
            tell_ended(settled.ended_chains)
        self._report(events_of(job, _bill_of(outcome)))
        if settled and settled.ticket_wanted:
            _signal(self._issue_ticket)
        if settled and settled.delivery_wanted:
            _signal(self._issue_delivery_ticket)


def _signal(issue: Callable[[], None]) -> None:
    try:
        issue()
    except StoreUnavailableError as error:
        logger.warning("no ticket issued: %s", error)


def _told(outcome: Outcome, word: str) -> tuple[int, str]:
    """At which level, and in which words, a log line tells what became of an outcome."""
    if word == Answer.OK:
        return logging.INFO, "recorded"
    if isinstance(outcome, Abandoned):
        if outcome.reason == State.CANCELLED:
            return logging.INFO, "cancelled"
        return logging.WARNING, f"{word}: {outcome.reason}"
    return logging.WARNING, f"refused: {word}"


def turn_of(outcome: Outcome) -> TurnLeft | None:
    """What an attempt of a chat turn leaves, None for other kinds."""
    if isinstance(outcome, Answered | Failed | Snooze | Abandoned):
        return outcome.turn
    return None


def _bill_of(outcome: Outcome) -> Bill | None:
    if isinstance(outcome, Generated | Failed | Snooze | Abandoned):
        return outcome.bill
    return None
