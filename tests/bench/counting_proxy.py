"""How many round trips to Redis does a call take? A proxy on loopback that counts them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"
CHUNK = 65_536


class CountingProxy:
    """The proxy in front of the server at `port`; `url` is where clients connect.

    `round_trips` counts how often a client sent something and waited, `commands` what it sent,
    by name: a pipeline is one round trip of several commands.
    """

    def __init__(self, port: int) -> None:
        self._target = (HOST, port)
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.round_trips = 0
        self.commands: Counter[str] = Counter()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The address for REDIS_URL."""
        return f"redis://{HOST}:{self._listener.getsockname()[1]}/0"

    def reset(self) -> None:
        """Count from zero."""
        with self._lock:
            self.round_trips = 0
            self.commands.clear()

    def close(self) -> None:
        """Close everything."""
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            _shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            link = _Link(self, client, server)
            for carry in (link.carry_requests, link.carry_answers):
                threading.Thread(target=carry, daemon=True).start()

    def note_request(self, names: list[str], is_round_trip: bool) -> None:
        """A client sent these commands."""
        with self._lock:
            self.round_trips += is_round_trip
            self.commands.update(names)

    def forget(self, *connections: socket.socket) -> None:
        """These have ended."""
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            _shut(connection)


class _Link:
    """One client's connection."""

    def __init__(self, proxy: CountingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._waits = False
        self._pending = b""

    def carry_requests(self) -> None:
        """From the client to Redis."""
        for data in _chunks(self._client):
            names, self._pending = _commands_in(self._pending + data)
            self._proxy.note_request(names, not self._waits)
            self._waits = True
            with contextlib.suppress(OSError):
                self._server.sendall(data)
        self._proxy.forget(self._client, self._server)

    def carry_answers(self) -> None:
        """From Redis to the client."""
        for data in _chunks(self._server):
            self._waits = False
            with contextlib.suppress(OSError):
                self._client.sendall(data)
        self._proxy.forget(self._client, self._server)


def _chunks(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            yield data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _commands_in(data: bytes) -> tuple[list[str], bytes]:
    """The names of the whole commands in `data`, and what is left of the last one."""
    names: list[str] = []
    while data.startswith(b"*"):
        end = data.find(b"\r\n")
        if end < 0:
            break
        words, at = [], end + 2
        for _ in range(int(data[1:end])):
            end = data.find(b"\r\n", at)
            if end < 0:
                return names, data
            size = int(data[at + 1 : end])
            at = end + 2 + size + 2
            if at > len(data):
                return names, data
            words.append(data[end + 2 : end + 2 + size])
        names.append(words[0].decode("ascii", "replace").upper())
        data = data[at:]
    return names, data


@contextmanager
def proxied(port: int) -> Iterator[CountingProxy]:
    """A proxy for the length of a block."""
    proxy = CountingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
