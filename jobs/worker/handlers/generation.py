"""What does a generation do? Two passes at most, and every call of theirs on its bill (B11, B17).

It never raises: whatever way it ends, the outcome carries what was paid until then (B19).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from jobs.domain.abort import AbortScope, current, entered
from jobs.domain.billing import Bill, BilledCall
from jobs.domain.entities import Usage
from jobs.domain.errors import (
    AttemptAbortedError,
    AttemptError,
    ErrorKind,
    Fault,
    ModelUnknownError,
)
from jobs.domain.generation import (
    HARD_LIMIT_S,
    PASS1_MAX_TOKENS,
    PASS2_MAX_TOKENS,
    Pass,
    Plan,
    extraction_call_usd_micros,
    text_call_usd_micros,
)
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.generation_prompts import (
    PassPrompt,
    extraction_prompt,
    extraction_schema,
    text_prompt,
)
from jobs.domain.job import Attempt
from jobs.domain.models import ModelRegistry, ModelSpec, cost_usd_micros
from jobs.domain.outcome import Cooldown, Failed, Generated, Outcome
from jobs.domain.retry import cooldown_of
from jobs.providers.base import Call, Message
from jobs.providers.registry import Providers
from jobs.worker.attempt import aborted, surprise

logger = logging.getLogger(__name__)

EFFORTS: Final = ("minimal", "low")
"""How much a model may reason, the first that it takes (B13). In pass 1 too: what it thinks
counts against the 1,024 tokens that its text may have."""

COST_FACTOR_MAX: Final = 4
"""So many times what was reserved for a call it may cost: the estimate of its input is rough."""

_UNKNOWN_USAGE: Final = Usage(None, None)

# After these an answer may have been made, and paid for, whose usage nobody told us.
_MAYBE_PAID_FAULTS: Final = frozenset(
    {Fault.NO_ANSWER, Fault.REFUSED, Fault.CUT_OFF, Fault.MALFORMED}
)
_MAYBE_PAID_KINDS: Final = frozenset({ErrorKind.TIMEOUT, ErrorKind.UNKNOWN})


class GenerationHandler:
    """Runs generations, pass 2 by the model `extraction_model`; safe to share between threads.

    `clock` is monotonic seconds; `new_nonce` answers hex digits that nobody can foresee.
    """

    def __init__(
        self,
        models: ModelRegistry,
        providers: Providers,
        extraction_model: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_nonce: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._models = models
        self._providers = providers
        self._extraction_model = extraction_model
        self._clock = clock
        self._new_nonce = new_nonce

    @property
    def budget_s(self) -> float:
        """The hard limit of an attempt, over both passes (B11)."""
        return HARD_LIMIT_S

    def __call__(self, attempt: Attempt) -> Outcome:
        """How the generation of `attempt` ended, with the bill of all its calls."""
        scope = current() or AbortScope(HARD_LIMIT_S, self._clock)
        calls = _Calls(self._providers, scope, self._clock)
        try:
            with entered(scope):
                return self._run(attempt, calls)
        except AttemptAbortedError:
            return aborted(scope, calls.bill)
        except Exception as error:
            failure = surprise(attempt.job, error)
            return _unavailable(failure.kind, failure.message, calls.bill)

    def _run(self, attempt: Attempt, calls: _Calls) -> Outcome:
        plan = Plan(attempt.job.execution_options.get("output_fields") or {})
        try:
            specs = self._specs(attempt.job.target, plan)
        except AttemptError as error:
            return _unavailable(error.kind, error.message, calls.bill)
        cooldown: Cooldown | None = None
        while plan.next is not Pass.NONE:
            spec = specs[plan.next]
            try:
                plan = calls.make(self._request(plan, spec, attempt.prompt_text), plan)
            except AttemptError as error:
                cooldown = cooldown_of(error, spec.target)
                plan = plan.after_failure(error, calls.elapsed_s())
        failure = plan.failure
        if failure is None:
            return Generated(plan.envelope, calls.bill)
        return Failed(failure.kind, failure.message, failure.code, calls.bill, cooldown)

    def _specs(self, target: str, plan: Plan) -> Mapping[Pass, ModelSpec]:
        """The model of each pass. Both are looked at first: a text is not worth its price where
        nothing can be read out of it. Raises AttemptError."""
        try:
            specs = {Pass.TEXT: self._models.resolve_target(target)}
            if plan.output_fields:
                specs[Pass.EXTRACTION] = self._models.resolve(self._extraction_model)
        except ModelUnknownError as error:
            raise AttemptError(ErrorKind.PROVIDER_4XX, str(error)) from error
        for spec in specs.values():
            if not spec.is_priced:
                message = f"model {spec.id!r} has no price, so it can't be billed"
                raise AttemptError(ErrorKind.PROVIDER_4XX, message)
            reason = self._providers.unavailable_reason(spec.id)
            if reason:
                raise AttemptError(ErrorKind.AUTH, reason)
        return specs

    def _request(self, plan: Plan, spec: ModelSpec, prompt: str) -> _Request:
        if plan.next is Pass.TEXT:
            asked = text_prompt(prompt, is_shorter=plan.asks_for_less)
            call = _call(spec, asked, PASS1_MAX_TOKENS)
            return _Request(plan.next, spec, call, text_call_usd_micros(spec, asked))
        fields = plan.output_fields
        asked = extraction_prompt(plan.text, fields, self._new_nonce, is_shorter=plan.asks_for_less)
        call = replace(_call(spec, asked, PASS2_MAX_TOKENS), json_schema=extraction_schema(fields))
        return _Request(plan.next, spec, call, extraction_call_usd_micros(spec, asked, fields))


@dataclass(frozen=True, slots=True)
class _Request:
    """One call as it is about to be made, and the most that it may cost."""

    number: Pass
    spec: ModelSpec
    call: Call
    held_usd_micros: int


class _Calls:
    """Makes the calls of one attempt and bills each of them, whatever way it ended."""

    def __init__(self, providers: Providers, scope: AbortScope, clock: Callable[[], float]) -> None:
        self._providers = providers
        self._scope = scope
        self._clock = clock
        self._started_s = clock()
        self._billed: list[BilledCall] = []

    @property
    def bill(self) -> Bill:
        """What was called until now."""
        return Bill(tuple(self._billed))

    def elapsed_s(self) -> float:
        """Seconds since the attempt began."""
        return self._clock() - self._started_s

    def make(self, request: _Request, plan: Plan) -> Plan:
        """The plan after the call was answered. Raises AttemptError, AttemptAbortedError and
        whatever else the provider does; a call that was not made is not billed."""
        self._scope.check()
        provider = self._providers.get(request.spec.provider)
        called_at_s = self._clock()
        try:
            completion = provider.complete(request.call)
        except AttemptError as error:
            word = error.fault or error.kind
            cost = _plausible(_cost_of(error, request.spec), request)
            self._add(request, called_at_s, error.usage, cost, word)
            raise
        except AttemptAbortedError:
            self._add(request, called_at_s, None, None, "aborted")
            raise
        except Exception:
            self._add(request, called_at_s, None, None, ErrorKind.UNKNOWN)
            raise
        after = plan.after_answer(completion.text, self.elapsed_s())
        cost = _plausible(cost_usd_micros(request.spec, completion.usage), request)
        request_id = completion.provider_request_id
        self._add(request, called_at_s, completion.usage, cost, after.flaw or "", request_id)
        return after

    def _add(
        self,
        request: _Request,
        called_at_s: float,
        usage: Usage | None,
        cost: int | None,
        error: str,
        provider_request_id: str | None = None,
    ) -> None:
        self._billed.append(
            BilledCall(
                pass_number=int(request.number),
                model=request.spec.id,
                provider=request.spec.provider,
                provider_request_id=provider_request_id,
                usage=usage or _UNKNOWN_USAGE,
                cost_usd_micros=cost,
                held_usd_micros=request.held_usd_micros,
                latency_ms=round((self._clock() - called_at_s) * 1000),
                error=str(error),
            )
        )


def _call(spec: ModelSpec, asked: PassPrompt, max_tokens: int) -> Call:
    messages = (Message("system", asked.system), Message("user", asked.user))
    effort = next((word for word in EFFORTS if word in spec.supports.reasoning_efforts), None)
    return Call(spec.provider_model, messages, max_tokens, reasoning_effort=effort)


def _plausible(cost: int | None, request: _Request) -> int | None:
    """`cost`, or None where it is far beyond what the call could cost: a provider's wrong figure
    must not use up an organisation's credits; what is unsettled can be looked into."""
    if cost is None or cost <= COST_FACTOR_MAX * request.held_usd_micros:
        return cost
    logger.warning("a call of %s says that it cost %d micro-dollars", request.spec.id, cost)
    return None


def _cost_of(error: AttemptError, spec: ModelSpec) -> int | None:
    """What a call without an answer cost in micro-dollars. A provider that answers with an
    error has generated nothing; where none can know, it is None."""
    if error.usage is not None:
        return cost_usd_micros(spec, error.usage)
    is_unknown = error.fault in _MAYBE_PAID_FAULTS or error.kind in _MAYBE_PAID_KINDS
    return None if is_unknown else 0


def _unavailable(kind: ErrorKind, message: str, bill: Bill) -> Failed:
    return Failed(kind, message, GenerationCode.GATEWAY_UNAVAILABLE, bill)
