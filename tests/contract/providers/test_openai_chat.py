"""Does openai_chat keep the Provider contract against a server that does what servers do?"""

import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.models import ModelFeatures, ModelSpec, ProviderSpec
from jobs.providers.base import Call, Message
from jobs.providers.openai_chat import OpenAIChatProvider
from jobs.providers.tls import SharedTls
from jobs.providers.transport import ANSWER_MAX_BYTES
from tests.support.full_port import full_port
from tests.support.openai_server import (
    Fault,
    OpenAIServer,
    Reply,
    answer,
    completion,
    fault,
    html,
    openai_server,
    status,
)

CERTIFICATE = Path(__file__).parents[2] / "support" / "tls" / "loopback.crt"
CALL = Call("m", (Message("system", "be brief"), Message("user", "hello")))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
def provider(server: OpenAIServer) -> Iterator[OpenAIChatProvider]:
    made = provider_of(server.base_url)
    yield made
    made.close()


def provider_of(
    base_url: str, *models: ModelSpec, api_key: str | None = "sk-test", tls: SharedTls | None = None
) -> OpenAIChatProvider:
    return OpenAIChatProvider(ProviderSpec("main", "openai", base_url), api_key, models, tls)


def failure_of(provider: OpenAIChatProvider, call: Call = CALL) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        provider.complete(call)
    return caught.value


@pytest.mark.req("X6", "A15")
def test_a_call_is_one_request_and_its_answer_is_read(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    server.answer_next(answer(completion("Hi."), headers=(("x-request-id", "req_7"),)))

    result = provider.complete(CALL)

    assert (result.text, result.model, result.provider_request_id) == (
        "Hi.",
        "served-model",
        "req_7",
    )
    assert result.usage == Usage(7, 3)
    assert [request.json for request in server.requests] == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hello"},
            ],
        }
    ]
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].header("authorization") == "Bearer sk-test"


@pytest.mark.req("X6")
def test_a_provider_without_a_key_is_sent_none(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-provider")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")

    provider_of(server.base_url, api_key=None).complete(CALL)

    assert server.requests[0].header("authorization") is None


@pytest.mark.req("X6")
def test_only_parameters_that_the_model_takes_are_sent(server: OpenAIServer) -> None:
    strict = ModelSpec(
        "thinker",
        "main",
        "vendor/thinker",
        supports=ModelFeatures(True, False, ("low",), "max_completion_tokens"),
    )
    provider = provider_of(server.base_url, strict)
    schema = {"name": "out", "schema": {"type": "object"}}
    for model, effort in (
        ("vendor/thinker", "low"),
        ("vendor/thinker", "minimal"),
        ("plain", "low"),
    ):
        provider.complete(Call(model, CALL.messages, 64, 0.5, schema, effort))

    sent = [
        {key: value for key, value in request.json.items() if key not in ("model", "messages")}
        for request in server.requests
    ]
    response_format = {"type": "json_schema", "json_schema": {"strict": True, **schema}}
    with_schema = {"max_completion_tokens": 64, "response_format": response_format}
    assert sent == [
        {**with_schema, "reasoning_effort": "low"},
        with_schema,
        {"max_tokens": 64, "temperature": 0.5},
    ]


@pytest.mark.req("A9")
@pytest.mark.case("LLM-03")
@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (status(400), ErrorKind.PROVIDER_4XX, None),
        (status(401), ErrorKind.AUTH, None),
        (status(402), ErrorKind.AUTH, None),
        (status(403), ErrorKind.AUTH, None),
        (status(404), ErrorKind.PROVIDER_4XX, None),
        (status(408), ErrorKind.TIMEOUT, None),
        (status(409), ErrorKind.PROVIDER_5XX, None),
        (status(413), ErrorKind.PROVIDER_4XX, None),
        (status(422), ErrorKind.PROVIDER_4XX, None),
        (status(425), ErrorKind.PROVIDER_5XX, None),
        (status(429), ErrorKind.RATE_LIMIT, None),
        (status(429, headers=(("Retry-After", "7"),)), ErrorKind.RATE_LIMIT, 7.0),
        (status(429, headers=(("Retry-After", "junk"),)), ErrorKind.RATE_LIMIT, None),
        (
            status(429, headers=(("Retry-After", "5"), ("Retry-After", "30"))),
            ErrorKind.RATE_LIMIT,
            30.0,
        ),
        (
            status(429, headers=(("retry-after-ms", "1500"), ("Retry-After", "2"))),
            ErrorKind.RATE_LIMIT,
            1.5,
        ),
        (status(429, error_code="insufficient_quota"), ErrorKind.AUTH, None),
        (status(500), ErrorKind.PROVIDER_5XX, None),
        (status(503, headers=(("Retry-After", "9"),)), ErrorKind.PROVIDER_5XX, 9.0),
        (status(529), ErrorKind.PROVIDER_5XX, None),
        (html(502), ErrorKind.PROVIDER_5XX, None),
        (html(200), ErrorKind.PARSE, None),
        (answer(b""), ErrorKind.PARSE, None),
        (answer(b"{}"), ErrorKind.PARSE, None),
        (answer(b"null"), ErrorKind.PARSE, None),
        (answer(b'{"choices": [{"me'), ErrorKind.PARSE, None),
        (answer(b"[" * 100_000), ErrorKind.PARSE, None),
        (answer(completion("x", finish_reason="length")), ErrorKind.PARSE, None),
        (
            answer(completion("x", finish_reason="content_filter")),
            ErrorKind.PROVIDER_4XX,
            None,
        ),
        (answer(completion(None, refusal="no")), ErrorKind.PROVIDER_4XX, None),
        (fault(Fault.RESET_MID_BODY), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.CLOSE_MID_BODY), ErrorKind.PROVIDER_5XX, None),
        (fault(Fault.CLOSE_AT_ONCE), ErrorKind.PROVIDER_5XX, None),
        (
            answer(completion(), headers=(("Content-Encoding", "gzip"),)),
            ErrorKind.PARSE,
            None,
        ),
    ],
)
def test_each_way_to_fail_has_its_kind_and_costs_one_request(
    server: OpenAIServer,
    provider: OpenAIChatProvider,
    reply: Reply,
    kind: ErrorKind,
    wait_s: float | None,
) -> None:
    server.answer_next(reply)

    error = failure_of(provider)

    assert (error.kind, error.retry_after_s) == (kind, wait_s)
    assert len(server.requests) == 1
    assert provider.complete(CALL).text == "Hello.", "the next call is not harmed"


@pytest.mark.req("A9", "X6")
def test_a_provider_that_is_not_there_is_retryable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        port = closed_again.getsockname()[1]

    error = failure_of(provider_of(f"http://127.0.0.1:{port}/v1"))

    assert error.kind is ErrorKind.PROVIDER_5XX
    assert "ConnectionRefusedError" in error.message


@pytest.mark.req("A9")
def test_a_provider_that_does_not_take_the_connection_is_a_timeout() -> None:
    with full_port() as port:
        spec = ProviderSpec("main", "openai", f"http://127.0.0.1:{port}/v1")
        error = failure_of(OpenAIChatProvider(spec, None, (), connect_budget_s=0.2))

    assert error.kind is ErrorKind.TIMEOUT
    assert error.message == "no connection to the provider in time"


@pytest.mark.req("X6", "X12")
def test_a_redirect_is_not_followed(server: OpenAIServer, provider: OpenAIChatProvider) -> None:
    with openai_server() as elsewhere:
        location = f"{elsewhere.base_url}/chat/completions"
        for code in (301, 302, 307, 308):
            server.answer_next(Reply(status=code, body=b"", headers=(("Location", location),)))
            assert failure_of(provider).kind is ErrorKind.PROVIDER_4XX
        assert elsewhere.requests == []
    assert len(server.requests) == 4


@pytest.mark.req("A9")
def test_an_answer_without_end_is_ended_at_its_limit(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    huge = completion("x" * ANSWER_MAX_BYTES)
    server.answer_next(answer(huge), status(500, message="x" * 10_000_000))

    assert failure_of(provider).kind is ErrorKind.PARSE
    assert failure_of(provider).kind is ErrorKind.PROVIDER_5XX
    assert provider.complete(CALL).text == "Hello."


@pytest.mark.case("LLM-11")
def test_lone_surrogates_are_replaced_on_the_way_out_and_in(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    body = json.dumps(completion("a@")).replace("@", "\\ud83d").encode()
    server.answer_next(answer(body))

    result = provider.complete(Call("m", (Message("user", "b\ud83d"),)))

    assert result.text == "a\ufffd"
    assert server.requests[0].json["messages"][0]["content"] == "b\ufffd"


@pytest.mark.req("X6")
def test_several_providers_are_reached_at_once_each_by_its_own_key(server: OpenAIServer) -> None:
    with openai_server() as other:
        first = provider_of(server.base_url, api_key="sk-one")
        second = provider_of(other.base_url, api_key="sk-two")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda chosen: chosen.complete(CALL), [first, second] * 20))

        assert {request.header("authorization") for request in server.requests} == {"Bearer sk-one"}
        assert {request.header("authorization") for request in other.requests} == {"Bearer sk-two"}
        assert len(server.requests) == len(other.requests) == 20


@pytest.mark.req("X8")
def test_one_provider_serves_many_threads_over_connections_that_it_keeps(
    server: OpenAIServer, provider: OpenAIChatProvider
) -> None:
    slow = Reply(delay_s=1.0)
    server.answer_model("m", slow)
    with ThreadPoolExecutor(40) as pool:
        results = list(pool.map(lambda _: provider.complete(CALL), range(80)))

    assert len({result.provider_request_id for result in results}) == 80
    assert server.concurrent_max == 40
    assert server.connections == 40


@pytest.mark.req("X6")
def test_tls_is_verified(server: OpenAIServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
    trusting = SharedTls(lambda: ssl.create_default_context(cafile=str(CERTIFICATE)))
    with openai_server(tls=context) as secure:
        assert provider_of(secure.base_url, tls=trusting).complete(CALL).text == "Hello."

        error = failure_of(provider_of(secure.base_url))
        assert error.kind is ErrorKind.PROVIDER_5XX
        assert "TLS: self-signed certificate" in error.message
        assert len(secure.requests) == 1
