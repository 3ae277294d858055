"""Where does a test receive deliveries? A server that keeps the bytes."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TLS = Path(__file__).parent / "tls"
Reply = Callable[["Handler"], None]


@dataclass(frozen=True)
class Received:
    """One request that arrived whole: header names in lower case, the body as its bytes."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class _State:
    received: list[Received] = field(default_factory=list)
    replies: deque[Reply] = field(default_factory=deque)
    standing: Reply | None = None
    closing: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    """Keeps what arrives, then answers."""

    state: _State

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.received.append(Received(self.path, headers, body))
        reply = self.state.replies.popleft() if self.state.replies else self.state.standing
        (reply or status(200))(self)

    def do_GET(self) -> None:
        self.state.received.append(Received(self.path, {"method": "GET"}, b""))
        status(200)(self)

    def write(self, data: bytes) -> bool:
        """Send some of an answer; whether somebody still takes it."""
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True
            return False
        return True

    def pause(self, for_s: float) -> bool:
        """Wait; whether the server goes on."""
        return not self.state.closing.wait(for_s)

    def log_message(self, *_arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_arguments: object) -> None:
        """A client that hangs up is what some tests are about."""


class WebhookReceiver:
    """Answers 200, or what `answer_next` queued, or what `answer_all` said."""

    def __init__(self, *, port: int = 0, tls: bool = False) -> None:
        self._state = _State()
        handler = type("BoundHandler", (Handler,), {"state": self._state})
        self.http = _Server(("127.0.0.1", port), handler)
        self._scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "loopback.crt", TLS / "loopback.key")
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)

    @property
    def port(self) -> int:
        return self.http.server_port

    def url(self, host: str = "127.0.0.1", path: str = "/hook") -> str:
        """The address of a hook here."""
        return f"{self._scheme}://{host}:{self.port}{path}"

    @property
    def received(self) -> list[Received]:
        """All that arrived, in order."""
        return list(self._state.received)

    def answer_next(self, *replies: Reply) -> None:
        """Answer the next requests so."""
        self._state.replies.extend(replies)

    def answer_all(self, reply: Reply | None) -> None:
        """Answer all further requests so; None for 200."""
        self._state.standing = reply

    def close(self) -> None:
        """Let go of who hangs, and take no more."""
        self._state.closing.set()
        self.http.shutdown()
        self.http.server_close()


def status(code: int, **headers: str) -> Reply:
    """An answer with this status and an empty body; `Retry_After` is spelled with a dash."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def hang(handler: Handler) -> None:
    """An answer that never comes."""
    handler.pause(60)
    handler.close_connection = True


def endless(handler: Handler) -> None:
    """200, and a body without an end."""
    handler.send_response(200)
    handler.end_headers()
    while handler.write(b"x" * 65_536) and handler.pause(0):
        pass
    handler.close_connection = True


def trickle_header(handler: Handler) -> None:
    """A header that never ends, a byte at a time."""
    handler.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while handler.pause(0.05) and handler.write(b"x"):
        pass


def trickle_body(handler: Handler) -> None:
    """200, and a body of a byte at a time."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while handler.pause(0.05) and handler.write(b"x"):
        pass


def silent_body(handler: Handler) -> None:
    """200, and a body that never comes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10")
    handler.end_headers()
    hang(handler)


def bomb(handler: Handler) -> None:
    """200, and 60 kB that unpack to 60 MB."""
    body = gzip.compress(b"\0" * 60_000_000)
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.write(body)


@contextmanager
def webhook_receiver(*, port: int = 0, tls: bool = False) -> Iterator[WebhookReceiver]:
    """A receiver on loopback, until the end of the block."""
    receiver = WebhookReceiver(port=port, tls=tls)
    thread = threading.Thread(target=receiver.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.close()
        thread.join(5)
