"""What answers where no account is needed? Obviously fake text, the same for the same prompt.

Tests and demonstrations script it by directives in the prompt:

    [[mock delay=0.25]]                        answer after 0.25 s
    [[mock hang]]                              never answer; the deadline or a cancel ends it
    [[mock error=rate_limit retry_after=3]]    fail with that kind, and that wait in seconds
    [[mock error=provider_5xx times=2]]        fail the first two calls of this prompt, then answer
    [[mock delay=0.1 error=timeout]]           fail after 0.1 s
    [[mock fault=refused]]                     answer, but as a model does that declines
    [[mock fault=cut_off]]                     answer, but be cut off at the limit
    [[mock fault=malformed]]                   answer what can't be read

`times` is counted per process. An unknown word is a provider_4xx that names it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.providers.base import Call, Completion
from jobs.providers.scope import scoped

COUNTED_PROMPTS_MAX: Final = 1_000

_MARK: Final = "[[mock "
_DIRECTIVE: Final = re.compile(r"\[\[mock ([^\]]*)\]\]")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_KINDS: Final = frozenset(ErrorKind)
_KIND_OF_FAULT: Final = MappingProxyType(
    {
        Fault.REFUSED: ErrorKind.PROVIDER_4XX,
        Fault.CUT_OFF: ErrorKind.PARSE,
        Fault.MALFORMED: ErrorKind.PARSE,
    }
)


@dataclass(frozen=True, slots=True)
class MockScript:
    """What a prompt asks of the mock: wait, then fail, answer with a fault or answer; `times`
    None fails always. An `error` goes before a `fault`: it is no answer at all."""

    delay_s: float = 0.0
    hangs: bool = False
    error: ErrorKind | None = None
    fault: Fault = Fault.NONE
    retry_after_s: float | None = None
    times: int | None = None


def parse_script(text: str) -> MockScript:
    """The script that the directives in `text` make; a later word wins over an earlier one.

    Raises AttemptError (provider_4xx) for a word that is none.
    """
    fields: dict[str, Any] = {}
    for directive in _DIRECTIVE.findall(text):
        for word in directive.split():
            fields.update([_parse_word(word)])
    return MockScript(**fields)


class MockProvider:
    """A provider without network, key or cost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures_lock = threading.Lock()
        self._failures: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The provider's name in the models file."""
        return self._name

    def complete(self, call: Call) -> Completion:
        """Answer, or do what the prompt's directives say. Raises AttemptError and, where the
        scope is aborted meanwhile, AttemptAbortedError."""
        prompt = call.messages[-1].content if call.messages else ""
        encoded = prompt.encode("utf-8", "replace")
        digest = hashlib.blake2b(encoded, digest_size=6).hexdigest()
        words = len(prompt.split())
        text = _text_for(call, digest, words)
        usage = Usage(prompt_tokens=words, completion_tokens=len(text.split()))
        if _MARK in prompt:
            self._perform(parse_script(prompt), digest, usage)
        return Completion(
            text=text,
            model=call.model,
            provider_request_id=f"mock-{uuid.uuid4().hex}",
            finish_reason="stop",
            usage=usage,
        )

    def _perform(self, script: MockScript, digest: str, usage: Usage) -> None:
        with scoped() as scope:
            if script.hangs:
                scope.wait(scope.remaining_s())
            if script.delay_s:
                scope.wait(script.delay_s)
        is_faulty = script.error is not None or script.fault is not Fault.NONE
        if not is_faulty or not self._is_to_fail(script.times, digest):
            return
        if script.error is not None:
            raise AttemptError(script.error, "the mock was told to fail", script.retry_after_s)
        kind, message = _KIND_OF_FAULT[script.fault], f"the mock was told to be {script.fault}"
        raise AttemptError(kind, message, fault=script.fault, usage=usage)

    def _is_to_fail(self, times: int | None, digest: str) -> bool:
        if times is None:
            return True
        with self._failures_lock:
            failed = self._failures.get(digest, 0)
            if failed >= times:
                return False
            if len(self._failures) >= COUNTED_PROMPTS_MAX:
                self._failures.clear()
            self._failures[digest] = failed + 1
            return True


def _text_for(call: Call, digest: str, words: int) -> str:
    if call.json_schema is None:
        return (
            f"This is mock text: no model was asked. "
            f"Your prompt had {words} words; its fingerprint is {digest}."
        )
    schema = call.json_schema.get("schema", {})
    return json.dumps({name: f"mock {name} {digest}" for name in schema.get("properties", {})})


def _parse_word(word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    if word == "hang":
        return "hangs", True
    if key == "error" and value in _KINDS:
        return "error", ErrorKind(value)
    if key == "fault" and value in _KIND_OF_FAULT:
        return "fault", Fault(value)
    if key in ("delay", "retry_after") and _SECONDS.fullmatch(value):
        return f"{key}_s", float(value)
    if key == "times" and value.isascii() and value.isdigit() and len(value) <= 6:
        return "times", int(value)
    raise AttemptError(ErrorKind.PROVIDER_4XX, f"the mock knows no directive {word[:40]!r}")
