"""Who tries a piece of a turn, how often, and with which pauses between? (C1)

Candidates come one after the other. Each one tries as often as the formation says, while its
failures are of a kind that another try may mend. What a provider asked for by Retry-After is
never undercut, whoever of the candidates uses the model: a wait of at most `max_delay` is
waited for, a longer one goes on to the next candidate.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from jobs.domain.abort import AbortScope
from jobs.domain.errors import AttemptError, ErrorKind, Fault, GenqueueError, ModelUnknownError
from jobs.domain.escalation import Failure, deciding
from jobs.domain.formation import Agent, TaskRetry
from jobs.domain.models import ModelRegistry, ModelSpec
from jobs.domain.retry import RETRY_AFTER_SPREAD, Jitter
from jobs.domain.turn_plan import Plan
from jobs.providers.registry import Providers

PAUSE_SPREAD: Final = 0.25
"""So much of a pause is added to it at most, within `max_delay`: who failed together must not
come back together."""

Done = TypeVar("Done")


def any_jitter(spread_s: float) -> float:
    """Some part of `spread_s` seconds."""
    return random.uniform(0.0, spread_s)


class WorkflowFailedError(GenqueueError):
    """All that could be tried has failed. `failure` stands for all failures of the piece that
    ended it, its reason names who failed and how many calls were made; `plan` is None where
    there was none yet."""

    def __init__(self, failure: Failure, plan: Plan | None) -> None:
        self.failure = failure
        self.plan = plan
        super().__init__(f"{failure.kind}: {failure.reason}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One who may do it: `agent` by `model`, an id of the models file, None for its default.
    `name` is what reasons call it."""

    name: str
    agent: Agent
    model: str | None


@dataclass(frozen=True, slots=True)
class _Rest:
    """A model is left alone until `until_s` of the clock, for `error` said so."""

    until_s: float
    error: AttemptError


class Tries:
    """Tries the pieces of one turn. `clock` is monotonic seconds."""

    def __init__(
        self,
        models: ModelRegistry,
        providers: Providers,
        scope: AbortScope,
        *,
        retry: TaskRetry,
        patterns: Sequence[str],
        on_pause: Callable[[float], None] = lambda _for_s: None,
        jitter: Jitter = any_jitter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = models
        self._providers = providers
        self._scope = scope
        self._retry = retry
        self._patterns = patterns
        self._on_pause = on_pause
        self._jitter = jitter
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def first(
        self,
        candidates: Sequence[Candidate],
        ask: Callable[[Candidate, ModelSpec], Done],
        count_calls: Callable[[], int],
        plan: Plan | None = None,
        *,
        retries_malformed: bool = False,
    ) -> Done:
        """What the first candidate that succeeds makes of `ask`; `count_calls` answers how many
        calls there have been. `retries_malformed` is for answers of a required form.

        Raises WorkflowFailedError where none succeeds. AttemptAbortedError passes, and so does
        the AttemptError of a turn whose own time is up: neither is a failure of a candidate.
        """
        failures: list[Failure] = []
        calls_before = count_calls()
        for candidate in candidates:
            for tries_before in range(self._retry.max_attempts):
                try:
                    return self._ask(candidate, tries_before, ask)
                except AttemptError as error:
                    self._scope.check()
                    failures.append(_failure_of(candidate, error))
                    may_help = error.kind.is_retryable or (
                        retries_malformed and error.fault is Fault.MALFORMED
                    )
                    if not may_help or self._is_too_long(error.retry_after_s or 0.0):
                        break
        failure = deciding(failures, self._patterns)
        # In words that are the same for each number: a reason is compared with those of others.
        reason = f"{failure.reason} (calls made in vain: {count_calls() - calls_before})"
        raise WorkflowFailedError(replace(failure, reason=reason), plan)

    def _ask(
        self,
        candidate: Candidate,
        tries_before: int,
        ask: Callable[[Candidate, ModelSpec], Done],
    ) -> Done:
        spec = self._usable(candidate)
        self._pause(spec, tries_before)
        try:
            return ask(candidate, spec)
        except AttemptError as error:
            if error.retry_after_s:
                self._rests[spec.target] = _Rest(self._clock() + error.retry_after_s, error)
            raise

    def _usable(self, candidate: Candidate) -> ModelSpec:
        """The candidate's model. Raises AttemptError where it can't be called."""
        try:
            spec = self._models.resolve(candidate.model or self._models.default_model)
        except ModelUnknownError as error:
            # The source's own word for what no other plan can mend (C3).
            message = f"configuration error: {error}"
            raise AttemptError(ErrorKind.PROVIDER_4XX, message) from error
        reason = self._providers.unavailable_reason(spec.id)
        if reason:
            raise AttemptError(ErrorKind.AUTH, reason)
        return spec

    def _pause(self, spec: ModelSpec, tries_before: int) -> None:
        """Wait before a try, for as long as the formation and the provider say. Raises
        AttemptError where the provider's wait is too long, and as the scope does."""
        rest = self._rests.get(spec.target)
        rest_s = max(0.0, rest.until_s - self._clock()) if rest else 0.0
        if rest and self._is_too_long(rest_s):
            message = f"not asked, its provider named a wait: {rest.error.message}"
            raise AttemptError(rest.error.kind, message, rest_s, fault=rest.error.fault)
        pause_s = self._pause_s(tries_before)
        if rest_s:
            pause_s = max(pause_s, rest_s + self._jitter(max(1.0, rest_s * RETRY_AFTER_SPREAD)))
        if pause_s:
            self._on_pause(pause_s)
            self._scope.wait(pause_s)

    def _pause_s(self, tries_before: int) -> float:
        if not tries_before:
            return 0.0
        retry = self._retry
        base_s = retry.initial_delay_s * retry.backoff_factor ** (tries_before - 1)
        return min(retry.max_delay_s, base_s + self._jitter(base_s * PAUSE_SPREAD))

    def _is_too_long(self, wait_s: float) -> bool:
        return wait_s > self._retry.max_delay_s


def _failure_of(candidate: Candidate, error: AttemptError) -> Failure:
    reason = f"{candidate.name}: {error.message}"
    return Failure(error.kind, reason, error.fault, error.retry_after_s)
