"""Who may talk to the formation, and see whose requests? (C21)"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from redis import Redis

from jobs.domain.client_keys import client_id_of
from jobs.domain.request_ids import job_id_of
from jobs.runtime import Runtime
from tests.integration.service.chat_caller import (
    KEY,
    KEYS,
    OTHER_KEY,
    ChatCaller,
    chat_app,
    request_id_in,
)
from tests.integration.service.conftest import WebServer
from tests.integration.service.streams import stream_server
from tests.integration.service.team_caller import stored_jobs
from tests.integration.service.test_auth import raw_answer
from tests.support.redis_server import RedisServer

NOBODY = f"/v1/requests/req_{'0' * 32}"
ROUTES = [
    ("POST", "/v1/chat"),
    ("GET", NOBODY),
    ("DELETE", NOBODY),
    ("GET", "/v1/captains-log"),
]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return make_runtime(formation_keys=KEYS)


@pytest.mark.req("C21", "X12")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize(
    "key",
    [
        *(None, "", "fmc_none-0123456789abcdef", KEY[:-1], KEY + "x", KEY.upper(), f" {KEY}x"),
        *(f"{KEY},{KEY}", f"{KEY},{OTHER_KEY}", "k\u00e9y", "k" * 65_536, f"Bearer {KEY}"),
    ],
    ids=lambda key: repr(key)[:24],
)
def test_whatever_is_not_a_key_of_the_formation_is_401(ada: ChatCaller, key: str | None) -> None:
    headers = {} if key is None else {"X-Muxi-Client-Key": key}
    for method, path in ROUTES:
        answer = ada.http.open(path, method=method, headers=headers)
        assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")
        assert answer.headers["WWW-Authenticate"]
        assert answer.json is not None
        assert "X-Muxi-Client-Key" in answer.json["detail"]


@pytest.mark.req("C21")
def test_each_key_of_the_formation_lets_in_and_an_api_key_does_not(
    ada: ChatCaller, runtime: Runtime
) -> None:
    for key in KEYS:
        assert replace(ada, key=key).get(NOBODY).status_code == 404
    api_key = runtime.credentials.create(runtime.formation.id, "ann")[1]
    headers = {"Authorization": f"Bearer {api_key}"}
    assert ada.http.get(NOBODY, headers=headers).status_code == 401
    assert ada.http.get("/v1/jobs", headers=ada.headers).status_code == 401


@pytest.mark.req("C21")
def test_where_no_key_is_set_the_answer_says_which_variable_to_set(
    make_runtime: Callable[..., Runtime],
) -> None:
    with chat_app(make_runtime()) as caller:
        for key in (KEY, ""):
            answer = replace(caller, key=key).chat()
            assert answer.status_code == 401
            assert answer.json is not None
            assert "GENQUEUE_FORMATION_KEYS" in answer.json["detail"]


@pytest.mark.req("C21", "X12")
def test_the_key_is_looked_at_before_the_user_and_the_body(ada: ChatCaller, redis: Redis) -> None:
    stranger = replace(ada, key="x" * 20, user=" ")
    for body in (b"{", b"x" * 2_000_000):
        assert stranger.chat_raw(body).status_code == 401
    assert stored_jobs(redis) == []


@pytest.mark.req("C21")
@pytest.mark.parametrize("user", ["a", "user-123", "Ada Lovelace", "x" * 128, "a,b", "cn=ada,dc=x"])
def test_a_user_is_kept_as_it_came(ada: ChatCaller, user: str) -> None:
    caller = replace(ada, user=user)
    request_id = request_id_in(caller.chat(Prefer="wait=0"))
    assert caller.request(request_id)["user_id"] == user


def raw_user(ada: ChatCaller, user: bytes) -> ChatCaller:
    """A caller whose user id goes over the wire as these bytes."""
    return replace(ada, user=user.decode("latin-1"))


@pytest.mark.req("C21")
@pytest.mark.parametrize("user", ["größe", "件名", "🦆", "é" * 128])
def test_a_user_may_be_named_in_any_script_as_utf_8(ada: ChatCaller, user: str) -> None:
    caller = raw_user(ada, user.encode())
    request_id = request_id_in(caller.chat(Prefer="wait=0"))
    assert caller.request(request_id)["user_id"] == user


@pytest.mark.req("C21")
@pytest.mark.parametrize(
    "user",
    [
        *(b"", b" ", b" ada", b"ada ", b"x" * 129, "é".encode() * 129, b"a\tb", b"a\x7fb"),
        *(b"gr\xf6\xdfe", b"\xff", b"\xed\xa0\x80", "a\u00a0b".encode(), "a\u202eb".encode()),
        *("a\u200bb".encode(), "\u3000".encode(), "a\u0085b".encode(), "a\u2028b".encode()),
    ],
    ids=lambda user: repr(user)[:24],
)
def test_a_user_that_cant_be_kept_is_422_and_names_the_header(
    ada: ChatCaller, redis: Redis, user: bytes
) -> None:
    for method, path in ROUTES:
        answer = ada.http.open(path, method=method, headers=raw_user(ada, user).headers, json={})
        assert answer.status_code == 422
        assert answer.json is not None
        assert [error["field"] for error in answer.json["errors"]] == ["X-Muxi-User-Id"]
    assert stored_jobs(redis) == []


@pytest.mark.req("C21")
def test_a_request_is_there_for_its_client_and_user_alone(ada: ChatCaller) -> None:
    request_id = request_id_in(ada.chat(Prefer="wait=0"))
    path = f"/v1/requests/{request_id}"
    strangers = [
        ada.of(user="bob"),
        ada.of(user="Ada"),
        ada.of(user=None),
        ada.of(OTHER_KEY, "ada"),
        ada.of(OTHER_KEY, None),
    ]
    never = ada.get(f"/v1/requests/req_{'0' * 32}")
    assert never.json is not None
    for stranger in strangers:
        for answer in (stranger.get(path), stranger.delete(request_id)):
            assert answer.status_code == 404
            assert answer.json is not None
            assert answer.json["detail"] == never.json["detail"]
    assert ada.request(request_id)["status"] == "queued"


@pytest.mark.req("C21")
def test_a_request_of_no_user_is_not_there_for_one(ada: ChatCaller) -> None:
    nobody = ada.of(user=None)
    request_id = request_id_in(nobody.chat(Prefer="wait=0"))
    assert nobody.request(request_id)["user_id"] is None
    assert ada.get(f"/v1/requests/{request_id}").status_code == 404


@pytest.mark.req("X4", "C21")
def test_an_idempotency_key_is_the_clients_and_its_users_own(ada: ChatCaller) -> None:
    callers = [ada, ada.of(user="bob"), ada.of(user=None), ada.of(OTHER_KEY, "ada")]
    answers = [
        caller.chat(f"message {n}", Idempotency_Key="k", Prefer="wait=0")
        for n, caller in enumerate(callers)
    ]
    assert {answer.status_code for answer in answers} == {202}
    assert len({request_id_in(answer) for answer in answers}) == 4
    # A user's name can't be put together with a key into another user's key.
    one, other = ada.of(user="b c"), ada.of(user="c")
    first = one.chat("x", Idempotency_Key="a", Prefer="wait=0")
    second = other.chat("y", Idempotency_Key="a-b", Prefer="wait=0")
    assert request_id_in(first) != request_id_in(second)


@pytest.mark.req("C16", "C21")
def test_the_key_itself_is_kept_nowhere(ada: ChatCaller, redis: Redis) -> None:
    request_id = request_id_in(ada.chat(Prefer="wait=0"))
    job_id = str(job_id_of(request_id))
    assert redis.hget(f"{{gq}}:request:{job_id}", "client") == client_id_of(KEY)
    for name in redis.scan_iter(count=1000):
        assert KEY.encode() not in (redis.dump(name) or b"")
        assert KEY not in name


@pytest.fixture(scope="module")
def keyed_server(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("keyed")
    with stream_server(folder, redis_server.url, formation_keys=",".join(KEYS)) as server:
        yield WebServer(server.port)


@pytest.mark.req("C21", "X12")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"X-Muxi-Client-Key: {KEY}\r\n".encode(), 404),
        (f"X-Muxi-Client-Key: {KEY}\r\nX-Muxi-User-Id: größe\r\n".encode(), 404),
        (f"X-Muxi-Client-Key: {KEY}\r\n".encode() + b"X-Muxi-User-Id: gr\xf6\xdfe\r\n", 422),
        (f"X-Muxi-Client-Key: {KEY}\r\nX-Muxi-User-Id:\r\n".encode(), 422),
        (f"X-Muxi-Client-Key: {KEY}\r\n".encode() * 2, 401),
        (f"X_Muxi_Client_Key: {KEY}\r\n".encode(), 401),
        (b"X-Muxi-Client-Key: k\xe9y\r\n", 401),
        (b"X-Muxi-Client-Key:\r\n", 401),
    ],
    ids=["good", "UTF-8", "Latin-1", "no user", "twice", "underscores", "bytes", "empty"],
)
def test_raw_headers_meet_the_same_over_a_real_server(
    keyed_server: WebServer, redis_url: str, lines: bytes, expected: int
) -> None:
    del redis_url  # emptied for each test
    head = f"GET {NOBODY} HTTP/1.1\r\nHost: x\r\n".encode() + lines
    status, headers, body = raw_answer(keyed_server, head)
    assert (status, headers["content-type"]) == (expected, "application/problem+json")
    assert json.loads(body)["status"] == expected
