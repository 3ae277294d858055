"""How is a body posted to a URL that somebody else chose? (C16, X12)

Over the bounded network of the providers, within one wall clock from the name lookup to the last
byte. What was checked is what is connected to; neither a redirect nor a proxy of the environment
is followed; of the answer little is read, and nothing is unpacked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import Final

import httpcore2

from jobs.delivery.address_guard import Network, Target, is_allowed, read_url
from jobs.delivery.lookup_shares import LookupShares
from jobs.domain.abort import AbortScope, entered
from jobs.domain.delivery import Tried, TryError
from jobs.domain.errors import AttemptError
from jobs.domain.retry import parse_retry_after
from jobs.providers.network import (
    AddressRefusedError,
    Lookup,
    NoLookupError,
    ScopedBackend,
    TlsFailedError,
    system_lookup,
)
from jobs.providers.tls import SharedTls

# At its debug level it writes headers, signatures among them, into the log.
logging.getLogger("httpcore2").setLevel(logging.WARNING)

POST_WITHIN_S: Final = 15.0
ANSWER_READ_BYTES: Final = 64 * 1024
ANSWER_READ_S: Final = 2.0
"""With the status all is known; so long the rest is read, so that a receiver that is slow to write
it does not see its connection broken."""

_NETWORK_ERRORS: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
)


def _user_agent() -> str:
    try:
        return f"genqueue/{metadata.version('genqueue')}"
    except metadata.PackageNotFoundError:
        return "genqueue"


class Poster:
    """Posts to public addresses and to `networks`. Threads may share it; a fork may not."""

    def __init__(
        self,
        networks: Sequence[Network],
        *,
        lookup: Lookup = system_lookup,
        tls: SharedTls | None = None,
        within_s: float = POST_WITHIN_S,
        shares: LookupShares | None = None,
    ) -> None:
        self._tls = tls or SharedTls()
        self._within_s = within_s
        self._lookup = lookup
        self._networks = networks
        self._shares = shares or LookupShares()
        self._user_agent = _user_agent()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, owner: str = "") -> Tried:
        """Post `body` as JSON for `owner`, from whose share the name lookup is taken; answers what
        came of it, whatever that was."""
        try:
            target = read_url(url)
        except ValueError:
            return Tried(error=TryError.INVALID_URL)
        all_headers = {
            "Host": target.authority,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            "Connection": "close",
            **headers,
        }
        try:
            with entered(AbortScope(self._within_s)) as scope:
                return self._send(target, all_headers, body, scope, self._backend(target, owner))
        except (AttemptError, httpcore2.TimeoutException):
            return Tried(error=TryError.TIMEOUT)
        except NoLookupError:
            return Tried(error=TryError.NO_LOOKUP)
        except AddressRefusedError:
            return Tried(error=TryError.REFUSED_ADDRESS)
        except TlsFailedError:
            return Tried(error=TryError.TLS)
        except httpcore2.ConnectError:
            return Tried(error=TryError.NO_CONNECTION)
        except _NETWORK_ERRORS:
            return Tried(error=TryError.BROKEN)

    def _backend(self, target: Target, owner: str) -> ScopedBackend:
        allowed = partial(is_allowed, scheme=target.scheme, networks=self._networks)
        slots = self._shares.of(owner)
        return ScopedBackend(self._lookup, is_allowed=allowed, lookup_slots=slots)

    def _send(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        scope: AbortScope,
        backend: ScopedBackend,
    ) -> Tried:
        context = self._tls.context() if target.scheme == "https" else None
        url = httpcore2.URL(
            scheme=target.scheme, host=target.host, port=target.port, target=target.path
        )
        with (
            httpcore2.ConnectionPool(ssl_context=context, network_backend=backend) as pool,
            pool.stream("POST", url, headers=list(headers.items()), content=body) as answer,
        ):
            _read_some(answer, min(ANSWER_READ_S, scope.remaining_s()))
            return Tried(answer.status, retry_after_s=_retry_after_s(answer))


def _read_some(answer: httpcore2.Response, within_s: float) -> None:
    """Read the rest of a short answer; what is long, slow or broken is left."""
    size = 0
    until_s = time.monotonic() + within_s
    try:
        with entered(AbortScope(within_s)):
            for chunk in answer.iter_stream():
                size += len(chunk)
                if size >= ANSWER_READ_BYTES or time.monotonic() > until_s:
                    return
    except (AttemptError, *_NETWORK_ERRORS):
        return


def _retry_after_s(answer: httpcore2.Response) -> float | None:
    found = [value for name, value in answer.headers if name.lower() == b"retry-after"]
    return parse_retry_after(found[0].decode("latin-1"), datetime.now(UTC)) if found else None
