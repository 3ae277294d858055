"""What answers where no account is needed? Obviously fake text, the same for the same prompt.

Tests and demonstrations script it by directives in the prompt:

    [[mock delay=0.25]]                        answer after 0.25 s; a streamed text spreads over it
    [[mock hang]]                              never answer; the deadline or a cancel ends it
    [[mock error=rate_limit retry_after=3]]    fail with that kind, and that wait in seconds
    [[mock error=provider_5xx times=2]]        fail the first two calls of this prompt, then answer
    [[mock delay=0.1 error=timeout]]           fail after 0.1 s
    [[mock fault=refused]]                     answer, but as a model does that declines
    [[mock fault=cut_off]]                     answer, but be cut off at the limit
    [[mock fault=malformed]]                   answer what can't be read

`times` is counted per process. An unknown word is a provider_4xx that names it.

Asked for a plan, it makes one of a single task for the first agent. What the caller's message says
is then meant for the tasks, but a made-up plan does not hand it on:

    [[mock planning error=timeout]]            have the planner do it, and nobody else
    [[mock planning awaiting=approval]]        ask for an approval in place of a plan; or for a
                                               clarification or a credential
    [[mock sticky error=provider_5xx]]         write it into every instruction, so that the tasks
                                               of the plan do it as well
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

from jobs.domain.abort import AbortScope
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, Fault
from jobs.domain.turn_plan import SCHEMA_NAME as PLAN_SCHEMA_NAME
from jobs.providers.base import Call, Completion
from jobs.providers.mock_script import (
    KIND_OF_FAULT,
    MARK,
    MockScript,
    lasting,
    parse_script,
    sticky_directives,
)
from jobs.providers.schema_example import example_of
from jobs.providers.scope import scoped

COUNTED_PROMPTS_MAX: Final = 1_000

_NO_SCRIPT: Final = MockScript()
_WORD: Final = re.compile(r"\S+\s*")


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

    def complete(self, call: Call, on_text: Callable[[str], None] | None = None) -> Completion:
        """Answer, or do what the prompt's directives say. Raises AttemptError and, where the
        scope is aborted meanwhile, AttemptAbortedError. `on_text` gets the text word by word."""
        prompt = call.messages[-1].content if call.messages else ""
        digest = hashlib.blake2b(lasting(prompt).encode("utf-8", "replace"), digest_size=6)
        script = _NO_SCRIPT
        if MARK in prompt:
            script = parse_script(prompt, is_planner=_asks_for_plan(call))
        text = _text_for(call, prompt, digest.hexdigest(), script)
        usage = Usage(prompt_tokens=len(prompt.split()), completion_tokens=len(text.split()))
        if MARK in prompt or on_text is not None:
            with scoped() as scope:
                self._perform(script, digest.hexdigest(), _Answer(text, usage, on_text), scope)
        return Completion(
            text=text,
            model=call.model,
            provider_request_id=f"mock-{uuid.uuid4().hex}",
            finish_reason="stop",
            usage=usage,
        )

    def _perform(self, script: MockScript, digest: str, answer: _Answer, scope: AbortScope) -> None:
        if script.hangs:
            scope.wait(math.inf)
        if not answer.is_streamed and script.delay_s:
            scope.wait(script.delay_s)
        failure = self._failure(script, digest, answer.usage)
        answer.say(failure, script.delay_s, scope)
        if failure is not None:
            raise failure

    def _failure(self, script: MockScript, digest: str, usage: Usage) -> AttemptError | None:
        is_faulty = script.error is not None or script.fault is not Fault.NONE
        if not is_faulty or not self._is_to_fail(script.times, digest):
            return None
        if script.error is not None:
            return AttemptError(script.error, "the mock was told to fail", script.retry_after_s)
        kind, message = KIND_OF_FAULT[script.fault], f"the mock was told to be {script.fault}"
        return AttemptError(kind, message, fault=script.fault, usage=usage)

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


class _Answer:
    """What is answered, and who listens while it is."""

    def __init__(self, text: str, usage: Usage, on_text: Callable[[str], None] | None) -> None:
        self.usage = usage
        self.is_streamed = on_text is not None
        self._text = text
        self._on_text = on_text

    def say(self, failure: AttemptError | None, delay_s: float, scope: AbortScope) -> None:
        """Stream what gets out: all, half of it where it is cut off, else nothing."""
        if self._on_text is None:
            return
        words = _WORD.findall(self._text)
        if failure is not None:
            words = words[: len(words) // 2] if failure.fault is Fault.CUT_OFF else []
        if not words:
            scope.wait(delay_s)
        for word in words:
            scope.wait(delay_s / len(words))
            self._on_text(word)


def _asks_for_plan(call: Call) -> bool:
    return call.json_schema is not None and call.json_schema.get("name") == PLAN_SCHEMA_NAME


def _text_for(call: Call, prompt: str, digest: str, script: MockScript) -> str:
    if call.json_schema is None:
        return (
            f"This is mock text: no model was asked. "
            f"Your prompt had {len(prompt.split())} words; its fingerprint is {digest}."
        )
    schema = call.json_schema.get("schema", {})
    value = example_of(schema, lambda name: f"mock {name} {digest}")
    if _asks_for_plan(call):
        _plan(value, sticky_directives(prompt), script)
    return json.dumps(value)


def _plan(value: dict[str, Any], sticky: str, script: MockScript) -> None:
    """Make `value`, an example of a plan, the answer of a planner."""
    if script.awaiting is not None:
        value.update(awaiting=str(script.awaiting), tasks=[])
        return
    value["question"] = ""
    for task in value.get("tasks", ()) if sticky else ():
        task["instruction"] += f" {sticky}"
