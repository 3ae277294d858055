"""What does a background attempt do, and how does its chain go on or end? (C5-C7, C11, C12, C19)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.domain.abort import AbortScope, entered
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Failure,
    after_failure,
    broken_end,
    deadline_end,
    is_stuck,
    stuck_end,
)
from jobs.domain.job import Attempt
from jobs.domain.outcome import Failed, Outcome
from jobs.domain.turn_plan import Plan, Question
from jobs.retry_events import tell_attempt
from jobs.store.turns import StoredTurn
from jobs.worker.turns.listening import Listening
from jobs.worker.turns.run import DEATHS_MAX, Tools, TurnRun


class BackgroundRun(TurnRun):
    """An attempt of a chain under `policy`. It is planned anew, unless a worker that died had noted
    its plan already."""

    def __init__(
        self, tools: Tools, attempt: Attempt, turn: StoredTurn, policy: ChainPolicy
    ) -> None:
        super().__init__(tools, attempt, turn)
        self._policy = policy
        self._deadline: AbortScope | None = None

    def carry_out(self) -> Outcome:
        """Replan, look whether that is anything new, work, answer."""
        turn = self.turn
        if turn.deaths >= DEATHS_MAX:
            why = f"{DEATHS_MAX} workers died of attempt {turn.number}"
            return self._ended(broken_end(why), ErrorKind.WORKER_CRASH)
        if turn.deadline_at_ms is not None and turn.now_ms >= turn.deadline_at_ms:
            return self._ended(deadline_end(self._policy), ErrorKind.TIMEOUT)
        plan = self.plan
        if plan is None:
            with self._bounded() as listening:
                planned = self.tools.executor.plan(
                    self.attempt.prompt_text, turn.entries, listening, self.calls
                )
            if isinstance(planned, Question):
                return self._needs_a_human(planned)
            if is_stuck(planned, turn.entries):
                return self._ended(stuck_end(), turn.entries[-1].failure.kind)
            plan = planned
        return self._work(plan)

    def failed(self, failure: Failure) -> Outcome:
        """Another attempt, or the end of the chain: an escalated retry does not escalate (C19)."""
        entry = AttemptEntry(self.turn.number, self.plan, failure)
        if self._deadline is not None and self._deadline.is_over:
            return self._ended(deadline_end(self._policy), failure.kind, entry)
        decided = after_failure(
            (*self.turn.entries, entry),
            self._policy,
            self.tools.formation.non_replannable,
            self.turn.deadline_at_ms,
            self.now_ms(),
            self.tools.jitter,
        )
        if isinstance(decided, ChainEnd):
            return self._ended(decided, failure.kind, entry)
        left = self.left(entry=entry, next=decided)
        return Failed(failure.kind, failure.reason, turn=left)

    def _work(self, plan: Plan) -> Outcome:
        self.begin(plan)
        tell_attempt(self.attempt.job, self.turn.number)
        with self._bounded() as listening:
            answer = self.tools.executor.run(plan, self.attempt.prompt_text, listening, self.calls)
        return self.answered(answer)

    @contextmanager
    def _bounded(self) -> Iterator[Listening]:
        """Within what is left of the deadline, and as long as something happens (C6)."""
        scope = self.scope()
        if self.turn.deadline_at_ms is not None:
            left_s = max(0, self.turn.deadline_at_ms - self.now_ms()) / 1000
            scope = self._deadline = scope.narrowed(left_s, "the deadline passed meanwhile")
        idle_s = self._policy.idle_timeout_s
        idle = scope.narrowed(idle_s, f"declared hung: nothing happened for {idle_s:g} s")
        with entered(idle):
            yield Listening(idle, None)

    def _needs_a_human(self, question: Question) -> Outcome:
        """Nobody waits to be asked: no plan can route around that."""
        failure = Failure(ErrorKind.BLOCKED, f"it needs a human: {question.awaiting}")
        entry = AttemptEntry(self.turn.number, None, failure)
        end = ChainEnd(ChainState.IMPOSSIBLE, f"no plan can do without {question.awaiting}")
        return self._ended(end, failure.kind, entry)

    def _ended(self, end: ChainEnd, kind: ErrorKind, entry: AttemptEntry | None = None) -> Outcome:
        return Failed(kind, end.detail, turn=self.left(entry=entry, end=end))
