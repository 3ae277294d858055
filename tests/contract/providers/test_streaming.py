"""Does a streamed call keep the Provider contract against a server that does what servers do?"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, StoreUnavailableError
from jobs.domain.errors import Fault as CallFault
from jobs.domain.models import ModelFeatures, ModelSpec, ProviderSpec
from jobs.providers.base import Call, Completion, Message
from jobs.providers.openai_chat import OpenAIChatProvider
from jobs.providers.transport import STREAM_MAX_BYTES
from tests.support.openai_server import (
    Fault,
    OpenAIServer,
    Reply,
    answer,
    completion,
    fault,
    html,
    openai_server,
    sse,
    status,
)
from tests.support.openai_stream import DONE, event

CALL = Call("m", (Message("user", "canary-prompt"),))
KEY = "sk-canary-key"
SAID = {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}


class Listener:
    """Keeps what it is told, and does on each piece what it is given to do."""

    def __init__(self, then: Callable[[str], None] = lambda _piece: None) -> None:
        self.pieces: list[str] = []
        self.at_s: list[float] = []
        self.heard = threading.Semaphore(0)
        self._then = then

    def __call__(self, piece: str) -> None:
        self.pieces.append(piece)
        self.at_s.append(time.monotonic())
        self.heard.release()
        self._then(piece)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
def provider(server: OpenAIServer) -> Iterator[OpenAIChatProvider]:
    made = provider_of(server)
    yield made
    made.close()


def provider_of(server: OpenAIServer, *models: ModelSpec) -> OpenAIChatProvider:
    return OpenAIChatProvider(ProviderSpec("main", "openai", server.base_url), KEY, models)


def stream(
    provider: OpenAIChatProvider, listener: Listener, scope: AbortScope | None = None
) -> Completion:
    with entered(scope or AbortScope(60.0)):
        return provider.complete(CALL, listener)


def failure_of(provider: OpenAIChatProvider, listener: Listener | None = None) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        stream(provider, listener or Listener())
    return caught.value


@pytest.mark.req("C9", "X6")
def test_text_is_told_as_it_arrives_and_the_completion_is_whole(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    reply = answer(
        completion("One two three.", answer_id="chatcmpl-9"),
        headers=(("x-request-id", "req_7"),),
        piece_every_s=0.2,
    )
    server.answer_next(reply)
    listener = Listener()

    result = stream(provider, listener)

    assert result == Completion("One two three.", "served-model", "req_7", "stop", Usage(7, 3))
    assert [piece for piece in listener.pieces if piece] == ["One ", "two ", "three."]
    assert listener.at_s[-1] - listener.at_s[0] >= 0.8, "each when it arrived"
    (request,) = server.requests
    assert request.json["stream"] is True
    assert request.json["stream_options"] == {"include_usage": True}


@pytest.mark.req("C9", "A19")
def test_usage_is_asked_for_only_where_the_model_takes_that(server: OpenAIServer) -> None:
    plain = ModelSpec("m", "main", "m", supports=ModelFeatures(stream_usage=False))

    result = stream(provider_of(server, plain), Listener())

    assert "stream_options" not in server.requests[0].json
    assert result.usage == Usage(None, None)


@pytest.mark.req("C9")
def test_a_server_that_does_not_stream_is_read_as_any_answer(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    body = completion("One two.", answer_id="chatcmpl-9")
    server.answer_next(answer(body, streams=False))
    listener = Listener()

    result = stream(provider, listener)

    assert result == Completion("One two.", "served-model", "chatcmpl-9", "stop", Usage(7, 3))
    assert listener.pieces == ["One two."]


@pytest.mark.req("A9", "C9")
@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (status(400), ErrorKind.PROVIDER_4XX, None),
        (status(401), ErrorKind.AUTH, None),
        (status(429, headers=(("Retry-After", "7"),)), ErrorKind.RATE_LIMIT, 7.0),
        (status(429, error_code="insufficient_quota"), ErrorKind.AUTH, None),
        (status(503, headers=(("Retry-After", "9"),)), ErrorKind.PROVIDER_5XX, 9.0),
        (html(502), ErrorKind.PROVIDER_5XX, None),
        (html(200), ErrorKind.PARSE, None),
        (answer(b"{}"), ErrorKind.PARSE, None),
        (Reply(status=302, body=b"", headers=(("Location", "/"),)), ErrorKind.PROVIDER_4XX, None),
        (answer(completion("x", finish_reason="length")), ErrorKind.PARSE, None),
        (answer(completion("x", finish_reason=None)), ErrorKind.PARSE, None),
        (answer(completion("", finish_reason="stop")), ErrorKind.PARSE, None),
        (answer(completion("x", finish_reason="content_filter")), ErrorKind.PROVIDER_4XX, None),
        (answer(completion(None, refusal="no")), ErrorKind.PROVIDER_4XX, None),
        (fault(Fault.RESET_MID_BODY), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.CLOSE_MID_BODY), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.CLOSE_AT_ONCE), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.END_MID_STREAM), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.ERROR_MID_STREAM), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.ERROR_MID_STREAM, stream_error={"code": 429}), ErrorKind.RATE_LIMIT, None),
        (sse(b"data: <html>\n\n"), ErrorKind.PARSE, None),
        (sse(b""), ErrorKind.PROVIDER_5XX, None),
        (
            Reply(
                body=b"x", content_type="text/event-stream", headers=(("Content-Encoding", "br"),)
            ),
            ErrorKind.PARSE,
            None,
        ),
    ],
)
def test_each_way_to_fail_has_its_kind_costs_one_request_and_tells_nothing(
    server: OpenAIServer,
    provider: OpenAIChatProvider,
    reply: Reply,
    kind: ErrorKind,
    wait_s: float | None,
) -> None:
    server.answer_next(reply)

    error = failure_of(provider)

    assert (error.kind, error.retry_after_s) == (kind, wait_s)
    assert "canary" not in repr(vars(error)) + str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert len(server.requests) == 1
    assert stream(provider, Listener()).text == "Hello.", "the next call is not harmed"


@pytest.mark.req("A9")
def test_a_stream_that_broke_may_have_been_paid_for(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_next(fault(Fault.RESET_MID_BODY))

    error = failure_of(provider)

    assert (error.fault, error.usage) == (CallFault.NO_ANSWER, None)


@pytest.mark.req("X12")
def test_a_streamed_call_is_not_logged(
    server: OpenAIServer, provider: OpenAIChatProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        stream(provider, Listener())

    assert "canary" not in caplog.text


@pytest.mark.req("A11", "C6")
@pytest.mark.parametrize(
    "reply",
    [
        Reply(fault=Fault.HANG),
        Reply(fault=Fault.HANG_MID_STREAM),
        Reply(fault=Fault.TRICKLE_HEADER),
        Reply(fault=Fault.TRICKLE_BODY),
        Reply(fault=Fault.TRICKLE_BODY, trickle_every_s=0.01),
        Reply(piece_every_s=0.3, pieces=["x"] * 1000),
        Reply(streams=False, fault=Fault.TRICKLE_BODY),
    ],
)
def test_the_deadline_ends_a_stream_that_the_server_keeps_alive(
    server: OpenAIServer, provider: OpenAIChatProvider, reply: Reply
) -> None:
    server.answer_next(reply)
    begun_s = time.monotonic()

    with pytest.raises(AttemptError) as caught:
        stream(provider, Listener(), AbortScope(1.2))

    assert caught.value.kind is ErrorKind.TIMEOUT
    assert caught.value.usage is None
    assert 1.2 <= time.monotonic() - begun_s <= 2.7
    assert server.requests[0].left.wait(3), "the connection is closed"


@pytest.mark.req("A17", "C6")
@pytest.mark.parametrize(
    "reply", [Reply(fault=Fault.HANG_MID_STREAM), Reply(piece_every_s=1.0, pieces=["x"] * 1000)]
)
def test_an_abort_ends_a_stream_in_its_middle(
    server: OpenAIServer, provider: OpenAIChatProvider, reply: Reply
) -> None:
    server.answer_next(reply)
    scope, listener = AbortScope(60.0), Listener()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(stream, provider, listener, scope)
        assert listener.heard.acquire(timeout=10)
        begun_s = time.monotonic()
        scope.abort("the job was cancelled")

        with pytest.raises(AttemptAbortedError, match="the job was cancelled"):
            call.result(timeout=10)

    assert time.monotonic() - begun_s <= 2.0
    assert server.requests[0].left.wait(3), "the connection is closed"


@pytest.mark.req("C6")
def test_a_stream_that_goes_on_outlives_a_bound_of_idleness_and_one_that_stops_does_not(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_next(
        Reply(piece_every_s=0.3, pieces=["", "x "] * 5), fault(Fault.HANG_MID_STREAM)
    )
    idle = AbortScope(1.2, message="nothing happened")
    listener = Listener(lambda _piece: idle.touch())
    begun_s = time.monotonic()

    assert stream(provider, listener, idle.narrowed(60.0)).text == "x x x x x "
    assert time.monotonic() - begun_s > 2.4
    with pytest.raises(AttemptError, match="nothing happened"):
        stream(provider, listener, idle.narrowed(60.0))
    assert idle.is_over


@pytest.mark.req("A17")
def test_a_scope_that_ends_while_many_pieces_are_passed_on_ends_the_call(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_next(Reply(pieces=["x"] * 500))
    scope = AbortScope(60.0)
    listener = Listener(lambda _piece: scope.abort("cancelled"))

    with pytest.raises(AttemptAbortedError):
        stream(provider, listener, scope)
    assert len(listener.pieces) == 1


@pytest.mark.parametrize(
    "error", [AttemptAbortedError("stop"), StoreUnavailableError("down"), ValueError("own")]
)
def test_what_the_listener_raises_ends_the_call_and_is_raised_as_it_is(
    server: OpenAIServer, provider: OpenAIChatProvider, error: Exception
) -> None:
    server.answer_next(Reply(piece_every_s=0.2, pieces=["x"] * 1000))

    def refuse(_piece: str) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        stream(provider, Listener(refuse))

    assert caught.value is error
    assert server.requests[0].left.wait(3), "the connection is closed"


@pytest.mark.case("LLM-11")
def test_a_character_is_whole_however_its_halves_arrive(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    # A byte at a time cuts within every character; the escapes cut one into two pieces.
    halves = [event({"choices": [{"delta": {"content": half}}]}) for half in ("\ud83d", "\ude00")]
    raw = 'data: {"choices": [{"delta": {"content": "é😀"}, "finish_reason": "stop"}]}\n\n'.encode()
    reply = sse(*halves, raw, DONE)
    server.answer_next(
        Reply(
            body=reply.body,
            content_type=reply.content_type,
            fault=Fault.TRICKLE_BODY,
            trickle_every_s=0.0,
        )
    )
    listener = Listener()

    assert stream(provider, listener).text == listener.text == "😀é😀"


@pytest.mark.req("A9")
def test_a_stream_without_end_is_ended_at_its_limit(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    empty = event({"choices": [{"delta": {}}], "padding": "x" * 1_000_000})
    server.answer_next(sse(*[empty] * (STREAM_MAX_BYTES // len(empty) + 2), SAID, DONE))
    # Longer on the wire than an answer of one piece may be, but not in what it says.
    server.answer_next(sse(*[empty] * 10, SAID, DONE))

    error = failure_of(provider)

    assert (error.kind, error.fault) == (ErrorKind.PARSE, CallFault.MALFORMED)
    assert stream(provider, Listener()).text == "Hi."


@pytest.mark.req("X8")
def test_streams_share_and_keep_their_connections(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_model("m", Reply(pieces=["a ", "b"], piece_every_s=0.1))
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: stream(provider, Listener()), range(60)))

    assert {result.text for result in results} == {"a b"}
    assert server.connections == 20


@pytest.mark.req("C6")
def test_an_answer_that_is_whole_does_not_wait_for_the_connection_to_end(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    whole = sse(SAID, DONE).body or b""
    lingering = Reply(
        body=whole + b":" * 100_000,
        content_type="text/event-stream",
        fault=Fault.TRICKLE_BODY,
        trickle_every_s=0.0,
    )
    server.answer_next(lingering)
    begun_s = time.monotonic()

    assert stream(provider, Listener()).text == "Hi."
    assert time.monotonic() - begun_s < 3.0


@pytest.mark.req("C2")
def test_planner_and_task_calls_can_be_told_apart_by_the_server(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_when(lambda asked: "response_format" in asked, status(500))
    server.answer_when(
        lambda asked: asked["messages"][-1]["content"] == "flaky", status(503), Reply(pieces=["ok"])
    )
    flaky = Call("m", (Message("user", "flaky"),))

    with pytest.raises(AttemptError):
        provider.complete(flaky, Listener())
    assert provider.complete(flaky, Listener()).text == "ok"
    assert provider.complete(flaky, Listener()).text == "ok"
    assert stream(provider, Listener()).text == "Hello."
