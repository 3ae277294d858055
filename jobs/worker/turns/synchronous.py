"""What becomes of a turn that a caller waits for, and when does it go on alone? (C1-C5, C9)"""

from __future__ import annotations

from typing import Final

from jobs.domain.abort import entered
from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainPolicy,
    Failure,
    NextAttempt,
    Refusal,
    Standing,
    after_failure,
    gate,
)
from jobs.domain.outcome import Answered, Failed, Outcome, Snooze
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Question
from jobs.worker.attempt import SHUTDOWN
from jobs.worker.turns.listening import Listening
from jobs.worker.turns.run import DEATHS_MAX, TurnRun

BUDGET_S: Final = 900.0
"""Wall clock of the synchronous turn."""


class SynchronousRun(TurnRun):
    """Attempt 1, which is not charged against the budget (C5)."""

    def carry_out(self) -> Outcome:
        """Plan, work, answer; or a question, where a human has to speak first (C3)."""
        if self.turn.deaths >= DEATHS_MAX:
            raise AttemptError(ErrorKind.WORKER_CRASH, f"{DEATHS_MAX} workers died of the turn")
        listening = self._listening()
        message, executor = self.attempt.prompt_text, self.tools.executor
        budget = self.scope().narrowed(BUDGET_S, f"the turn did not end within {BUDGET_S:g} s")
        with entered(budget):
            planned = self.plan or executor.plan(message, (), listening, self.calls)
            if isinstance(planned, Question):
                return Answered(None, self.left(question=planned))
            self.begin(planned)
            answer = executor.run(planned, message, listening, self.calls)
        listening.flush()
        return self.answered(answer)

    def failed(self, failure: Failure) -> Outcome:
        """The gate decides: into the background, or the error itself (C2, C3)."""
        formation = self.tools.formation
        standing = Standing(
            is_shutting_down=self.tools.is_stopping(),
            is_enabled=formation.retry_async.enabled,
        )
        refusal = gate(failure, formation.non_replannable, standing)
        if refusal is Refusal.SHUTTING_DOWN:
            # It is stored: another process has the budget that this one has not.
            return Snooze(SHUTDOWN, after_ms=0, turn=self.left())
        left = self.left() if refusal else self._escalated(failure)
        return Failed(failure.kind, failure.reason, turn=left)

    def _escalated(self, failure: Failure) -> TurnLeft:
        """The first attempt of a chain, under the bounds that hold now."""
        entry = AttemptEntry(1, self.plan, failure)
        bounds = self.tools.formation.retry_async
        policy = ChainPolicy(bounds.max_attempts, bounds.attempt_idle_timeout_s, bounds.deadline_s)
        decided = after_failure((entry,), policy, (), None, self.now_ms(), self.tools.jitter)
        assert isinstance(decided, NextAttempt), "the first background attempt is always there"
        return self.left(entry=entry, next=decided, policy=policy)

    def _listening(self) -> Listening:
        if not self.turn.streams:
            return Listening(None, None)
        attempt, run, tokens = self.attempt, self.turn.runs, self.tools.tokens
        listening = Listening(None, lambda first, pieces: tokens.say(attempt, run, first, pieces))
        if run > 1:
            listening.on_restart()  # what the run before said
        return listening
