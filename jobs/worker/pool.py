"""How does a process take work? A ticket claims for all free slots and fans out (decision 2)."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from jobs.domain.abort import AbortScope
from jobs.domain.errors import StoreUnavailableError
from jobs.domain.job import PRIORITY_MAX, Attempt
from jobs.domain.outcome import Retry, Snooze
from jobs.store.answers import Claimed, ClaimRequest
from jobs.store.keys import CLAIM_TTL_MS
from jobs.store.queue import Queue
from jobs.worker.attempt import SHUTDOWN, AttemptRunner
from jobs.worker.threads import DaemonThreads, Slots

logger = logging.getLogger(__name__)

TICKET_NAMES_MAX: Final = 20
BATCH_WAIT_S: Final = 0.002
"""After a first slot came free a claim waits so long for more, where several are in use: a
claim for five attempts costs little more than a claim for one."""

URGENT_CEILING: Final = 10
"""Priorities 0 to 10 are urgent (A34)."""

URGENT_LOOK_S: Final = 0.25
CLAIM_PAUSE_S: Final = 0.5
CLAIM_REPEAT_S: Final = CLAIM_TTL_MS / 2000

SWEEPS_MISSED: Final = 3
"""Where so many sweeps were missed, the worker stands in for the scheduler (decision 7)."""


@dataclass(slots=True)
class OpenTicket:
    """A ticket while it is being worked on: what runs under it, by job id."""

    id: str
    running: dict[str, tuple[Attempt, AbortScope]] = field(default_factory=dict)
    ended: threading.Condition = field(default_factory=threading.Condition)
    is_stopped: bool = False

    def names(self) -> str:
        """What runs, for the ticket's description; short enough to read."""
        shown = list(self.running)[: TICKET_NAMES_MAX - 1]
        return ", ".join(shown)


class WorkPool:
    """The slots of a process and the attempts in them.

    `claiming_s` is how long one ticket goes on claiming before it leaves a fresh one.
    The last `urgent_slots` free slots are for urgent work only (A34). `is_orphaned` answers
    whether the process lost its parent and may not claim any more.
    """

    def __init__(
        self,
        queue: Queue,
        runner: AttemptRunner,
        *,
        concurrency: int,
        window_s: float,
        claiming_s: float,
        sweep_interval_s: float,
        issue_ticket: Callable[[], None],
        worker_name: str = "",
        ceiling: int = PRIORITY_MAX,
        urgent_slots: int = 0,
        is_orphaned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue = queue
        self._runner = runner
        self._slots = Slots(concurrency)
        self._threads = DaemonThreads(concurrency, "attempt")
        self._window_ms = int(window_s * 1000)
        self._claiming_s = claiming_s
        self._sweep_overdue_ms = SWEEPS_MISSED * sweep_interval_s * 1000
        self._issue_ticket = issue_ticket
        self._worker_name = worker_name
        self._ceiling = ceiling
        self._urgent_slots = min(urgent_slots, concurrency - 1)
        self._is_orphaned = is_orphaned
        self._stopping = threading.Event()
        self._is_handing_back = False
        self._claiming = threading.Lock()
        self._changed = threading.Event()
        self._tickets: dict[int, OpenTicket] = {}
        self._due_at_s: float | None = None
        self.sweep_is_overdue = False

    @property
    def wants_ticket(self) -> bool:
        """Whether a further ticket could start something: a slot is free and nobody claims."""
        return not self._stopping.is_set() and self._slots.free > 0 and not self._claiming.locked()

    def wait_wanted(self, wait_s: float) -> bool:
        """Wait until `wants_ticket`; False where it does not after `wait_s`."""
        if self.wants_ticket:
            return True
        self._changed.clear()
        if not self.wants_ticket:
            self._changed.wait(wait_s)
        return self.wants_ticket

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return self._slots.free == self._slots.total

    def due_in_s(self) -> float | None:
        """Seconds until the next scheduled job that this process knows of; None for none."""
        due_at_s = self._due_at_s
        return None if due_at_s is None else max(0.0, due_at_s - time.monotonic())

    def drain(self, ticket_id: str = "") -> int:
        """Claim and run until there is nothing to claim; answers how many attempts ran here.

        Returns when the attempts of this ticket have ended. Raises nothing: where Redis is
        away the ticket ends, and the polls find the work again.
        """
        ticket = OpenTicket(ticket_id)
        self._tickets[id(ticket)] = ticket
        count = 0
        try:
            with self._claiming:
                count = self._claim_all(ticket)
            self._changed.set()
            with ticket.ended:
                ticket.ended.wait_for(lambda: not ticket.running)
        finally:
            del self._tickets[id(ticket)]
        return count

    def take(self, batch_size: int) -> int:
        """One claim of at most `batch_size` attempts, run to their end; answers how many."""
        ticket = OpenTicket("")
        claimed = self._claim(ticket, min(self._slots.take(0.0), batch_size), self._ceiling)
        count = self._start_all(ticket, claimed)
        with ticket.ended:
            ticket.ended.wait_for(lambda: not ticket.running)
        return count

    def _claim_all(self, ticket: OpenTicket) -> int:
        count = 0
        until_s = time.monotonic() + self._claiming_s
        while not (self._stopping.is_set() or ticket.is_stopped or self._is_orphaned()):
            left_s = until_s - time.monotonic()
            free = self._slots.take(max(0.0, min(left_s, 1.0)))
            if free and self._slots.total > free:
                free += self._slots.take(BATCH_WAIT_S)
            if self._stopping.is_set():
                # The slot that woke us may be that of an attempt that was just handed back.
                self._slots.give(free)
                break
            started, is_exhausted = self._claim_round(ticket, free) if free else (0, False)
            self._slots.give(free - started)
            count += started
            if is_exhausted:
                break
            if left_s <= 0:
                self._hand_over()
                break
            if free and not started:
                # Only slots that are kept for urgent work are free: look for some now and then.
                self._stopping.wait(URGENT_LOOK_S)
        return count

    def _claim_round(self, ticket: OpenTicket, free: int) -> tuple[int, bool]:
        """Claim for `free` slots, the last `urgent_slots` of them for urgent work only (A34);
        answers how many attempts began and whether there is nothing more to claim."""
        started = 0
        bulk = free - self._urgent_slots
        if bulk > 0:
            claimed = self._claim(ticket, bulk, self._ceiling)
            started = self._start_all(ticket, claimed)
            if claimed.refused or (started < bulk and not claimed.more):
                return started, True
        if self._urgent_slots and started < free:
            claimed = self._claim(ticket, free - started, min(self._ceiling, URGENT_CEILING))
            started += self._start_all(ticket, claimed)
            return started, bool(claimed.refused)
        return started, False

    def _start_all(self, ticket: OpenTicket, claimed: Claimed) -> int:
        for attempt in claimed.attempts:
            self._start(ticket, attempt)
        return len(claimed.attempts)

    def _claim(self, ticket: OpenTicket, count: int, ceiling: int) -> Claimed:
        """One claim. A lost reply may have leased jobs to us: the claim is repeated under its
        token until Redis answers, for as long as it would answer the same."""
        request = ClaimRequest(
            token=secrets.token_urlsafe(12),
            count=count,
            window_ms=self._window_ms,
            ceiling=ceiling,
            worker=self._worker_name,
            ticket_id=ticket.id,
            ticket_names=ticket.names(),
        )
        until_s = time.monotonic() + CLAIM_REPEAT_S
        while True:
            try:
                claimed = self._queue.claim(request)
            except StoreUnavailableError as error:
                if self._stopping.wait(CLAIM_PAUSE_S) or time.monotonic() > until_s:
                    logger.warning("claim: %s", error)
                    return Claimed((), refused="redis")
            else:
                break
        if not claimed.refused:
            self.note(claimed.due_in_ms, claimed.sweep_age_ms)
        return claimed

    def note(self, due_in_ms: int | None, sweep_age_ms: int | None) -> None:
        """Take in what a script said of the time: that to the next scheduled job, and that
        since the last sweep; None where there is none."""
        self.sweep_is_overdue = sweep_age_ms is None or sweep_age_ms > self._sweep_overdue_ms
        self._due_at_s = None if due_in_ms is None else time.monotonic() + due_in_ms / 1000

    def _note_due(self, after_ms: int) -> None:
        due_at_s = time.monotonic() + after_ms / 1000
        if self._due_at_s is None or due_at_s < self._due_at_s:
            self._due_at_s = due_at_s

    def _start(self, ticket: OpenTicket, attempt: Attempt) -> None:
        scope = self._runner.scope(attempt)
        ticket.running[attempt.job.id] = (attempt, scope)
        if self._is_handing_back:
            # Leased while `hand_back` looked over what ran: it goes back as well.
            scope.abort(SHUTDOWN)

        def work() -> None:
            try:
                outcome = self._runner.run(attempt, scope)
                if isinstance(outcome, Retry | Snooze):
                    self._note_due(outcome.after_ms)
            finally:
                self._slots.give(1)
                self._changed.set()
                with ticket.ended:
                    ticket.running.pop(attempt.job.id, None)
                    ticket.ended.notify_all()

        self._threads.run(work)

    def _hand_over(self) -> None:
        try:
            self._issue_ticket()
        except StoreUnavailableError as error:
            logger.warning("no ticket issued: %s", error)

    @property
    def is_stopping(self) -> bool:
        """Whether this process takes nothing more."""
        return self._stopping.is_set()

    def stop_claiming(self) -> None:
        """Take nothing more; what runs goes on."""
        self._stopping.set()

    def wait_idle(self, wait_s: float) -> bool:
        """Wait until nothing runs here; False where something still does after `wait_s`."""
        return self._slots.wait_all_free(wait_s)

    def hand_back(self) -> int:
        """Abort what runs, so that it goes back to the queue uncharged; answers how many."""
        self._stopping.set()
        self._is_handing_back = True
        count = 0
        for ticket in list(self._tickets.values()):
            for _, scope in list(ticket.running.values()):
                scope.abort(SHUTDOWN)
                count += 1
        return count

    def stop_ticket(self, ticket_id: str) -> int:
        """Cancel what runs under a ticket (RQ's stop command); answers how many jobs."""
        count = 0
        for ticket in list(self._tickets.values()):
            if ticket.id == ticket_id:
                ticket.is_stopped = True
                for attempt, _ in list(ticket.running.values()):
                    job = attempt.job
                    self._queue.cancel(job.id, job.org_id, "stopped through RQ")
                    count += 1
        return count
