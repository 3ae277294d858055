"""Where does a test read what usage was reported? A server that takes batches, or doesn't."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Posted:
    """One request that arrived whole, with lower-case header names."""

    path: str
    headers: dict[str, str]
    body: Any


class CaptureServer:
    """Keeps what arrives and answers 200, or what `answer_next` queued."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[Posted] = []
        self._answers: deque[Callable[[BaseHTTPRequestHandler], None]] = deque()
        self._closing = threading.Event()
        posts, answers = self.posts, self._answers

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                posts.append(Posted(self.path, headers, body))
                answer = answers.popleft() if answers else status(200)
                answer(self)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        return self.http.server_port

    @property
    def url(self) -> str:
        """The address that a process is given."""
        return f"http://127.0.0.1:{self.port}/capture"

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of all requests, also of those that were refused, in order."""
        return [event for post in self.posts for event in post.body["batch"]]

    def answer_next(self, *answers: Callable[[BaseHTTPRequestHandler], None]) -> None:
        """Answer the next requests so."""
        self._answers.extend(answers)

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """An answer that never comes."""
        self._closing.wait(60)
        handler.close_connection = True

    def trickle(self, handler: BaseHTTPRequestHandler) -> None:
        """A header that never ends, a byte twenty times a second."""
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self._closing.wait(0.05):
                handler.wfile.write(b"x")
        except OSError:
            handler.close_connection = True

    def close(self) -> None:
        """Let go of who hangs, and take no more."""
        self._closing.set()
        self.http.shutdown()
        self.http.server_close()


def status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with this status and an empty body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


@contextmanager
def capture_server(port: int = 0) -> Iterator[CaptureServer]:
    """A server on loopback, until the end of the block."""
    server = CaptureServer(port)
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(5)
