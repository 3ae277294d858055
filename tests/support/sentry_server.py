"""Where does a test read what would have gone to Sentry? A server that takes envelopes."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SentryServer:
    """Keeps what arrives, decoded."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        texts = self._texts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                texts.append(body.decode())
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def dsn(self) -> str:
        """The address that a process is given."""
        return f"http://public@127.0.0.1:{self.http.server_port}/1"

    @property
    def everything(self) -> str:
        """All that arrived, as one text."""
        return "\n".join(self._texts)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events among it."""
        lines = [json.loads(line) for line in self.everything.splitlines() if line]
        return [line for line in lines if "event_id" in line and "level" in line]


@contextmanager
def sentry_server() -> Iterator[SentryServer]:
    """A server on loopback, until the end of the block."""
    server = SentryServer()
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join(5)
