"""How does a deadline or a cancel reach a call that is blocked in a socket? (A11, A17)

Every operation here (name lookup, connect, TLS handshake, read, write) is cut into slices of
at most `SLICE_S` seconds, and the current AbortScope is looked at before each. httpcore's own
timeouts bound each operation alone, which a server that trickles outlives for ever.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

import httpcore2

from jobs.domain.abort import AbortScope, current
from jobs.providers.scope import UNSCOPED_BUDGET_S

SLICE_S: Final = 0.5
CONNECT_BUDGET_S: Final = 10.0
LOOKUPS_AT_ONCE: Final = 8
ADDRESSES_TRIED_MAX: Final = 4

T = TypeVar("T")
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)
Address = tuple[socket.AddressFamily, Any]
Lookup = Callable[[str, int], list[Address]]


def system_lookup(host: str, port: int) -> list[Address]:
    """The addresses of `host` as the system's resolver orders them. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class TlsFailedError(httpcore2.ConnectError):
    """The other side is not who it should be, or speaks no TLS that we do."""


class NoLookupError(httpcore2.ConnectError):
    """Nobody was asked for the addresses of a name: this process does as many lookups as it may."""


class NameLateError(httpcore2.ConnectTimeout):
    """Nobody was asked, since earlier lookups of that very name have not ended."""


class AddressRefusedError(httpcore2.ConnectError):
    """The name has an address that this backend may not connect to; nothing was connected to."""


class _Bound:
    """The bound of one operation: the scope of the attempt and, nearer, its own limit."""

    def __init__(self, timeout_s: float | None, error: type[Exception]) -> None:
        scope = current()
        self._scope = AbortScope(UNSCOPED_BUDGET_S) if scope is None else scope
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._error = error

    def slice_s(self) -> float:
        """How long to block now. Raises when there is nothing left, or the scope is over."""
        self._scope.check()
        # Only the operation's own end: that of the scope, passed since, is for the next look.
        if self._end_s is not None and self._end_s <= time.monotonic():
            raise self._error("the operation took too long")
        return min(SLICE_S, max(0.0, self.left_s()))

    def left_s(self) -> float:
        """Seconds until the nearer of the two ends; `math.inf` where there is none."""
        scope_s = self._scope.remaining_s()
        return scope_s if self._end_s is None else min(scope_s, self._end_s - time.monotonic())

    def wait_for(self, sock: socket.socket, events: int) -> None:
        """Block until `sock` is ready for one of `events`."""
        poll = select.poll()
        poll.register(sock, events)
        # An error or a hang-up is an answer too: the operation itself will say which.
        while not poll.poll(max(1.0, self.slice_s() * 1000)):
            pass


def _until_done(sock: socket.socket, bound: _Bound, step: Callable[[], T], events: int) -> T:
    """Repeat the non-blocking `step` until it gets through."""
    while True:
        bound.slice_s()
        try:
            return step()
        except ssl.SSLWantReadError:
            bound.wait_for(sock, select.POLLIN)
        except ssl.SSLWantWriteError:
            bound.wait_for(sock, select.POLLOUT)
        except BlockingIOError:
            bound.wait_for(sock, events)


class ScopedStream(httpcore2.NetworkStream):
    """A connected socket whose every operation keeps the scope of whoever uses it now."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes, at most `max_bytes`; empty at the end of the stream."""
        bound = _Bound(timeout, httpcore2.ReadTimeout)
        try:
            return _until_done(self._sock, bound, lambda: self._sock.recv(max_bytes), select.POLLIN)
        except OSError as error:
            raise httpcore2.ReadError("the connection broke while reading") from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of `buffer`."""
        bound = _Bound(timeout, httpcore2.WriteTimeout)
        rest = memoryview(buffer)
        try:
            while rest:
                sent = _until_done(self._sock, bound, _sender(self._sock, rest), select.POLLOUT)
                rest = rest[sent:]
        except OSError as error:
            raise httpcore2.WriteError("the connection broke while writing") from error

    def close(self) -> None:
        """Drop the connection."""
        self._sock.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """The same connection under TLS; it is closed where the handshake fails."""
        bound = _Bound(_nearer(timeout, CONNECT_BUDGET_S), httpcore2.ConnectTimeout)
        sock: socket.socket = self._sock
        try:
            secured = ssl_context.wrap_socket(
                sock, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            sock = secured
            _until_done(secured, bound, secured.do_handshake, select.POLLIN)
        except ssl.SSLError as error:
            sock.close()
            reason = getattr(error, "verify_message", "") or error.reason or "handshake failed"
            raise TlsFailedError(f"TLS: {reason}") from error
        except OSError as error:
            sock.close()
            raise httpcore2.ConnectError("the connection broke during the handshake") from error
        except BaseException:
            sock.close()
            raise
        return ScopedStream(secured)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks about a connection."""
        if info == "ssl_object":
            return self._sock if isinstance(self._sock, ssl.SSLSocket) else None
        if info == "socket":
            return self._sock
        if info == "is_readable":
            return _is_readable(self._sock)
        return None


class LookupSlots(Protocol):
    """How many name lookups run at once."""

    def take(self, host: str, slice_s: Callable[[], float]) -> Callable[[], None]:
        """A slot for a lookup of `host`; answers what gives it back. `slice_s` is how many seconds
        to block now, and raises where no time is left. May raise NoLookupError or NameLateError."""
        ...


class LookupLine:
    """So many slots; whoever finds none waits in line."""

    def __init__(self, at_once: int = LOOKUPS_AT_ONCE) -> None:
        self._slots = threading.BoundedSemaphore(at_once)

    def take(self, host: str, slice_s: Callable[[], float]) -> Callable[[], None]:  # noqa: ARG002  # LookupSlots's signature
        """As LookupSlots."""
        while not self._slots.acquire(timeout=slice_s()):
            pass
        return self._slots.release


class ScopedBackend(httpcore2.NetworkBackend):
    """Opens connections under the current AbortScope, in at most `connect_budget_s` seconds.

    `lookup` may block for as long as it likes: it runs in a thread that is left behind when
    the scope ends, as many of them as there are `lookup_slots`. `is_allowed` is asked for each
    address that a name has, as text, before any is connected to. Not to be shared over a fork.
    """

    def __init__(
        self,
        lookup: Lookup = system_lookup,
        connect_budget_s: float = CONNECT_BUDGET_S,
        is_allowed: Callable[[str], bool] | None = None,
        lookup_slots: LookupSlots | None = None,
    ) -> None:
        self._lookup = lookup
        self._is_allowed = is_allowed
        self._connect_budget_s = connect_budget_s
        self._lookup_slots = lookup_slots or LookupLine()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002  # httpcore's signature
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection to the first address of `host` that answers.

        Raises ConnectError (AddressRefusedError and NoLookupError are some) or ConnectTimeout of
        httpcore, and what AbortScope.check raises.
        """
        bound = _Bound(_nearer(timeout, self._connect_budget_s), httpcore2.ConnectTimeout)
        addresses = self._addresses_of(host, port, bound)
        if self._is_allowed and not all(self._is_allowed(found[0]) for _, found in addresses):
            raise AddressRefusedError("an address of that name may not be connected to")
        addresses = addresses[:ADDRESSES_TRIED_MAX]
        failure: Exception = httpcore2.ConnectError("name lookup found no address")
        for position, (family, address) in enumerate(addresses):
            share_s = bound.left_s() / (len(addresses) - position)
            try:
                return ScopedStream(_connected(family, address, share_s, socket_options or ()))
            except (httpcore2.ConnectTimeout, httpcore2.ConnectError) as error:
                failure = error
        raise failure

    def _addresses_of(self, host: str, port: int, bound: _Bound) -> list[Address]:
        literal = _literal_address(host, port)
        if literal is not None:
            return [literal]
        give_back = self._lookup_slots.take(host, bound.slice_s)
        answer = _LookupThread(self._lookup, host, port, give_back)
        try:
            answer.start()
        except RuntimeError as error:
            give_back()
            raise NoLookupError("no thread for the name lookup") from error
        while answer.is_alive():
            answer.join(bound.slice_s())
        return answer.addresses()


class _LookupThread(threading.Thread):
    """One name lookup; a daemon, so that a resolver that hangs never holds up an exit."""

    def __init__(self, lookup: Lookup, host: str, port: int, release: Callable[[], None]) -> None:
        super().__init__(name="provider-name-lookup", daemon=True)
        self._lookup = lookup
        self._question = (host, port)
        self._release = release
        self._found: list[Address] | None = None

    def run(self) -> None:
        """Ask; an error is kept for whoever waits."""
        try:
            self._found = self._lookup(*self._question)
        except (OSError, UnicodeError):
            self._found = None
        finally:
            self._release()

    def addresses(self) -> list[Address]:
        """What was found. Raises ConnectError."""
        if self._found is None:
            raise httpcore2.ConnectError("name lookup failed")
        return self._found


def _nearer(timeout_s: float | None, budget_s: float) -> float:
    return budget_s if timeout_s is None else min(timeout_s, budget_s)


def _sender(sock: socket.socket, data: memoryview) -> Callable[[], int]:
    return lambda: sock.send(data)


def _literal_address(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return family, (host, port)


def _connected(
    family: socket.AddressFamily, address: Any, limit_s: float, options: Iterable[SocketOption]
) -> socket.socket:
    bound = _Bound(limit_s, httpcore2.ConnectTimeout)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        for option in options:
            sock.setsockopt(*option)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.slice_s()
        try:
            sock.connect(address)
        except BlockingIOError:
            bound.wait_for(sock, select.POLLOUT)
        _raise_pending_error(sock)
    except OSError as error:
        sock.close()
        name = type(error).__name__ if type(error) is not OSError else "unreachable"
        raise httpcore2.ConnectError(f"connect failed: {name}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _raise_pending_error(sock: socket.socket) -> None:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, "connect")


def _is_readable(sock: socket.socket) -> bool:
    """Whether a read would return at once; on an idle connection that means it was closed."""
    if sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
