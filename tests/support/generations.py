"""What does a generation look like in a test: its models, its attempt, what its handler answers?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jobs.domain.billing import Bill
from jobs.domain.entities import Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.generation import ENVELOPE_MAX_BYTES
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Attempt, Job, Kind
from jobs.domain.models import ModelRegistry
from jobs.domain.outcome import Abandoned, Failed, Generated, Outcome, Snooze
from jobs.domain.states import State
from jobs.providers.base import Call, Completion, Provider
from jobs.providers.registry import Providers, build_providers
from jobs.worker.handlers.generation import GenerationHandler
from tests.support.openai_server import Reply, answer, completion

LARGE = "x" * ENVELOPE_MAX_BYTES
WHOLE = json.dumps({"subject": "a", "body": "b"})
"""A whole answer of the second pass."""

FIELDS = {"subject": "A short subject line.", "body": "One sentence."}
PRICES = {"input_usd_micros_per_mtok": 1_000_000, "output_usd_micros_per_mtok": 2_000_000}
COST = 7 + 2 * 3
"""What an answer of the server costs: 7 tokens asked, 3 answered."""


def registry_of(base_url: str, **extractor: object) -> ModelRegistry:
    supports = {
        "strict_schema": True,
        "reasoning_efforts": ["low", "minimal", "high"],
        "max_tokens_parameter": "max_completion_tokens",
    }
    return ModelRegistry.parse(
        {
            "default_model": "writer",
            "providers": {
                "main": {"type": "openai", "base_url": base_url},
                "keyed": {"type": "openai", "base_url": base_url, "api_key_env": "SOME_API_KEY"},
            },
            "models": [
                {"id": "writer", "provider": "main", **PRICES},
                {
                    "id": "extractor",
                    "provider": "main",
                    "supports": supports,
                    **PRICES,
                    **extractor,
                },
                {"id": "keyed", "provider": "keyed", **PRICES},
                {"id": "unpriced", "provider": "main"},
            ],
        }
    )


def attempt_of(
    prompt: str = "Write about Ada.",
    fields: Mapping[str, str] = FIELDS,
    target: str = "main:writer",
) -> Attempt:
    job = Job(
        id="gen-1",
        prompt_id="prompt-1",
        kind=Kind.GENERATION,
        state=State.RUNNING,
        priority=50,
        attempt=1,
        max_attempts=1,
        execution_options={"invocation_id": "run-77", "output_fields": dict(fields)},
        org_id="acme",
        created_by="team",
        target=target,
        schema_version=1,
        seq=1,
        created_at_ms=1,
        updated_at_ms=1,
        team_id="team-9",
    )
    return Attempt(job, "token", prompt)


def handler_of(
    models: ModelRegistry, extraction_model: str = "extractor", **options: Any
) -> GenerationHandler:
    return GenerationHandler(models, build_providers(models, {}), extraction_model, **options)


class Scripted(Providers):
    """Providers of which every one does what `complete` says."""

    def __init__(self, models: ModelRegistry, complete: Callable[[Call], str]) -> None:
        super().__init__(models, {})
        self._complete = complete

    def get(self, name: str) -> Provider:
        return ScriptedProvider(name, self._complete)


class ScriptedProvider:
    """Answers with the text that a function makes of the call."""

    def __init__(self, name: str, complete: Callable[[Call], str]) -> None:
        self.name = name
        self._complete = complete

    def complete(self, call: Call) -> Completion:
        text = self._complete(call)
        return Completion(text, call.model, "req-1", "stop", Usage(7, 3))


def scripted(complete: Callable[[Call], str], **options: Any) -> GenerationHandler:
    """A handler over providers that do what `complete` says."""
    models = registry_of("http://127.0.0.1:9/v1")
    return GenerationHandler(models, Scripted(models, complete), "extractor", **options)


def said(text: str | None, **options: object) -> Reply:
    return answer(completion(text, **options))


def fields_said(**values: object) -> Reply:
    return said(json.dumps(values))


def bill_of(outcome: Outcome) -> Bill:
    assert isinstance(outcome, Generated | Failed | Snooze | Abandoned)
    assert outcome.bill is not None
    return outcome.bill


def calls_of(outcome: Outcome) -> list[tuple[int, str, int | None]]:
    """Of each billed call: the pass, what went wrong, the cost."""
    calls = bill_of(outcome).calls
    return [(call.pass_number, call.error, call.cost_usd_micros) for call in calls]


def ended(outcome: Outcome) -> tuple[GenerationCode | None, ErrorKind]:
    assert isinstance(outcome, Failed), outcome
    return outcome.code, outcome.kind
