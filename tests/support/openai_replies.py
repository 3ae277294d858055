"""What can the OpenAI-compatible server of the tests be told to answer?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any

from tests.support.openai_stream import event


class Fault(StrEnum):
    """How an answer goes wrong on the wire. The last three are of a stream alone: after half of
    its events nothing more comes, or its orderly end, or an error in their place."""

    NONE = "none"
    HANG = "hang"
    TRICKLE_HEADER = "trickle-header"
    TRICKLE_BODY = "trickle-body"
    RESET_MID_BODY = "reset-mid-body"
    CLOSE_MID_BODY = "close-mid-body"
    CLOSE_AT_ONCE = "close-at-once"
    HANG_MID_STREAM = "hang-mid-stream"
    END_MID_STREAM = "end-mid-stream"
    ERROR_MID_STREAM = "error-mid-stream"


OF_ONE_PIECE = (Fault.HANG, Fault.TRICKLE_HEADER, Fault.CLOSE_AT_ONCE)
"""The faults that a stream has as any other answer has them."""


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `headers` may hold several of a name; `body` None is a completion.

    Of a completion that is streamed: its text comes in `pieces`, or in words, the next
    `piece_every_s` seconds later; `stream_error` is what ERROR_MID_STREAM says. Where it is not
    `streams`, the server knows no streams and answers in one piece.
    """

    status: int = 200
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    delay_s: float = 0.0
    fault: Fault = Fault.NONE
    trickle_every_s: float = 1.0
    streams: bool = True
    pieces: Sequence[str] | None = None
    piece_every_s: float = 0.0
    stream_error: object = None


def completion(
    text: str | None = "Hello.",
    *,
    finish_reason: str | None = "stop",
    model: str = "served-model",
    answer_id: str | None = None,
    usage: object = None,
    **message: object,
) -> dict[str, Any]:
    """The body of a chat completion, as OpenAI sends it."""
    return {
        "id": answer_id or f"chatcmpl-{next(_ids)}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        if usage is None
        else usage,
    }


_ids = count(1)


def answer(body: object, **options: Any) -> Reply:
    """A 200 with `body` as JSON, or as it is where it is bytes."""
    return Reply(body=body if isinstance(body, bytes) else json.dumps(body).encode(), **options)


def sse(*events: bytes | object) -> Reply:
    """A stream of exactly these events: bytes as they are, others as JSON."""
    parts = [each if isinstance(each, bytes) else event(each) for each in events]
    return Reply(body=b"".join(parts), content_type="text/event-stream")


def status(code: int, *, error_code: str | None = None, message: str = "", **options: Any) -> Reply:
    """An error in OpenAI's shape."""
    error = {"message": message, "type": "some_error", "param": None, "code": error_code}
    return Reply(status=code, body=json.dumps({"error": error}).encode(), **options)


def html(code: int = 200) -> Reply:
    """What a proxy or a captive portal answers."""
    return Reply(status=code, body=b"<html>hello</html>", content_type="text/html")


def fault(kind: Fault, **options: Any) -> Reply:
    """A well-meant answer that goes wrong on the wire."""
    return Reply(fault=kind, **options)


def named_reply(model: str) -> Reply | None:
    """The answer that a model's name asks for."""
    word, _, value = model.partition("-")
    if word == "delay":
        return Reply(delay_s=float(value))
    if word == "paced":
        return Reply(piece_every_s=float(value))
    if word == "status":
        return status(int(value))
    if model in ("hang", "trickle-body", "trickle-header"):
        return Reply(fault=Fault(model))
    return None


def headers_of(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers of a Reply from a mapping."""
    return tuple(pairs.items())
