"""How long does a request take at a fixed rate, whatever the server does?

Every request has its moment. Its time counts from that moment and not from when a sender was
free for it, so that a server which stalls can't make the load wait for it.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SENDERS = 64
REUSE_WITHIN_S = 1.0
"""gunicorn closes a connection that was idle for 2 s; an older one is not used again."""

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Post:
    """A request that is sent again and again."""

    port: int
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Load:
    """What came of it: seconds from each request's moment to its whole answer, by status."""

    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, latency_s: float, status: str) -> None:
        """One request has ended."""
        with self.lock:
            self.latencies_s.append(latency_s)
            self.statuses[status] += 1


class Connection:
    """Sends posts one after another over a connection that is opened as needed."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._http = http.client.HTTPConnection("127.0.0.1", post.port, timeout=TIMEOUT_S)
        self._used_at_s = 0.0

    def send(self) -> str:
        """One request; answers its status, or the name of what went wrong."""
        if time.monotonic() - self._used_at_s > REUSE_WITHIN_S:
            self._http.close()
        try:
            self._http.request("POST", self._post.path, self._post.body, dict(self._post.headers))
            answer = self._http.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            return type(error).__name__
        self._used_at_s = time.monotonic()
        return str(answer.status)

    def close(self) -> None:
        """Close it."""
        self._http.close()


def at_rate(post: Post, *, per_s: float, for_s: float) -> Load:
    """Send `post` at a fixed rate, and wait for every answer."""
    load = Load()
    moments = iter(range(int(per_s * for_s)))
    lock = threading.Lock()
    begin_s = time.perf_counter() + 0.2

    def work() -> None:
        connection = Connection(post)
        while True:
            with lock:
                number = next(moments, None)
            if number is None:
                break
            due_s = begin_s + number / per_s
            time.sleep(max(0.0, due_s - time.perf_counter()))
            status = connection.send()
            load.note(time.perf_counter() - due_s, status)
        connection.close()

    senders = [threading.Thread(target=work, daemon=True) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return load
