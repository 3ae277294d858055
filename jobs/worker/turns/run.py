"""What have all attempts of a turn in common: a plan, its work, a value at the end? (C1)"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobs.domain.abort import AbortScope, current
from jobs.domain.entities import Response, response_id
from jobs.domain.errors import (
    AttemptAbortedError,
    AttemptError,
    ErrorKind,
    Fault,
    StoreUnavailableError,
)
from jobs.domain.escalation import Failure
from jobs.domain.formation import Formation
from jobs.domain.job import Attempt
from jobs.domain.models import cost_usd_micros
from jobs.domain.outcome import Abandoned, Answered, Cooldown, Outcome, Snooze
from jobs.domain.retry import Jitter, pause_of
from jobs.domain.states import Answer as StoreAnswer
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan
from jobs.store.tokens import Tokens
from jobs.store.turns import StoredTurn, Turns
from jobs.worker.attempt import aborted, surprise
from jobs.worker.turns.calls import CalledModel
from jobs.worker.turns.executor import Answer, TurnExecutor
from jobs.worker.turns.tries import WorkflowFailedError

DEATHS_MAX: Final = 20
"""An attempt that so many workers died of ends every worker that takes it."""

STORE_PAUSE_MS: Final = 2_000

_ASKS_FOR_A_PAUSE: Final = frozenset({str(ErrorKind.RATE_LIMIT), str(Fault.OVERLOADED)})


class _NotOursError(Exception):
    """The turn has ended, or another worker has it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What attempts are made with. `is_stopping` answers whether this process takes no more work,
    `clock` is monotonic seconds."""

    turns: Turns
    tokens: Tokens
    formation: Formation
    executor: TurnExecutor
    jitter: Jitter
    is_stopping: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic


class TurnRun(ABC):
    """One attempt of a turn, run once. What is not said here, the two sorts of attempts say:
    `carry_out` and `failed`."""

    def __init__(self, tools: Tools, attempt: Attempt, turn: StoredTurn) -> None:
        self.tools = tools
        self.attempt = attempt
        self.turn = turn
        self.plan: Plan | None = turn.plan
        self.calls: list[CalledModel] = []
        self._began_s = tools.clock()

    def outcome(self) -> Outcome:
        """How the attempt ended, with all calls that it made."""
        try:
            return self.carry_out()
        except AttemptAbortedError:
            return aborted(self.scope(), turn=self.left())
        except StoreUnavailableError as error:
            return Snooze(error.reason, after_ms=STORE_PAUSE_MS, turn=self.left())
        except _NotOursError as error:
            return Abandoned(str(error), turn=self.left())
        except WorkflowFailedError as error:
            failure = error.failure
        except AttemptError as error:
            failure = Failure(error.kind, error.message, error.fault, error.retry_after_s)
        except Exception as error:
            unexpected = surprise(self.attempt.job, error)
            failure = Failure(unexpected.kind, unexpected.message)
        return self.failed(failure)

    @abstractmethod
    def carry_out(self) -> Outcome:
        """Plan and work. Raises what `outcome` knows what to do with."""

    @abstractmethod
    def failed(self, failure: Failure) -> Outcome:
        """What follows from a failure of this attempt."""

    def begin(self, plan: Plan) -> None:
        """Write down the plan that is carried out. Raises where the attempt is not ours any more:
        nothing may be called for a turn that was cancelled or taken away."""
        self.plan = plan
        word = self.tools.turns.note(self.attempt, plan, self.turn.number)
        if word is not StoreAnswer.OK:
            raise _NotOursError(word)

    def answered(self, answer: Answer) -> Answered:
        """The end of an attempt that has an answer (A15, A19)."""
        job, completion = self.attempt.job, answer.completion
        request_id = completion.provider_request_id
        response = Response(
            id=response_id(job.prompt_id, request_id, job.id, job.attempt),
            text=answer.text,
            provider=answer.spec.provider,
            model=answer.spec.id,
            provider_request_id=request_id,
            finish_reason=completion.finish_reason,
            usage=completion.usage,
            cost_usd_micros=cost_usd_micros(answer.spec, completion.usage),
            source_refs=(job.prompt_id,),
        )
        return Answered(response, self.left())

    def left(self, **more: Any) -> TurnLeft:
        """What is kept of this attempt, its calls first."""
        usage = tuple(_usage(call) for call in self.calls)
        return TurnLeft(calls=usage, cooldowns=_cooldowns(self.calls), **more)

    def now_ms(self) -> int:
        """Redis's clock, as far as it has gone on since the turn was read."""
        return self.turn.now_ms + round((self.tools.clock() - self._began_s) * 1000)

    @staticmethod
    def scope() -> AbortScope:
        """The scope of the attempt that runs in this thread."""
        return current() or AbortScope(math.inf)


def _cooldowns(calls: Sequence[CalledModel]) -> tuple[Cooldown, ...]:
    """The pause that each provider that was too busy asked of everybody, the last one of each."""
    asked = {c.spec.target: c.retry_after_s for c in calls if c.error in _ASKS_FOR_A_PAUSE}
    pauses = (pause_of(target, named_s) for target, named_s in asked.items())
    return tuple(pause for pause in pauses if pause is not None)


def _usage(call: CalledModel) -> Mapping[str, Any]:
    return {
        "prompt_tokens": call.usage.prompt_tokens,
        "completion_tokens": call.usage.completion_tokens,
        "cost_usd_micros": cost_usd_micros(call.spec, call.usage),
        "provider": call.spec.provider,
        "model": call.spec.id,
        "provider_request_id": call.provider_request_id,
        "purpose": call.purpose,
        "error": call.error or None,
    }
