"""Where do tests and benches get an OpenAI-compatible server that misbehaves on demand?

A real HTTP/1.1 server over loopback, one asyncio loop. In a test:

    with openai_server() as server:
        server.answer_next(status(429, code="rate_limit_exceeded", headers={"Retry-After": "3"}))
        ...                          # call server.base_url; server.arrivals counts requests
        assert server.requests[0].json["model"] == "m"

Answers queued by `answer_next` go first, then the one set for the model (`answer_model`), then
what the model's name says (`delay-0.25`, `status-503`, `hang`, `trickle-body`, `trickle-header`),
then the default. As a process of its own:

    python -m tests.support.openai_server --port 0 --delay-s 0.25

prints its base URL on the first line and serves until SIGTERM; `GET /stats` answers counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import ssl
import struct
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

HOST = "127.0.0.1"
NO_LINGER = struct.pack("ii", 1, 0)


class Fault(StrEnum):
    """How an answer goes wrong on the wire."""

    NONE = "none"
    HANG = "hang"
    TRICKLE_HEADER = "trickle-header"
    TRICKLE_BODY = "trickle-body"
    RESET_MID_BODY = "reset-mid-body"
    CLOSE_MID_BODY = "close-mid-body"
    CLOSE_AT_ONCE = "close-at-once"


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `headers` may hold several of a name; `body` None is a completion."""

    status: int = 200
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    delay_s: float = 0.0
    fault: Fault = Fault.NONE
    trickle_every_s: float = 1.0


@dataclass
class Request:
    """What arrived, with lower-case header names. `connection` numbers the TCP connections;
    `left` is set when the client closed while its answer was not complete."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name.lower()), None)


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
    if word == "status":
        return status(int(value))
    if model in ("hang", "trickle-body", "trickle-header"):
        return Reply(fault=Fault(model))
    return None


class OpenAIServer:
    """The server; start it by `openai_server` or `serve_forever`."""

    def __init__(self, default: Reply | None = None) -> None:
        self.default = default or Reply()
        self.requests: list[Request] = []
        self.connections = 0
        self.concurrent_max = 0
        self.port = 0
        self.keeps_requests = True
        self.request_count = 0
        self.arrivals = threading.Semaphore(0)
        self.scheme = "http"
        self.group_of: Callable[[Request], str] = lambda _request: ""
        self.group_max: Counter[str] = Counter()
        self._in_group: Counter[str] = Counter()
        self._concurrent = 0
        self._next: deque[Reply] = deque()
        self._by_model: dict[str, Reply] = {}
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}/v1"

    def answer_next(self, *replies: Reply) -> None:
        self._next.extend(replies)

    def answer_model(self, model: str, reply: Reply) -> None:
        self._by_model[model] = reply

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.scheme = "https" if tls else "http"
        self._server = await asyncio.start_server(self._serve, HOST, port, backlog=1024, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                request = await _read_request(reader, number)
                if not await self._answer(request, reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if request.path == "/stats":
            counts = {"requests": self.request_count, "concurrent_max": self.concurrent_max}
            writer.write(_encode(answer(counts)))
            return True
        self.request_count += 1
        if self.keeps_requests:
            self.requests.append(request)
        self.arrivals.release()
        self._concurrent += 1
        self.concurrent_max = max(self.concurrent_max, self._concurrent)
        group = self.group_of(request)
        self._in_group[group] += 1
        self.group_max[group] = max(self.group_max[group], self._in_group[group])
        try:
            reply = self._reply_to(request)
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)
            return await _perform(reply, request, reader, writer)
        finally:
            self._concurrent -= 1
            self._in_group[group] -= 1

    def _reply_to(self, request: Request) -> Reply:
        if self._next:
            return self._next.popleft()
        model = str(request.json.get("model")) if request.body else ""
        return self._by_model.get(model) or named_reply(model) or self.default


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    headers = [
        (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)
    ]
    length = int(dict(headers).get("content-length", "0"))
    body = await reader.readexactly(length)
    return Request(first.split(" ")[1], headers, body, connection)


def _encode(reply: Reply) -> bytes:
    body = json.dumps(completion()).encode() if reply.body is None else reply.body
    lines = [
        f"HTTP/1.1 {reply.status} Scripted",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in reply.headers),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def _perform(
    reply: Reply,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """Send the answer or what the fault leaves of it; whether the connection goes on."""
    data = _encode(reply)
    body_at = data.index(b"\r\n\r\n") + 4
    if reply.fault is Fault.NONE:
        writer.write(data)
        await writer.drain()
        return True
    if reply.fault is Fault.HANG:
        await reader.read(1)
        request.left.set()
    elif reply.fault in (Fault.TRICKLE_BODY, Fault.TRICKLE_HEADER):
        sent_at_once = body_at if reply.fault is Fault.TRICKLE_BODY else 12
        writer.write(data[:sent_at_once])
        await _trickle(data[sent_at_once:], reply.trickle_every_s, request, reader, writer)
    elif reply.fault in (Fault.RESET_MID_BODY, Fault.CLOSE_MID_BODY):
        writer.write(data[: body_at + 20])
        await writer.drain()
        if reply.fault is Fault.RESET_MID_BODY:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    return False


async def _trickle(
    data: bytes,
    every_s: float,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    gone = asyncio.ensure_future(reader.read(1))
    for position in range(len(data)):
        await asyncio.wait([gone], timeout=every_s)
        if gone.done():
            request.left.set()
            return
        writer.write(data[position : position + 1])
    gone.cancel()


@contextmanager
def openai_server(
    default: Reply | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[OpenAIServer]:
    """A running server in a thread of this process."""
    server = OpenAIServer(default)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="openai-server", daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(tls=tls), loop).result(timeout=10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


async def _end_tasks() -> None:
    mine = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not mine]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def headers_of(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers of a Reply from a mapping."""
    return tuple(pairs.items())


async def serve_forever(port: int, default: Reply) -> None:
    """Serve, print the base URL, never end; requests are counted, not kept."""
    server = OpenAIServer(default)
    server.keeps_requests = False
    await server.start(port)
    sys.stdout.write(server.base_url + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """Run the server as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-s", type=float, default=0.0)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_forever(options.port, Reply(delay_s=options.delay_s)))


if __name__ == "__main__":
    main()
