"""How does a client of Server-Sent Events read? As the standard says, on a bare connection."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

CONNECT_S = 10.0


@dataclass(frozen=True)
class Message:
    """One dispatched event: its type, its data, the id to resume from."""

    name: str
    data: str
    last_id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Parser:
    """Bytes in, messages out; a line ends at CR, LF or both."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}
        self.last_id = ""
        self.comments = 0
        self.retry_ms: int | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes."""
        *lines, self._rest = re.split(rb"\r\n|\n|\r", self._rest + data)
        for line in lines:
            if not line:
                fields, self._fields = self._fields, {}
                if "data" in fields:
                    name = fields.get("event", ["message"])[-1]
                    yield Message(name, "\n".join(fields["data"]), self.last_id)
            elif line.startswith(b":"):
                self.comments += 1
            else:
                name, _, value = line.decode().partition(":")
                value = value.removeprefix(" ")
                if name == "id":
                    self.last_id = value
                elif name == "retry":
                    self.retry_ms = int(value)
                else:
                    self._fields.setdefault(name, []).append(value)


class EventStream:
    """A GET of an event stream, or with a body a POST that is answered by one; a context manager
    that drops the connection."""

    def __init__(
        self, port: int, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> None:
        self.parser = Parser()
        self._ready: list[Message] = []
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CONNECT_S)
        self._connection.request("GET" if body is None else "POST", path, body, headers)
        self.socket: socket.socket = self._connection.sock
        self.response = self._connection.getresponse()
        self.status = self.response.status
        self.headers = self.response.headers
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Close the connection without a word."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self._connection.close()

    def messages(
        self, within_s: float, enough: Callable[[list[Message]], object] = lambda _found: False
    ) -> list[Message]:
        """All that comes within the time, until it is `enough` or the stream has ended."""
        until_s = time.monotonic() + within_s
        found: list[Message] = []
        while not self.is_over and not enough(found):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            self.socket.settimeout(left_s)
            try:
                data = self.response.read1(65536)
            except TimeoutError:
                break
            except (OSError, http.client.HTTPException):
                data = b""
            self.is_over = not data
            found.extend(self.parser.feed(data))
        return found

    def next(self, count: int, within_s: float = 10.0) -> list[Message]:
        """The next `count` messages; fails the test where they don't come."""
        found = self.messages(within_s, lambda so_far: len(so_far) >= count)
        assert len(found) == count, f"{len(found)} of {count} messages in {within_s} s: {found}"
        return found

    def wait_open(self, within_s: float = 10.0) -> None:
        """Until the stream has said its first word: what happens from now on comes over it."""
        self.messages(within_s, lambda _found: self.parser.comments)
        assert self.parser.comments, "the stream did not open"
