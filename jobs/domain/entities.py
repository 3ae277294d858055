"""What does a prompt leave behind: the prompt itself, the response, and what a call used?"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RESPONSE_NAMESPACE: Final = uuid.UUID("6b7c2c6e-3a55-5d7c-9b43-0f5b8b1b7c11")

TRUTH_CLASS_GENERATED: Final = "generated"
STATE_CLASS_SETTLED: Final = "settled"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one provider call; None where the provider did not say."""

    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one attempt, ready to be stored (A19).

    `id` is derived (A15), `cost_usd_micros` comes from the models file and is None where the
    usage or the price is unknown; `source_refs` are ids of entities the text was made from.
    """

    id: str
    text: str
    provider: str
    model: str
    provider_request_id: str | None
    finish_reason: str
    usage: Usage
    cost_usd_micros: int | None
    source_refs: tuple[str, ...]
    truth_class: str = TRUTH_CLASS_GENERATED
    state_class: str = STATE_CLASS_SETTLED


@dataclass(frozen=True, slots=True)
class Prompt:
    """A stored prompt: the caller's text and where it stands in the conversation (A18)."""

    id: str
    org_id: str
    created_by: str
    text: str
    parent_id: str | None
    correlation_id: str
    causation_id: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at_ms: int = 0


def response_id(prompt_id: str, provider_request_id: str | None, job_id: str, attempt: int) -> str:
    """The id of a response: UUID v5 of (prompt, provider request id), so that a duplicate
    write collides; of (prompt, job, attempt) where the provider named no request (A15)."""
    if provider_request_id:
        name = f"{prompt_id}\n{provider_request_id}"
    else:
        name = f"{prompt_id}\n{job_id}\n{attempt}"
    return str(uuid.uuid5(RESPONSE_NAMESPACE, name))
