"""How does a step's client take what another deployment answers, over real HTTP? (B5, B30)"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.step import Answer, Ended, NoAnswer, Pending, Result, StepRequest, Throttled
from jobs.generation_client import HttpGenerationClient
from tests.support.openai_server import (
    Fault,
    OpenAIServer,
    Reply,
    answer,
    fault,
    html,
    openai_server,
)

TOKEN = "team-token-0123456789"
HANDLE = "3f0c6f9e-5f7e-4a43-9d0e-2f6c1f0a7b11"
ENVELOPE = {"text": "Hello, Ada. 🙂", "fields": {"subject": "Hi", "body": ""}}
SUCCEEDED = {"id": HANDLE, "status": "succeeded", "result": ENVELOPE, "error": None}
PENDING = {"id": HANDLE, "status": "pending", "result": None, "error": None}
REQUEST = StepRequest(
    team_id="7",
    org_id="acme",
    invocation_id="run-1",
    hog_flow_id="flow-1",
    prompt="Grüße an {{ Ada }}",
    model="mock-1",
    output_fields={"subject": "A subject line.", "body": "One sentence."},
    wake_token="w" * 32,
)
UNREADABLE = NoAnswer("an answer that can't be read")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """Answers what a test scripts; it does not look at methods."""
    with openai_server() as running:
        yield running


def address_of(server: OpenAIServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def client(server: OpenAIServer) -> HttpGenerationClient:
    return HttpGenerationClient(address_of(server) + "/", TOKEN)


def failed(code: object, message: object = "What to do.", **other: object) -> dict[str, object]:
    error = {"code": code, "message": message}
    return {"id": HANDLE, "status": "failed", "result": None, "error": error, **other}


@pytest.mark.req("B3", "B9", "B26")
def test_a_submit_sends_what_the_step_asks_and_no_wake(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    server.answer_next(answer(PENDING, status=202), answer(PENDING, status=202))

    assert client.submit(REQUEST) == Pending(HANDLE)
    assert client.submit(replace(REQUEST, hog_flow_id=None)) == Pending(HANDLE)

    first, second = server.requests
    assert first.path == "/api/projects/7/workflow_llm_generations/"
    assert first.header("authorization") == f"Bearer {TOKEN}"
    assert first.header("content-type") == "application/json"
    body = {
        "invocation_id": "run-1",
        "prompt": "Grüße an {{ Ada }}",
        "model": "mock-1",
        "output_fields": dict(REQUEST.output_fields),
    }
    assert first.json == {**body, "hog_flow_id": "flow-1"}
    assert list(first.json["output_fields"]) == ["subject", "body"]
    assert second.json == body


@pytest.mark.req("B4", "B5")
def test_a_retrieve_asks_for_the_generation_of_the_team(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    server.answer_next(answer(PENDING, status=202), answer(SUCCEEDED), answer(PENDING, status=202))

    assert client.retrieve("7", HANDLE) == Pending(HANDLE)
    assert client.retrieve("7", HANDLE) == Result(HANDLE, ENVELOPE)
    client.retrieve("../7", "a/b?c")

    assert [request.path for request in server.requests] == [
        f"/api/projects/7/workflow_llm_generations/{HANDLE}/",
        f"/api/projects/7/workflow_llm_generations/{HANDLE}/",
        "/api/projects/..%2F7/workflow_llm_generations/a%2Fb%3Fc/",
    ]


def both(server: OpenAIServer, client: HttpGenerationClient, reply: Reply) -> tuple[Answer, Answer]:
    """What a submit and a retrieve make of the same reply."""
    server.answer_next(reply, reply)
    return client.submit(REQUEST), client.retrieve("7", HANDLE)


@pytest.mark.req("B5", "B6")
@pytest.mark.parametrize("code", GenerationCode)
def test_a_failure_comes_with_its_code_and_message(
    server: OpenAIServer, client: HttpGenerationClient, code: GenerationCode
) -> None:
    for got in both(server, client, answer(failed(code.value))):
        assert got == Ended(code, "What to do.")
    for got in both(server, client, answer(failed(code.value, None))):
        assert got == Ended(code, COPY[code])


@pytest.mark.req("B5", "B6")
def test_a_failure_of_an_unknown_code_is_a_failure_all_the_same(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    code = GenerationCode.GATEWAY_UNAVAILABLE
    for other in ("brand_new", None, 7, "x" * 999):
        for got in both(server, client, answer(failed(other))):
            assert got == Ended(code, COPY[code])


@pytest.mark.req("B5")
def test_a_message_is_one_line_of_bounded_length(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    server.answer_next(answer(failed("invalid_model", "a\n\x1b[31mb " + "x" * 9_000)))

    got = client.submit(REQUEST)

    assert isinstance(got, Ended)
    assert got.message.startswith("a [31mb xxx")
    assert len(got.message) == 300


@pytest.mark.req("B5", "B21")
@pytest.mark.parametrize(
    "body", [failed("feature_unavailable", "Ask support."), failed("not_found"), b"<html>", {}]
)
def test_a_404_is_never_asked_again(
    server: OpenAIServer, client: HttpGenerationClient, body: Any
) -> None:
    submitted, collected = both(server, client, answer(body, status=404))

    assert isinstance(submitted, Ended)
    assert isinstance(collected, Ended)
    assert submitted.code is GenerationCode.FEATURE_UNAVAILABLE
    if isinstance(body, dict) and "feature_unavailable" in json.dumps(body):
        assert submitted == collected == Ended(submitted.code, "Ask support.")
    else:
        assert collected.code is GenerationCode.GATEWAY_UNAVAILABLE
        assert "not there any more" in collected.message


@pytest.mark.req("B8", "B28")
@pytest.mark.parametrize(
    ("header", "retry_after_s"),
    [
        ("7", 7),
        ("60", 60),
        ("0", 1),
        ("1.2", 2),
        ("soon", 1),
        ("-3", 1),
        ("nan", 1),
        ("999999999", 3600),
        (None, 1),
    ],
)
def test_a_429_names_when_to_come_again(
    server: OpenAIServer,
    client: HttpGenerationClient,
    header: str | None,
    retry_after_s: int,
) -> None:
    headers = () if header is None else (("Retry-After", header),)

    for got in both(server, client, Reply(429, b"{}", headers)):
        assert got == Throttled(retry_after_s)


@pytest.mark.req("B8", "B28")
def test_a_429_may_name_a_date(server: OpenAIServer, client: HttpGenerationClient) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.answer_next(Reply(429, b"", (("Retry-After", when),)))

    got = client.submit(REQUEST)

    assert isinstance(got, Throttled)
    assert 25 <= got.retry_after_s <= 30


@pytest.mark.req("B5")
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, failed("invalid_request"), "HTTP 400, invalid_request"),
        (401, failed("unauthenticated"), "HTTP 401, unauthenticated"),
        (403, b"<html>no</html>", "(HTTP 403)"),
        (405, failed("x y; <b>"), "(HTTP 405)"),
        (422, b"", "(HTTP 422)"),
    ],
)
def test_a_faulty_request_is_told_and_not_sent_again(
    server: OpenAIServer, client: HttpGenerationClient, status: int, body: Any, said: str
) -> None:
    for got in both(server, client, answer(body, status=status)):
        assert isinstance(got, Ended)
        assert got.code is GenerationCode.GATEWAY_UNAVAILABLE
        assert said in got.message


@pytest.mark.req("B5", "B30")
@pytest.mark.parametrize("status", [201, 301, 302, 307, 500, 502, 503, 504])
def test_any_other_status_is_no_answer(
    server: OpenAIServer, client: HttpGenerationClient, status: int
) -> None:
    elsewhere = (("Location", f"{address_of(server)}/elsewhere"),)

    for got in both(server, client, Reply(status, json.dumps(SUCCEEDED).encode(), elsewhere)):
        assert got == NoAnswer(f"HTTP {status}")
    assert len(server.requests) == 2


@pytest.mark.req("B30")
@pytest.mark.parametrize(
    "reply",
    [
        html(),
        html(202),
        answer(b""),
        answer(b"[]"),
        answer(b'"x"'),
        answer(b"\xff\xfe"),
        answer(b"[" * 60_000),
        answer({**SUCCEEDED, "id": 7}),
        answer({**SUCCEEDED, "id": "../../x"}),
        answer({**SUCCEEDED, "status": "pending"}),
        answer({**SUCCEEDED, "status": ["succeeded"]}),
        answer({**SUCCEEDED, "result": None}),
        answer({**SUCCEEDED, "result": {"text": "x"}}),
        answer({**SUCCEEDED, "result": {"text": None, "fields": {}}}),
        answer({**SUCCEEDED, "result": {"text": "x", "fields": {"a": None}}}),
        answer(SUCCEEDED, status=202),
        answer({**SUCCEEDED, "more": "x" * 65_536}),
    ],
)
def test_what_can_t_be_read_is_no_answer(
    server: OpenAIServer, client: HttpGenerationClient, reply: Reply
) -> None:
    assert both(server, client, reply) == (UNREADABLE, UNREADABLE)


@pytest.mark.req("B30")
@pytest.mark.parametrize("kind", [Fault.HANG, Fault.TRICKLE_HEADER, Fault.TRICKLE_BODY])
def test_a_server_that_never_ends_its_answer_costs_no_more_than_the_limit(
    server: OpenAIServer, kind: Fault
) -> None:
    client = HttpGenerationClient(
        address_of(server), TOKEN, submit_within_s=0.6, retrieve_within_s=0.4
    )
    reply = fault(kind, trickle_every_s=0.05, body=json.dumps(SUCCEEDED).encode())
    started_s = time.monotonic()

    assert both(server, client, reply) == (
        NoAnswer("nothing within 0.6 s"),
        NoAnswer("nothing within 0.4 s"),
    )
    assert 1.0 <= time.monotonic() - started_s < 3.0


@pytest.mark.req("B30")
def test_a_submit_takes_5_seconds_at_most_and_a_retrieve_3(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    reply = fault(Fault.TRICKLE_BODY, trickle_every_s=0.05, body=b" " * 9_000)
    took_s: dict[str, float] = {}
    got: dict[str, Answer] = {}

    def measure(name: str, answered: Any) -> None:
        started_s = time.monotonic()
        got[name] = answered()
        took_s[name] = time.monotonic() - started_s

    server.answer_next(reply, reply)
    threads = [
        threading.Thread(target=measure, args=("submit", lambda: client.submit(REQUEST))),
        threading.Thread(target=measure, args=("retrieve", lambda: client.retrieve("7", HANDLE))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert got == {
        "submit": NoAnswer("nothing within 5 s"),
        "retrieve": NoAnswer("nothing within 3 s"),
    }
    assert 5 <= took_s["submit"] < 6.5
    assert 3 <= took_s["retrieve"] < 4.5


@pytest.mark.req("B30")
@pytest.mark.parametrize("kind", [Fault.RESET_MID_BODY, Fault.CLOSE_MID_BODY, Fault.CLOSE_AT_ONCE])
def test_a_connection_that_breaks_is_no_answer_and_the_next_call_goes_through(
    server: OpenAIServer, client: HttpGenerationClient, kind: Fault
) -> None:
    server.answer_next(fault(kind, body=json.dumps(SUCCEEDED).encode()), answer(SUCCEEDED))

    assert client.retrieve("7", HANDLE) == NoAnswer("the connection broke")
    assert client.retrieve("7", HANDLE) == Result(HANDLE, ENVELOPE)


@pytest.mark.req("B30")
@pytest.mark.parametrize("code", [408, 425])
def test_a_4xx_that_says_nothing_about_the_request_is_no_answer(
    server: OpenAIServer, client: HttpGenerationClient, code: int
) -> None:
    server.answer_next(answer({}, status=code), answer({}, status=code))
    assert isinstance(client.submit(REQUEST), NoAnswer)
    assert isinstance(client.retrieve("7", HANDLE), NoAnswer)


@pytest.mark.req("B30")
def test_an_answer_for_another_generation_is_none(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    other = "00000000-5f7e-4a43-9d0e-2f6c1f0a7b11"
    server.answer_next(answer({**PENDING, "id": other}, status=202))
    assert isinstance(client.retrieve("7", HANDLE), NoAnswer)


@pytest.mark.req("B14", "B30")
@pytest.mark.case("LLM-11")
def test_a_result_can_be_stored_and_is_within_the_budget(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    odd = {"text": "a\ud800b\x00", "fields": {"subject": "x\udfff"}}
    large = {"text": "x" * 4096, "fields": {}}
    server.answer_next(answer({**SUCCEEDED, "result": odd}), answer({**SUCCEEDED, "result": large}))
    replaced = {"text": "a\ufffdb\ufffd", "fields": {"subject": "x\ufffd"}}
    assert client.retrieve("7", HANDLE) == Result(HANDLE, replaced)
    assert client.retrieve("7", HANDLE) == UNREADABLE
