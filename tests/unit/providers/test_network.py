import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import httpcore2
import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind
from jobs.providers.network import LOOKUPS_AT_ONCE, Address, ScopedBackend, ScopedStream
from tests.support.full_port import full_port as full_port_of_its_own

LOOPBACK = "127.0.0.1"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=32) as executor:
        yield executor


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server((LOOPBACK, 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port to which a connect stays unanswered."""
    with full_port_of_its_own() as port:
        yield port


class BlockedResolver:
    """A resolver that hangs until it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.now = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int) -> list[Address]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.asked.release()
        self.let_go.wait(20)
        with self._lock:
            self.now -= 1
        raise OSError("no such name")


@pytest.fixture
def resolver() -> Iterator[BlockedResolver]:
    blocked = BlockedResolver()
    yield blocked
    blocked.let_go.set()


def under(scope: AbortScope, action: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        with entered(scope):
            return action()

    return run


def assert_ends_with_abort(scope: AbortScope, call: Future[object]) -> None:
    """Abort `scope`: the call must end within a second."""
    started = time.monotonic()
    scope.abort("cancelled")
    with pytest.raises(AttemptAbortedError):
        call.result(timeout=10)
    assert time.monotonic() - started <= 1.0


@pytest.mark.req("A17")
def test_an_abort_ends_a_blocked_read_within_a_second(
    pool: ThreadPoolExecutor, silent_port: int
) -> None:
    stream = ScopedBackend().connect_tcp(LOOPBACK, silent_port)
    scope = AbortScope(60.0)
    call = pool.submit(under(scope, lambda: stream.read(100)))

    assert_ends_with_abort(scope, call)
    stream.close()


@pytest.mark.req("A17")
def test_an_abort_ends_a_blocked_write_within_a_second(
    pool: ThreadPoolExecutor, silent_port: int
) -> None:
    stream = ScopedBackend().connect_tcp(LOOPBACK, silent_port)
    scope = AbortScope(60.0)
    call = pool.submit(under(scope, lambda: stream.write(b"x" * 64_000_000)))

    assert_ends_with_abort(scope, call)
    stream.close()


@pytest.mark.req("A17")
def test_an_abort_ends_a_blocked_connect_within_a_second(
    pool: ThreadPoolExecutor, full_port: int
) -> None:
    scope = AbortScope(60.0)
    call = pool.submit(under(scope, lambda: ScopedBackend().connect_tcp(LOOPBACK, full_port)))

    assert not call.done()
    assert_ends_with_abort(scope, call)


@pytest.mark.req("A17")
def test_an_abort_ends_a_blocked_name_lookup_within_a_second(
    pool: ThreadPoolExecutor, resolver: BlockedResolver
) -> None:
    scope = AbortScope(60.0)
    backend = ScopedBackend(resolver)
    call = pool.submit(under(scope, lambda: backend.connect_tcp("llm.example", 443)))
    assert resolver.asked.acquire(timeout=10)

    assert_ends_with_abort(scope, call)


@pytest.mark.req("A17")
def test_an_abort_ends_a_blocked_tls_handshake_within_a_second(
    pool: ThreadPoolExecutor, silent_port: int
) -> None:
    import ssl

    stream = ScopedBackend().connect_tcp(LOOPBACK, silent_port)
    scope = AbortScope(60.0)
    call = pool.submit(under(scope, lambda: stream.start_tls(ssl.create_default_context(), "x")))

    assert_ends_with_abort(scope, call)


@pytest.mark.req("A11")
def test_the_deadline_ends_each_operation(
    silent_port: int, full_port: int, resolver: BlockedResolver
) -> None:
    stream = ScopedBackend().connect_tcp(LOOPBACK, silent_port)
    actions: list[Callable[[], object]] = [
        lambda: stream.read(100),
        lambda: stream.write(b"x" * 64_000_000),
        lambda: ScopedBackend().connect_tcp(LOOPBACK, full_port),
        lambda: ScopedBackend(resolver).connect_tcp("llm.example", 443),
    ]
    for action in actions:
        started = time.monotonic()
        with entered(AbortScope(0.3)), pytest.raises(AttemptError) as caught:
            action()
        assert caught.value.kind is ErrorKind.TIMEOUT
        assert 0.3 <= time.monotonic() - started <= 1.3
    stream.close()


def test_hanging_lookups_are_bounded_and_those_in_line_still_end(
    pool: ThreadPoolExecutor, resolver: BlockedResolver
) -> None:
    backend = ScopedBackend(resolver)
    scope = AbortScope(60.0)
    calls = [
        pool.submit(under(scope, lambda: backend.connect_tcp("llm.example", 443)))
        for _ in range(LOOKUPS_AT_ONCE + 6)
    ]
    for _ in range(LOOKUPS_AT_ONCE):
        assert resolver.asked.acquire(timeout=10)

    scope.abort("cancelled")
    for call in calls:
        with pytest.raises(AttemptAbortedError):
            call.result(timeout=10)
    assert resolver.most == LOOKUPS_AT_ONCE


def test_a_connect_timeout_is_kept_apart_from_the_deadline(full_port: int) -> None:
    with entered(AbortScope(60.0)), pytest.raises(httpcore2.ConnectTimeout):
        ScopedBackend().connect_tcp(LOOPBACK, full_port, timeout=0.2)


def test_a_read_timeout_is_kept_where_there_is_no_scope(silent_port: int) -> None:
    stream = ScopedBackend().connect_tcp(LOOPBACK, silent_port)

    with pytest.raises(httpcore2.ReadTimeout):
        stream.read(10, timeout=0.1)
    stream.close()


def test_an_unknown_name_and_a_refused_port_are_connect_errors() -> None:
    def no_such_name(host: str, port: int) -> list[Address]:
        raise OSError("no such name")

    with socket.create_server((LOOPBACK, 0)) as closed_again:
        port = closed_again.getsockname()[1]
    with pytest.raises(httpcore2.ConnectError, match="name lookup failed"):
        ScopedBackend(no_such_name).connect_tcp("llm.example", 443)
    with pytest.raises(httpcore2.ConnectError, match="ConnectionRefusedError"):
        ScopedBackend().connect_tcp(LOOPBACK, port)


def test_the_next_address_is_tried_where_the_first_refuses(silent_port: int) -> None:
    def two_addresses(host: str, port: int) -> list[Address]:
        return [(socket.AF_INET, (LOOPBACK, 1)), (socket.AF_INET, (LOOPBACK, port))]

    stream = ScopedBackend(two_addresses).connect_tcp("llm.example", silent_port)

    assert stream.get_extra_info("socket").getpeername() == (LOOPBACK, silent_port)
    stream.close()


def test_a_call_that_was_aborted_before_does_not_even_connect(silent_port: int) -> None:
    scope = AbortScope(60.0)
    scope.abort("cancelled")

    with entered(scope), pytest.raises(AttemptAbortedError):
        ScopedBackend().connect_tcp(LOOPBACK, silent_port)


@pytest.mark.req("A11")
def test_a_scope_that_ends_just_after_a_look_at_it_is_what_the_operation_is_said_to_end_by() -> (
    None
):
    ticks = count(start=0.0, step=0.6)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with entered(AbortScope(1.0, lambda: next(ticks))), pytest.raises(AttemptError) as caught:
            ScopedStream(ours).read(10)

    assert caught.value.kind is ErrorKind.TIMEOUT
