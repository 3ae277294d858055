"""Where do tests and benches get an OpenAI-compatible server that misbehaves on demand?

A real HTTP/1.1 server over loopback, one asyncio loop. In a test:

    with openai_server() as server:
        server.answer_next(status(429, code="rate_limit_exceeded", headers={"Retry-After": "3"}))
        ...                          # call server.base_url; server.arrivals counts requests
        assert server.requests[0].json["model"] == "m"

Answers queued by `answer_next` go first, then those for requests that a predicate takes
(`answer_when`), then the one set for the model (`answer_model`), then what the model's name says
(`delay-0.25`, `paced-0.25`, `status-503`, `hang`, `trickle-body`, `trickle-header`), then the
default. A completion is streamed where the request asks for that, and keeps the JSON schema that
the request names where its text is nobody's script. As a process of its own:

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.providers.schema_example import example_of
from tests.support.openai_replies import (
    OF_ONE_PIECE,
    Fault,
    Reply,
    answer,
    completion,
    fault,
    headers_of,
    html,
    named_reply,
    sse,
    status,
)
from tests.support.openai_stream import HEAD, SERVER_ERROR, chunked, event, events_of, write_events

__all__ = [
    "Fault",
    "OpenAIServer",
    "Reply",
    "Request",
    "answer",
    "completion",
    "fault",
    "headers_of",
    "html",
    "openai_server",
    "sse",
    "status",
]

HOST = "127.0.0.1"
NO_LINGER = struct.pack("ii", 1, 0)


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
        self._by_predicate: list[tuple[Callable[[Any], bool], deque[Reply]]] = []
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}/v1"

    def answer_next(self, *replies: Reply) -> None:
        self._next.extend(replies)

    def answer_model(self, model: str, reply: Reply) -> None:
        self._by_model[model] = reply

    def answer_when(self, predicate: Callable[[Any], bool], *replies: Reply) -> None:
        """Answer requests whose JSON `predicate` takes: by each reply once, by the last for ever.
        Of several predicates that take a request the one that was given last counts."""
        self._by_predicate.insert(0, (predicate, deque(replies)))

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
            return await _perform(_made_whole(reply, request), request, reader, writer)
        except ConnectionError:
            # A client that leaves with something unread resets the connection.
            request.left.set()
            raise
        finally:
            self._concurrent -= 1
            self._in_group[group] -= 1

    def _reply_to(self, request: Request) -> Reply:
        if self._next:
            return self._next.popleft()
        for predicate, replies in self._by_predicate:
            if request.body and predicate(request.json):
                return replies.popleft() if len(replies) > 1 else replies[0]
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


def _made_whole(reply: Reply, request: Request) -> Reply:
    """`reply` with a completion for its body where it has none."""
    if reply.body is not None:
        return reply
    text = "Hello."
    asked = request.json.get("response_format") if request.body else None
    if asked and asked.get("type") == "json_schema":
        schema = asked["json_schema"].get("schema", {})
        text = json.dumps(example_of(schema, lambda name: f"some {name}"))
    return replace(reply, body=json.dumps(completion(text)).encode())


def _events_of(reply: Reply, request: Request) -> list[bytes] | None:
    """The events of `reply` where it is to be streamed."""
    asked = request.json if request.body else {}
    is_json = reply.status == 200 and reply.content_type == "application/json"
    if not asked.get("stream") or not is_json or not reply.streams or reply.fault in OF_ONE_PIECE:
        return None
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        has_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        return events_of(json.loads(reply.body or b""), reply.pieces, has_usage=has_usage)
    return None


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
    events = _events_of(reply, request)
    if events is not None and reply.fault is not Fault.TRICKLE_BODY:
        return await _perform_stream(events, reply, request, reader, writer)
    if events is not None:
        reply = replace(reply, body=b"".join(events), content_type="text/event-stream")
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
        _let_reset(reply, writer)
    return False


async def _perform_stream(
    events: list[bytes],
    reply: Reply,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    if reply.fault is not Fault.NONE:
        events = events[: len(events) // 2]
    if reply.fault is Fault.ERROR_MID_STREAM:
        events.append(event({"error": reply.stream_error or SERVER_ERROR}))
    lines = "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
    writer.write(f"{HEAD}{lines}\r\n".encode("latin-1"))
    if not await write_events(events, reply.piece_every_s, request.left, reader, writer):
        return False
    if reply.fault is Fault.HANG_MID_STREAM:
        await reader.read(1)
        request.left.set()
    _let_reset(reply, writer)
    if reply.fault not in (Fault.NONE, Fault.END_MID_STREAM, Fault.ERROR_MID_STREAM):
        return False
    writer.write(chunked(b""))
    await writer.drain()
    return True


def _let_reset(reply: Reply, writer: asyncio.StreamWriter) -> None:
    if reply.fault is Fault.RESET_MID_BODY:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


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
