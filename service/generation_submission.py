"""What is a submitted generation as a job, and why may it not run at all? (B3, B5, B9)"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs import logs
from jobs.domain.errors import ModelUnknownError
from jobs.domain.generation import reservation_usd_micros
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import NewGeneration
from jobs.domain.models import ModelSpec
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.store.generations import GenerationView
from service.schemas.fields import canonical_json
from service.submission import issue_ticket


@dataclass(frozen=True, slots=True)
class GenerationSubmission:
    """A checked body of a submit. `wake_token` is None where nobody waits to be woken."""

    invocation_id: str
    prompt: str
    model: str
    hog_flow_id: str | None = None
    output_fields: Mapping[str, str] = field(default_factory=dict)
    wake_token: str | None = None

    def digest(self, team_id: str) -> str:
        """Hex SHA-256 over team, invocation and payload (B9), however they were spelled and
        ordered; never over how the caller wants to be woken."""
        payload = {
            "hog_flow_id": self.hog_flow_id,
            "prompt": self.prompt,
            "model": self.model,
            "output_fields": dict(self.output_fields),
        }
        return hashlib.sha256(canonical_json([team_id, self.invocation_id, payload])).hexdigest()

    def options(self) -> dict[str, Any]:
        """What is kept with the job beside its prompt and model."""
        options: dict[str, Any] = {
            "invocation_id": self.invocation_id,
            "output_fields": dict(self.output_fields),
        }
        if self.hog_flow_id is not None:
            options["hog_flow_id"] = self.hog_flow_id
        return options


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a generation runs on, and the most that it may cost; or why it can't run."""

    target: str = ""
    second_target: str | None = None
    reserve_usd_micros: int = 0
    refusal: GenerationCode | None = None
    refusal_message: str = ""


def accept_generation(
    runtime: Runtime, identity: Identity, submission: GenerationSubmission
) -> GenerationView:
    """Throttle, flag, dedupe, credits and write in one round trip (B21), then a ticket if one
    is wanted. The same submit again answers the generation that it made before.

    What can't run is answered as failed, after the gates before it. Raises ThrottledError,
    FeatureUnavailableError, StoreUnavailableError; each stores nothing but the throttle's count.
    """
    assert identity.team_id is not None
    # One trace spans the run with all its steps (B17).
    logs.bind(team=identity.team_id, invocation_id=submission.invocation_id)
    plan = _plan(runtime, submission)
    accepted = runtime.generations.submit(
        NewGeneration(
            id=str(uuid.uuid4()),
            prompt_id=str(uuid.uuid4()),
            team_id=identity.team_id,
            org_id=identity.org_id,
            prompt_text=submission.prompt,
            target=plan.target,
            second_target=plan.second_target,
            options=submission.options(),
            digest=submission.digest(identity.team_id),
            reserve_usd_micros=plan.reserve_usd_micros,
            wake_token=submission.wake_token,
            refusal=plan.refusal,
            refusal_message=plan.refusal_message,
        )
    )
    logs.bind(job_id=accepted.view.id)
    if accepted.ticket_wanted:
        issue_ticket(runtime, accepted.view.id)
    return accepted.view


def _plan(runtime: Runtime, submission: GenerationSubmission) -> _Plan:
    models = runtime.models
    if submission.model not in models.generation_models:
        return _Plan(refusal=GenerationCode.INVALID_MODEL)
    reason = runtime.providers.unavailable_reason(submission.model)
    second: ModelSpec | None = None
    if submission.output_fields and reason is None:
        second, reason = _extraction_model(runtime)
    if reason is not None:
        return _Plan(refusal=GenerationCode.GATEWAY_UNAVAILABLE, refusal_message=reason)
    first = models.resolve(submission.model)
    return _Plan(
        target=first.target,
        second_target=second.target if second else None,
        reserve_usd_micros=reservation_usd_micros(
            first, second, submission.prompt, submission.output_fields
        ),
    )


def _extraction_model(runtime: Runtime) -> tuple[ModelSpec | None, str | None]:
    """The model of the second pass, or a sentence that names what to set."""
    model_id = runtime.settings.extraction_model
    try:
        spec = runtime.models.resolve(model_id)
    except ModelUnknownError:
        return None, f"model {model_id} is not in the models file: set GENQUEUE_EXTRACTION_MODEL"
    if model_id not in runtime.models.generation_models:
        return None, f"model {model_id} has no price: set GENQUEUE_EXTRACTION_MODEL to one that has"
    return spec, runtime.providers.unavailable_reason(model_id)
