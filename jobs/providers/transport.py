"""What leaves for a provider, and how much may come back?

The SDK builds the request; this transport decides about the wire. Only the headers listed here
are sent, so nothing that the SDK picks up from the environment (organisation, project, custom
headers) reaches a provider, and the key is added here, so no SDK error ever carries it.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2
import httpx2

from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.providers.network import ScopedBackend
from jobs.providers.tls import SharedTls

ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
ERROR_ANSWER_MAX_BYTES: Final = 64 * 1024
STREAM_MAX_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer spends some 200 bytes on each token; what it says is bounded where it is
read."""

# Below the 5 s after which uvicorn, and with it vLLM, closes an idle connection: whoever sends
# into that moment loses an attempt.
KEEPALIVE_S: Final = 4.0
USER_AGENT: Final = "genqueue"

_PASSED_HEADERS: Final = frozenset({b"host", b"content-type", b"content-length"})
_FIXED_HEADERS: Final = (
    (b"Accept", b"application/json"),
    # A compressed answer could unpack to any size.
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", USER_AGENT.encode()),
)
_ERRORS: Final[tuple[tuple[type[Exception], type[httpx2.TransportError]], ...]] = (
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.ReadTimeout, httpx2.ReadTimeout),
    (httpcore2.WriteTimeout, httpx2.WriteTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.ReadError, httpx2.ReadError),
    (httpcore2.WriteError, httpx2.WriteError),
    (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.LocalProtocolError, httpx2.LocalProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
)


class ProviderTransport(httpx2.BaseTransport):
    """Carries the requests to one provider over its own pool of connections.

    `api_key` is sent as a bearer token, or nothing where the provider needs none. The pool has
    no limit of its own: the worker's slots are the limit, and a wait here would be blind to
    the deadline. Not to be shared over a fork.
    """

    def __init__(
        self,
        backend: httpcore2.NetworkBackend,
        api_key: str | None,
        ssl_context: ssl.SSLContext | None,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self._authorization = f"Bearer {api_key}".encode() if api_key else None
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl_context,
            max_connections=None,
            max_keepalive_connections=None,
            keepalive_expiry=keepalive_s,
            network_backend=backend,
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request`; the body of the answer is read later, under the same bounds."""
        with _httpx_errors():
            answer = self._pool.handle_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=self._headers_of(request),
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        body = _BoundedBody(answer)
        response = httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=body,
            extensions=answer.extensions,
        )
        if is_event_stream(response):
            body.limit_bytes = STREAM_MAX_BYTES
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            body.close()
            raise AttemptError(
                ErrorKind.PARSE,
                "the answer is compressed, which was not asked for",
                fault=Fault.MALFORMED if answer.status < 300 else Fault.NONE,
            )
        return response

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _headers_of(self, request: httpx2.Request) -> list[tuple[bytes, bytes]]:
        headers = [
            (name, value) for name, value in request.headers.raw if name.lower() in _PASSED_HEADERS
        ]
        headers.extend(_FIXED_HEADERS)
        if self._authorization is not None:
            headers.append((b"Authorization", self._authorization))
        return headers


class _BoundedBody(httpx2.SyncByteStream):
    """The body of an answer: too long a success is an error, too long an error is cut off."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._stream = answer.stream
        self._is_error = answer.status >= 300
        self.limit_bytes = ANSWER_MAX_BYTES

    def __iter__(self) -> Iterator[bytes]:
        limit = ERROR_ANSWER_MAX_BYTES if self._is_error else self.limit_bytes
        size = 0
        with _httpx_errors():
            for chunk in self._stream:  # type: ignore[union-attr]  # the pool is synchronous
                size += len(chunk)
                if size <= limit:
                    yield chunk
                elif self._is_error:
                    self.close()
                    return
                else:
                    self.close()
                    raise AttemptError(
                        ErrorKind.PARSE,
                        f"the answer is longer than {limit} bytes",
                        fault=Fault.MALFORMED,
                    )

    def close(self) -> None:
        """Give the connection back, or drop it where the answer was not read to its end."""
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()


def is_event_stream(answer: httpx2.Response) -> bool:
    """Whether `answer` is a stream of events, by its content type."""
    content_type, _, _ = answer.headers.get("content-type", "").partition(";")
    return str(content_type).strip().lower() == "text/event-stream"


def make_transport(
    base_url: str, api_key: str | None, tls: SharedTls, connect_budget_s: float
) -> ProviderTransport:
    """A transport for the provider at `base_url`; TLS is loaded only for https."""
    context = tls.context() if base_url.startswith("https:") else None
    return ProviderTransport(ScopedBackend(connect_budget_s=connect_budget_s), api_key, context)


@contextmanager
def _httpx_errors() -> Generator[None]:
    try:
        yield
    except Exception as error:
        for ours, theirs in _ERRORS:
            if isinstance(error, ours):
                raise theirs(str(error)) from error
        raise
