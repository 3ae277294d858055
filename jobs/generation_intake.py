"""What is a submitted generation as a job, and why may it not run at all? (B3, B5, B9)"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.domain.canonical_json import canonical_json
from jobs.domain.errors import ModelUnknownError
from jobs.domain.generation import reservation_usd_micros
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import NewGeneration
from jobs.domain.models import ModelRegistry, ModelSpec
from jobs.providers.registry import Providers
from jobs.store.generations import AcceptedGeneration, Generations

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GenerationSubmission:
    """What is asked for, checked. `wake_token` is None where nobody waits to be woken, `wake_url`
    where that is told by the stream alone."""

    invocation_id: str
    prompt: str
    model: str
    hog_flow_id: str | None = None
    output_fields: Mapping[str, str] = field(default_factory=dict)
    wake_token: str | None = None
    wake_url: str | None = None

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


class Intake:
    """Takes generations in, for whoever asks: the API, a step. `extraction_model` is that of the
    second pass."""

    def __init__(
        self,
        generations: Generations,
        models: ModelRegistry,
        providers: Providers,
        *,
        extraction_model: str,
    ) -> None:
        self._generations = generations
        self._models = models
        self._providers = providers
        self._extraction_model = extraction_model

    def submit(
        self, team_id: str, org_id: str, submission: GenerationSubmission
    ) -> AcceptedGeneration:
        """Throttle, flag, dedupe, credits and write in one round trip (B21). The same submit
        again answers the generation that it made before.

        What can't run is answered as failed, after the gates before it. Raises ThrottledError,
        FeatureUnavailableError, StoreUnavailableError; each stores nothing but the throttle's
        count.
        """
        plan = self._plan(submission)
        return self._generations.submit(
            NewGeneration(
                id=str(uuid.uuid4()),
                prompt_id=str(uuid.uuid4()),
                team_id=team_id,
                org_id=org_id,
                prompt_text=submission.prompt,
                target=plan.target,
                second_target=plan.second_target,
                options=submission.options(),
                digest=submission.digest(team_id),
                reserve_usd_micros=plan.reserve_usd_micros,
                wake_token=submission.wake_token,
                wake_url=submission.wake_url,
                refusal=plan.refusal,
            )
        )

    def _plan(self, submission: GenerationSubmission) -> _Plan:
        if submission.model not in self._models.generation_models:
            return _Plan(refusal=GenerationCode.INVALID_MODEL)
        reason = self._providers.unavailable_reason(submission.model)
        second: ModelSpec | None = None
        if submission.output_fields and reason is None:
            second, reason = second_model(self._models, self._providers, self._extraction_model)
        if reason is not None:
            # What to set is for who runs the service; an author could do nothing with it.
            logger.warning("a generation was refused: %s", reason)
            return _Plan(refusal=GenerationCode.GATEWAY_UNAVAILABLE)
        first = self._models.resolve(submission.model)
        return _Plan(
            target=first.target,
            second_target=second.target if second else None,
            reserve_usd_micros=reservation_usd_micros(
                first, second, submission.prompt, submission.output_fields
            ),
        )


def second_model(
    models: ModelRegistry, providers: Providers, model_id: str
) -> tuple[ModelSpec | None, str | None]:
    """The model of the second pass, and a sentence that names what to set, or None where it can
    be called (B13)."""
    try:
        spec = models.resolve(model_id)
    except ModelUnknownError:
        return None, f"model {model_id} is not in the models file: set GENQUEUE_EXTRACTION_MODEL"
    if model_id not in models.generation_models:
        return None, f"model {model_id} has no price: set GENQUEUE_EXTRACTION_MODEL to one that has"
    return spec, providers.unavailable_reason(model_id)
