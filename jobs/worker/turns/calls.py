"""How does a turn make one call, and who hears of it? (C1, C6)

Whatever way a call ends, it is on the list of its turn, and whoever watches has seen that it
began, each piece that arrived, and that it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from jobs.domain.abort import AbortScope, entered
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind
from jobs.domain.models import ModelSpec
from jobs.providers.base import Call, Completion, Provider
from jobs.providers.registry import Providers

ABORTED: Final = "aborted"
"""What is noted of a call that was told to end."""

_UNKNOWN_USAGE: Final = Usage(None, None)

Made = TypeVar("Made")


class Purpose(StrEnum):
    """What a call is for."""

    PLAN = "plan"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class CalledModel:
    """A call that was made, paid or not. `usage` is what the provider says, its counts None where
    it says nothing; `error` is the word of what went wrong, empty where nothing did, and
    `retry_after_s` the wait that its provider asked for then."""

    spec: ModelSpec
    usage: Usage
    provider_request_id: str | None
    latency_ms: int
    purpose: Purpose
    error: str
    retry_after_s: float | None = None


class Watch(Protocol):
    """Who follows a turn; called in the thread that runs it. What it raises ends the turn."""

    def on_activity(self) -> None:
        """A call begins or ends, or a piece of its answer arrives (C6)."""
        ...

    def on_pause(self, for_s: float) -> None:
        """The next try comes after a pause, which is no idleness."""
        ...

    def on_progress(self, task_number: int, count: int, agent: str) -> None:
        """Task `task_number` of `count`, from 1, is now `agent`'s: at its start, and again where
        another agent takes it over."""
        ...

    def on_text(self, piece: str) -> None:
        """The next piece of the answer: of the last task only, never empty."""
        ...

    def on_restart(self) -> None:
        """All text until now is void: the call that it came from failed."""
        ...


class Calls:
    """Makes the calls of one turn, each within `call_budget_s` seconds and within `scope`, and
    adds them to `made`. `clock` is monotonic seconds."""

    def __init__(
        self,
        providers: Providers,
        scope: AbortScope,
        watch: Watch,
        made: list[CalledModel],
        *,
        call_budget_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = providers
        self._scope = scope
        self._watch = watch
        self._made = made
        self._call_budget_s = call_budget_s
        self._clock = clock

    def make(
        self,
        spec: ModelSpec,
        call: Call,
        purpose: Purpose,
        read: Callable[[Completion], Made],
        *,
        is_answer: bool = False,
    ) -> Made:
        """What `read` makes of the completion; the text is passed on as it arrives where it
        `is_answer`.

        Raises AttemptError where the call or `read` did, or where the scope's own time is up;
        AttemptAbortedError where the scope is aborted.
        """
        self._scope.check()
        provider = self._providers.get(spec.provider)
        stream = _Stream(self._watch, is_answer=is_answer)
        self._watch.on_activity()
        begun = _Begun(spec, purpose, self._clock())
        try:
            with entered(self._scope.narrowed(self._call_budget_s)):
                completion = self._completed(begun, provider, call, stream)
            made = self._read(begun, completion, read)
        except AttemptError:
            # Before the end of the call counts as activity: a scope that ended it stays over.
            self._scope.check()
            stream.void()
            self._watch.on_activity()
            raise
        self._watch.on_activity()
        return made

    def _completed(
        self, begun: _Begun, provider: Provider, call: Call, stream: _Stream
    ) -> Completion:
        try:
            return provider.complete(call, stream.take)
        except Exception as error:
            known = error if isinstance(error, AttemptError) else None
            usage, wait_s = (known.usage, known.retry_after_s) if known else (None, None)
            self._add(begun, _word_of(error), usage, retry_after_s=wait_s)
            raise

    def _read(
        self, begun: _Begun, completion: Completion, read: Callable[[Completion], Made]
    ) -> Made:
        usage, request_id = completion.usage, completion.provider_request_id
        try:
            made = read(completion)
        except Exception as error:
            self._add(begun, _word_of(error), usage, request_id)
            raise
        self._add(begun, "", usage, request_id)
        return made

    def _add(
        self,
        begun: _Begun,
        word: str,
        usage: Usage | None = None,
        request_id: str | None = None,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        latency_ms = round((self._clock() - begun.at_s) * 1000)
        known = _UNKNOWN_USAGE if usage is None else usage
        self._made.append(
            CalledModel(
                begun.spec, known, request_id, latency_ms, begun.purpose, str(word), retry_after_s
            )
        )


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that is on its way, since `at_s` of the clock."""

    spec: ModelSpec
    purpose: Purpose
    at_s: float


def _word_of(error: Exception) -> str:
    if isinstance(error, AttemptError):
        return error.fault or error.kind
    return ABORTED if isinstance(error, AttemptAbortedError) else ErrorKind.UNKNOWN


class _Stream:
    """What arrives of one answer on its way to who watches."""

    def __init__(self, watch: Watch, *, is_answer: bool) -> None:
        self._watch = watch
        self._is_answer = is_answer
        self._has_sent = False

    def take(self, piece: str) -> None:
        """Pass a piece on; one without text is activity alone."""
        self._watch.on_activity()
        if piece and self._is_answer:
            self._has_sent = True
            self._watch.on_text(piece)

    def void(self) -> None:
        """Take back what was passed on, where anything was."""
        if self._has_sent:
            self._watch.on_restart()
