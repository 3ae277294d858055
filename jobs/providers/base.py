"""What does every provider offer? `complete`: messages in, one completion or one error out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.domain.entities import Usage


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a call; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a provider. `model` is the provider's own name for it; `json_schema` is a
    strict JSON schema with its name, or None for free text."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    json_schema: Mapping[str, Any] | None = None
    reasoning_effort: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back: whole, well-formed and not refused; anything else is an AttemptError."""

    text: str
    model: str
    provider_request_id: str | None
    finish_reason: str
    usage: Usage


class Provider(Protocol):
    """A named place that completes calls. Implementations are safe to share between threads,
    keep the current AbortScope (jobs.domain.abort), and raise only AttemptError or
    AttemptAbortedError."""

    @property
    def name(self) -> str:
        """The provider's name in the models file."""
        ...

    def complete(self, call: Call, on_text: Callable[[str], None] | None = None) -> Completion:
        """Run one call. Raises AttemptError with its kind (A9) and the provider's Retry-After.

        With `on_text` the answer is streamed: `on_text` gets each piece of text as it arrives,
        and "" for whatever else arrives, so that every call of it is activity (C6). The pieces
        make up the completion's text where one is returned; after an error they are void. What
        `on_text` raises ends the call and is raised as it is.
        """
        ...
