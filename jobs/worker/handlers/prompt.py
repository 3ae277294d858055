"""What does a prompt job do? One call to the model that it waited for (A1, A19)."""

from __future__ import annotations

from jobs.domain.entities import Response, response_id
from jobs.domain.errors import AttemptError, ErrorKind, ModelUnknownError
from jobs.domain.job import Attempt
from jobs.domain.models import ModelRegistry, ModelSpec, cost_usd_micros
from jobs.domain.outcome import Succeeded
from jobs.providers.base import Call, Completion, Message
from jobs.providers.registry import Providers


class PromptHandler:
    """Answers a prompt with the model of its target; safe to share between threads."""

    def __init__(self, models: ModelRegistry, providers: Providers, *, budget_s: float) -> None:
        self._models = models
        self._providers = providers
        self._budget_s = budget_s

    @property
    def budget_s(self) -> float:
        """The wall clock of one call (A11)."""
        return self._budget_s

    def __call__(self, attempt: Attempt) -> Succeeded:
        """The response to `attempt`; raises AttemptError or AttemptAbortedError."""
        spec = self._spec(attempt)
        completion = self._providers.get(spec.provider).complete(_call(attempt, spec))
        return Succeeded(_response(attempt, spec, completion))

    def _spec(self, attempt: Attempt) -> ModelSpec:
        try:
            spec = self._models.resolve_target(attempt.job.target)
        except ModelUnknownError as error:
            raise AttemptError(ErrorKind.PROVIDER_4XX, str(error)) from error
        reason = self._providers.unavailable_reason(spec.id)
        if reason:
            raise AttemptError(ErrorKind.AUTH, reason)
        return spec


def _call(attempt: Attempt, spec: ModelSpec) -> Call:
    options = attempt.job.execution_options
    messages = [Message("user", attempt.prompt_text)]
    if options.get("system"):
        messages.insert(0, Message("system", options["system"]))
    return Call(
        model=spec.provider_model,
        messages=tuple(messages),
        max_tokens=options.get("max_tokens"),
        temperature=options.get("temperature"),
    )


def _response(attempt: Attempt, spec: ModelSpec, completion: Completion) -> Response:
    job = attempt.job
    return Response(
        id=response_id(job.prompt_id, completion.provider_request_id, job.id, job.attempt),
        text=completion.text,
        provider=spec.provider,
        model=spec.id,
        provider_request_id=completion.provider_request_id,
        finish_reason=completion.finish_reason,
        usage=completion.usage,
        cost_usd_micros=cost_usd_micros(spec, completion.usage),
        source_refs=(job.prompt_id,),
    )
