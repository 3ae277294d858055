"""What happens to a reply that gets lost? A TCP proxy before Redis that loses it on demand.

It forwards bytes both ways. When armed, it waits for a request that holds a given word, lets
Redis do the work, throws the first bytes of the answer away and cuts the connection: the
client can't know whether its command was run.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536


class LossyProxy:
    """A proxy on a free port before `upstream_port`; thread-safe."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._word = b""
        self._left = 0
        self.lost_replies = 0
        self._requests: list[bytes] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, name="lossy-proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The address that a client connects to."""
        return f"redis://{HOST}:{self.port}/0"

    def lose_reply_to(self, word: str, times: int = 1) -> None:
        """Lose the answers to the next `times` requests that hold `word`."""
        with self._lock:
            self._word, self._left = word.encode(), times
            self.lost_replies = 0
            self._requests.clear()

    def count_of(self, word: str) -> int:
        """How many requests since `lose_reply_to` held `word`."""
        with self._lock:
            return sum(word.encode() in request for request in self._requests)

    def close(self) -> None:
        """Stop listening and cut what is open."""
        self._listener.close()
        with self._lock:
            for sock in self._sockets:
                sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((HOST, self._upstream_port))
            with self._lock:
                self._sockets += [client, server]
            pair = _Pair(self, client, server)
            for run in (pair.carry_requests, pair.carry_replies):
                threading.Thread(target=run, name="lossy-pair", daemon=True).start()

    def note(self, request: bytes) -> bool:
        """Record a request; whether its reply is to be lost."""
        with self._lock:
            self._requests.append(request)
            if self._left == 0 or self._word not in request:
                return False
            self._left -= 1
            self.lost_replies += 1
            return True


class _Pair:
    """One client's connection and the one to Redis behind it."""

    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._loses = threading.Event()

    def carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(CHUNK_BYTES):
                if self._proxy.note(data):
                    self._loses.set()
                self._server.sendall(data)
        self._cut()

    def carry_replies(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(CHUNK_BYTES):
                if self._loses.is_set():
                    break
                self._client.sendall(data)
        self._cut()

    def _cut(self) -> None:
        for sock in (self._client, self._server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@contextmanager
def lossy_proxy(upstream_port: int) -> Iterator[LossyProxy]:
    """A running proxy before a Redis on this machine."""
    proxy = LossyProxy(upstream_port)
    try:
        yield proxy
    finally:
        proxy.close()
