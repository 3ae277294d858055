"""How does an OpenAI-compatible server stream a completion: in which events, and how wrong?"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

DONE = b"data: [DONE]\n\n"
HEAD = (
    "HTTP/1.1 200 Scripted\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n"
)
SERVER_ERROR = {"message": "gone", "type": "server_error", "param": None, "code": None}


def pieces_of(text: str) -> list[str]:
    """`text` in words, and in two halves where it is one."""
    words = re.findall(r"\S+\s*|\s+", text)
    if len(words) == 1 and len(text) > 1:
        return [text[: len(text) // 2], text[len(text) // 2 :]]
    return words


def event(data: object) -> bytes:
    """One event with `data` as JSON."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def events_of(
    body: Mapping[str, Any], pieces: Sequence[str] | None, *, has_usage: bool
) -> list[bytes]:
    """The events of the completion `body`: its role, its text in pieces (`pieces`, or words), why
    it ended, its usage where that is asked for, and that it is done."""
    choice = body["choices"][0]
    message = choice["message"]
    if pieces is None:
        pieces = pieces_of(message.get("content") or "")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces]
    if message.get("refusal"):
        deltas.append({"refusal": message["refusal"]})
    head = {
        "id": body.get("id"),
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body.get("model"),
    }

    def chunk(delta: dict[str, Any], finish_reason: object) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return event({**head, "choices": choices, **({"usage": None} if has_usage else {})})

    events = [chunk(delta, None) for delta in deltas]
    events.append(chunk({}, choice.get("finish_reason")))
    if has_usage:
        events.append(event({**head, "choices": [], "usage": body.get("usage")}))
    return [*events, DONE]


def chunked(data: bytes) -> bytes:
    """`data` as one chunk of a body; none ends the body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def write_events(
    events: Sequence[bytes],
    every_s: float,
    left: threading.Event,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """Write each event as a chunk, the next `every_s` seconds later; sets `left` and answers
    False where the client went away meanwhile."""
    for number, each in enumerate(events):
        if number and every_s:
            await asyncio.sleep(every_s)
        # Reads nothing: on a connection that is kept this might be the next request.
        if reader.at_eof():
            left.set()
            return False
        writer.write(chunked(each))
        await writer.drain()
    return True
