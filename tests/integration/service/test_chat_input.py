"""Which messages are refused, in which words, and does a refusal leave a trace?"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.request_ids import job_id_of
from jobs.runtime import Runtime
from jobs.settings import from_environment
from service.context import fanout_of
from tests.integration.service.chat_caller import KEYS, ChatCaller, chat_app, request_id_in
from tests.integration.service.team_caller import stored_jobs

Keyspace = Callable[[], dict[bytes, bytes]]
HOOK = "https://example.org/hook"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return make_runtime(formation_keys=KEYS)


VALUES: list[tuple[object, str]] = [
    ({}, "message"),
    ({"message": None}, "message"),
    ({"message": ""}, "message"),
    ({"message": " \t\n\u2003"}, "message"),
    ({"message": 5}, "message"),
    ({"message": ["a"]}, "message"),
    ({"message": "a\x00b"}, "message"),
    ({"message": "a", "stream": "true"}, "stream"),
    ({"message": "a", "stream": 1}, "stream"),
    ({"message": "a", "stream": 0}, "stream"),
    ({"message": "a", "stream": None}, "stream"),
    ({"message": "a", "webhook_url": None}, "webhook_url"),
    ({"message": "a", "webhook_url": ""}, "webhook_url"),
    ({"message": "a", "webhook_url": 5}, "webhook_url"),
    ({"message": "a", "webhook_url": "example.org/hook"}, "webhook_url"),
    ({"message": "a", "webhook_url": "ftp://example.org/hook"}, "webhook_url"),
    ({"message": "a", "webhook_url": "http://example.org/hook"}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://user:pw@example.org/"}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://127.0.0.1/"}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://2130706433/"}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://[::ffff:169.254.169.254]/"}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://localhost/"}, "webhook_url"),
    ({"message": "a", "webhook_url": HOOK + "?" + "x" * 2048}, "webhook_url"),
    ({"message": "a", "webhook_url": "https://example.org/ü"}, "webhook_url"),
    ({"message": "a", "mesage": "a"}, "mesage"),
    ({"message": "a", "user_id": "a"}, "user_id"),
    ([], "body"),
    ("message", "body"),
    (None, "body"),
]


@pytest.mark.req("C1", "X3", "X12")
@pytest.mark.parametrize(("payload", "field"), VALUES, ids=lambda one: repr(one)[:48])
def test_a_wrong_value_is_422_with_its_field_and_stores_nothing(
    ada: ChatCaller, keyspace: Keyspace, payload: object, field: str
) -> None:
    before = keyspace()
    answer = ada.chat_raw(json.dumps(payload).encode())
    assert (answer.status_code, answer.mimetype) == (422, "application/problem+json")
    assert answer.json is not None
    assert [error["field"] for error in answer.json["errors"]] == [field]
    assert keyspace() == before


@pytest.mark.req("X3", "X12")
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"message": "a", "message": "b"}', "application/json", 400),
        (b'{"message": "\xff"}', "application/json", 400),
        (b'{"message": NaN}', "application/json", 400),
        (b'{"message": "\\ud83d"}', "application/json", 422),
        (b'{"message": "a"}', "text/plain", 415),
        (b"message=a", "application/x-www-form-urlencoded", 415),
        (b'{"message": "' + b"a" * 1_048_576 + b'"}', "application/json", 413),
    ],
    ids=lambda one: repr(one)[:32],
)
def test_what_is_no_message_at_all_is_refused_as_everywhere(
    ada: ChatCaller, redis: Redis, body: bytes, content_type: str, status: int
) -> None:
    answer = ada.chat_raw(body, content_type)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert stored_jobs(redis) == []


@pytest.mark.req("C1")
def test_a_message_may_be_one_sign_or_fill_the_body_and_is_kept_as_it_came(
    ada: ChatCaller, runtime: Runtime
) -> None:
    room = runtime.settings.max_body_bytes - len('{"message": ""}')
    for message in ("?", "x" * room, "line\r\n\tbreaks \u2028 🦆 e\u0301"):
        answer = ada.chat(message, Prefer="wait=0")
        assert answer.status_code == 202
        view = runtime.turns.read(str(job_id_of(request_id_in(answer))))
        assert view is not None
        assert view.message == message


@pytest.mark.req("X4")
@pytest.mark.parametrize("key", ["a b", "x" * 256, "k\u00e9y", ""])
def test_a_bad_idempotency_key_is_422_and_names_the_header(ada: ChatCaller, key: str) -> None:
    answer = ada.chat(Idempotency_Key=key, Prefer="wait=0")
    assert answer.status_code == 422
    assert answer.json is not None
    assert answer.json["errors"][0]["field"] == "Idempotency-Key"


@pytest.mark.req("X12")
def test_a_webhook_inside_is_taken_where_the_settings_name_its_network(
    make_runtime: Callable[..., Runtime],
) -> None:
    networks: Any = from_environment({"GENQUEUE_WEBHOOK_NETWORKS": "127.0.0.0/8"}).webhook_networks
    with chat_app(make_runtime(formation_keys=KEYS, webhook_networks=networks)) as caller:
        for url, status in (
            ("http://127.0.0.1:9000/hook", 202),
            ("https://127.0.0.1/hook", 202),
            ("http://10.0.0.1/hook", 422),
        ):
            body = {"webhook_url": url}
            assert caller.chat("a", body, Prefer="wait=0").status_code == status


@pytest.mark.req("C9")
def test_a_refused_message_takes_no_place_of_a_stream(ada: ChatCaller, redis: Redis) -> None:
    ada.chat("a", Idempotency_Key="k", Prefer="wait=0")
    for body in (
        {"stream": True, "webhook_url": "nowhere"},
        {"stream": True, "unknown": 1},
    ):
        assert ada.chat("a", body).status_code == 422
    assert ada.chat("b", {"stream": True}, Idempotency_Key="k").status_code == 422
    assert fanout_of(ada.http.application).clients == 0
    assert len(stored_jobs(redis)) == 1
