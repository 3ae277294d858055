"""Do deadline and cancel end a provider call, whatever the server does? (A11, A17)"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind
from jobs.domain.models import ProviderSpec
from jobs.providers.base import Call, Completion, Message
from jobs.providers.openai_chat import OpenAIChatProvider
from tests.support.openai_server import Fault, OpenAIServer, Reply, openai_server

STUCK = [Fault.HANG, Fault.TRICKLE_BODY, Fault.TRICKLE_HEADER]
CALL = Call("m", (Message("user", "hello"),))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
def provider(server: OpenAIServer) -> Iterator[OpenAIChatProvider]:
    made = OpenAIChatProvider(ProviderSpec("main", "openai", server.base_url), "sk-test", ())
    yield made
    made.close()


def complete(provider: OpenAIChatProvider, scope: AbortScope) -> Completion:
    with entered(scope):
        return provider.complete(CALL)


@pytest.mark.req("A11")
@pytest.mark.parametrize("fault", STUCK)
@pytest.mark.parametrize("every_s", [1.0, 0.01])
def test_the_deadline_ends_a_call_that_the_server_keeps_alive(
    server: OpenAIServer, provider: OpenAIChatProvider, fault: Fault, every_s: float
) -> None:
    server.answer_next(Reply(fault=fault, trickle_every_s=every_s))
    started = time.monotonic()

    with pytest.raises(AttemptError) as caught:
        complete(provider, AbortScope(1.2))

    assert caught.value.kind is ErrorKind.TIMEOUT
    assert 1.2 <= time.monotonic() - started <= 2.2
    assert server.requests[0].left.wait(2), "the connection is closed"


@pytest.mark.req("A17")
@pytest.mark.parametrize("fault", STUCK)
def test_an_abort_ends_a_blocked_call_within_a_second(
    server: OpenAIServer, provider: OpenAIChatProvider, fault: Fault
) -> None:
    server.answer_next(Reply(fault=fault))
    scope = AbortScope(60.0)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(complete, provider, scope)
        assert server.arrivals.acquire(timeout=10)
        started = time.monotonic()
        scope.abort("the job was cancelled")

        with pytest.raises(AttemptAbortedError, match="the job was cancelled"):
            call.result(timeout=10)

    assert time.monotonic() - started <= 1.0
    assert server.requests[0].left.wait(2), "the connection is closed"


@pytest.mark.req("A17")
def test_the_connection_of_an_aborted_call_is_not_used_again(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    complete(provider, AbortScope(60.0))
    server.answer_next(Reply(fault=Fault.TRICKLE_BODY))
    with pytest.raises(AttemptError):
        complete(provider, AbortScope(0.3))

    assert complete(provider, AbortScope(60.0)).text == "Hello."
    connections = [request.connection for request in server.requests]
    assert connections[0] == connections[1] != connections[2]


@pytest.mark.req("A11")
def test_a_scope_that_is_over_sends_nothing(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    aborted = AbortScope(60.0)
    aborted.abort("shutdown")

    with pytest.raises(AttemptAbortedError):
        complete(provider, aborted)
    with pytest.raises(AttemptError):
        complete(provider, AbortScope(0.0))
    assert server.requests == []


@pytest.mark.req("A17", "X8")
def test_an_abort_ends_its_own_call_only(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_next(Reply(delay_s=1.0), Reply(delay_s=1.0))
    scopes = [AbortScope(60.0), AbortScope(60.0)]
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(complete, provider, scope) for scope in scopes]
        for _ in calls:
            assert server.arrivals.acquire(timeout=10)
        scopes[0].abort("the job was cancelled")

        with pytest.raises(AttemptAbortedError):
            calls[0].result(timeout=10)
        assert calls[1].result(timeout=10).text == "Hello."
