"""What does a streamed chat completion say, piece by piece, and is it whole? (A9, C9)

Pure. The chunks are put together to what the same answer would have been in one piece, and that
is checked by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobs.domain.storable_text import storable
from jobs.providers.base import Completion
from jobs.providers.chat_answer import completion_of, malformed, name_of, parse_object, usage_of
from jobs.providers.errors import broken_stream_error, streamed_error
from jobs.providers.event_stream import Event, EventReader

TEXT_MAX_BYTES: Final = 8 * 1024 * 1024

_DONE: Final = "[DONE]"
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HIGH_SURROGATES: Final = ("\ud800", "\udbff")


class StreamedAnswer:
    """One answer while it arrives. The pieces that it gives make up the text of its completion.

    Every method raises AttemptError as `read_answer` does.
    """

    def __init__(self) -> None:
        self._events = EventReader()
        self._text = _TextInPieces()
        self._refusal = ""
        self._names: dict[str, str] = {}
        self._usage: Mapping[str, Any] | None = None
        self._finish_reason: object = None
        self._has_choice = False
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether the server said that nothing more is to come."""
        return self._is_done

    def take(self, chunk: bytes) -> Iterator[str]:
        """What `chunk` adds to the text; an empty piece for each event that adds none."""
        yield from self._pieces_of(self._events.feed(chunk))

    def finish(self) -> Iterator[str]:
        """What the end of the stream adds to the text."""
        yield from self._pieces_of(self._events.finish())
        rest = self._text.rest()
        if rest:
            yield rest

    def completion(self, request_id: str | None, asked_model: str) -> Completion:
        """The whole answer, after `finish`. As for `read_answer`, and provider_5xx where the
        stream ended before the answer did."""
        if self._finish_reason is None and not self._is_done:
            raise broken_stream_error(None if self._usage is None else usage_of(self._usage))
        message = {"content": self._text.whole(), "refusal": self._refusal}
        choice = {"message": message, "finish_reason": self._finish_reason}
        answer = {
            **self._names,
            "choices": [choice] if self._has_choice else [],
            "usage": self._usage,
        }
        return completion_of(answer, request_id, asked_model)

    def _pieces_of(self, events: Iterator[Event | None]) -> Iterator[str]:
        while not self._is_done:
            try:
                event = next(events)
            except StopIteration:
                return
            except ValueError as error:
                raise malformed(str(error)) from None
            yield "" if event is None else self._piece_of(event)

    def _piece_of(self, event: Event) -> str:
        if event.data.strip() == _DONE:
            self._is_done = True
            return ""
        chunk = parse_object(event.data)
        _refuse_error(event.name, chunk)
        for key in ("id", "model"):
            name = name_of(chunk.get(key))
            if name is not None:
                self._names.setdefault(key, name)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
            raise malformed("its choices are none")
        # Others than the first answer were not asked for.
        return "".join(self._take_choice(each) for each in choices if not each.get("index"))

    def _take_choice(self, choice: Mapping[str, Any]) -> str:
        self._has_choice = True
        if choice.get("finish_reason") is not None:
            self._finish_reason = choice["finish_reason"]
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise malformed("its delta is no object")
        if delta.get("refusal"):
            self._refusal = "refused"
        content = delta.get("content")
        if content is None:
            return ""
        if not isinstance(content, str):
            raise malformed("its content is no text")
        return self._text.add(content)


class _TextInPieces:
    """A text as it comes: a character whose halves come in two pieces is held back until it is
    whole, and what can't be stored is replaced."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._size_bytes = 0

    def add(self, piece: str) -> str:
        text = self._held + piece
        is_half = _HIGH_SURROGATES[0] <= text[-1:] <= _HIGH_SURROGATES[1]
        self._held = text[-1] if is_half else ""
        return self._kept(text[:-1] if is_half else text)

    def rest(self) -> str:
        """What was held back and never became whole."""
        held, self._held = self._held, ""
        return self._kept(held)

    def whole(self) -> str:
        return "".join(self._pieces)

    def _kept(self, text: str) -> str:
        text = storable(_PAIR.sub(_joined, text))
        self._size_bytes += len(text.encode())
        if self._size_bytes > TEXT_MAX_BYTES:
            raise malformed(f"its text is longer than {TEXT_MAX_BYTES} bytes")
        if text:
            self._pieces.append(text)
        return text


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _refuse_error(event_name: str, chunk: Mapping[str, Any]) -> None:
    """Raise what the provider reports in the place of a chunk."""
    error = chunk.get("error")
    if not error and event_name != "error" and chunk.get("object") != "error":
        return
    details = error if isinstance(error, dict) else chunk
    raise streamed_error([details.get(key) for key in ("status", "code", "type", "param")])
