"""How often does a client wait for Redis? A proxy that counts."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CountingProxy:
    """Passes bytes between clients and `upstream`, and counts round trips: bytes from the client
    after bytes from the server, or the first of a connection."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = [self._listener]
        self._round_trips = 0

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def round_trips(self) -> int:
        with self._lock:
            return self._round_trips

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                with self._lock:
                    self._sockets += [client, server]
                waiting = threading.Event()
                for pair in ((client, server, waiting, True), (server, client, waiting, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _pump(
        self, source: socket.socket, target: socket.socket, waiting: threading.Event, asks: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not asks:
                    waiting.clear()
                elif not waiting.is_set():
                    waiting.set()
                    with self._lock:
                        self._round_trips += 1
                target.sendall(data)


@contextmanager
def counting_proxy(port: int) -> Iterator[CountingProxy]:
    """A running proxy in front of the server on loopback's `port`."""
    proxy = CountingProxy(("127.0.0.1", port))
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)
