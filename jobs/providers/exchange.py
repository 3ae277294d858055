"""How is one small HTTP exchange kept within a wall clock and a size? (B30)

Over the same bounded network as the calls to providers: a server that trickles, hangs or never
stops sending costs its caller no more than the time that it was given.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import httpx2

from jobs.domain.abort import AbortScope, entered
from jobs.domain.errors import AttemptError, ErrorKind, GenqueueError
from jobs.providers.network import CONNECT_BUDGET_S
from jobs.providers.tls import SharedTls
from jobs.providers.transport import make_transport

# At their debug level these write bodies and headers into the log.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class ExchangeError(GenqueueError):
    """No whole answer came; the text says why in a few words, and names no address."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An answer. `body` is None where it is longer than was asked for."""

    status: int
    retry_after: str | None
    body: bytes | None


class Exchange:
    """Sends to `base_url` and to nowhere else, with `token` as a bearer token: neither a redirect
    nor a proxy of the environment is followed. Threads may share it, and a process may fork."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._of_process: tuple[int, httpx2.Client] | None = None

    def send(
        self, method: str, path: str, body: bytes | None, *, within_s: float, max_bytes: int
    ) -> Exchanged:
        """One request and its answer in `within_s` seconds, from the name lookup to the last byte.
        `body` is JSON, `path` follows the base URL as it is. Raises ExchangeError."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        url = self._base_url + path
        try:
            with (
                entered(AbortScope(within_s)),
                self._client().stream(method, url, content=body, headers=headers) as answer,
            ):
                retry_after = answer.headers.get("retry-after")
                return Exchanged(answer.status_code, retry_after, _read(answer, max_bytes))
        except AttemptError as error:
            is_late = error.kind is ErrorKind.TIMEOUT
            reason = f"nothing within {within_s:g} s" if is_late else "an answer out of bounds"
            raise ExchangeError(reason) from None
        except httpx2.ConnectTimeout:
            raise ExchangeError("no connection in time") from None
        except httpx2.ConnectError:
            raise ExchangeError("no connection") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise ExchangeError("the connection broke") from None

    def _client(self) -> httpx2.Client:
        """The connections of this process: those of before a fork are the parent's."""
        held = self._of_process
        if held is None or held[0] != os.getpid():
            transport = make_transport(self._base_url, self._token, SharedTls(), CONNECT_BUDGET_S)
            client = httpx2.Client(
                transport=transport, follow_redirects=False, trust_env=False, timeout=None
            )
            held = self._of_process = (os.getpid(), client)
        return held[1]


def _read(answer: httpx2.Response, max_bytes: int) -> bytes | None:
    body = bytearray()
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > max_bytes:
            return None
    return bytes(body)
