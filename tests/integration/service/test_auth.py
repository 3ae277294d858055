"""Who gets in?"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest
import requests

from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store.credentials import CACHE_S, Credentials
from service.app import create_app
from tests.integration.service.conftest import Caller, WebServer

UNKNOWN = f"gq_{'a' * 12}_{'b' * 43}"
WRONG: list[tuple[str, str | None]] = [
    ("none", None),
    ("empty", ""),
    ("scheme alone", "Bearer"),
    ("no key", "Bearer "),
    ("no scheme", UNKNOWN),
    ("basic", "Basic YTpi"),
    ("unknown key", f"Bearer {UNKNOWN}"),
    ("malformed key", "Bearer gq_"),
    ("bytes", "Bearer k\u00e9y"),
    ("64 KB", "Bearer " + "k" * 65_536),
    ("two in one", f"Bearer {UNKNOWN},Bearer {UNKNOWN}"),
]


@pytest.mark.req("X12")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize("header", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/prompt"), ("GET", "/v1/jobs/x")])
def test_whatever_is_not_a_valid_key_is_401(
    runtime: Runtime, header: str | None, method: str, path: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = create_app(runtime).test_client().open(path, method=method, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="genqueue"')
    assert answer.mimetype == "application/problem+json"


@pytest.mark.req("X12")
def test_the_key_is_looked_at_before_the_body(runtime: Runtime) -> None:
    client = create_app(runtime).test_client()
    for body in (b"{", b"x" * 2_000_000):
        assert client.post("/v1/prompt", data=body).status_code == 401


@pytest.mark.req("X12")
def test_the_scheme_is_read_in_any_case(caller: Caller) -> None:
    headers = {"Authorization": f"bearer {caller.key}"}
    assert caller.http.get("/v1/jobs/x", headers=headers).status_code == 404


@pytest.mark.req("X12")
def test_probes_and_pages_need_no_key(runtime: Runtime) -> None:
    client = create_app(runtime).test_client()
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200


@pytest.mark.req("X12")
def test_a_revoked_key_is_refused_within_five_seconds(
    make_runtime: Callable[..., Runtime], redis_url: str
) -> None:
    now_s = 100.0
    first = build(Settings(redis_url=redis_url))
    runtime = make_runtime()
    timed = Credentials(runtime.redis, clock=lambda: now_s)
    credential, key = first.credentials.create("acme", "ann")
    assert timed.authenticate(key) is not None
    assert first.credentials.revoke(credential.key_id)
    now_s += CACHE_S
    assert timed.authenticate(key) is None
    assert CACHE_S <= 5


def raw_answer(
    server: WebServer, head: bytes, body: bytes = b""
) -> tuple[int, dict[str, str], str]:
    """Status, headers (names in lower case) and body for bytes that no client would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head + b"Connection: close\r\n\r\n" + body)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    top, _, rest = received.partition(b"\r\n\r\n")
    status, *lines = top.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, rest.decode()


@pytest.mark.req("X12", "X3")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize(
    "lines",
    [
        b"Authorization: Bearer k\xe9y\r\n",
        b"Authorization: Bearer \xff\xfe\r\n",
        b"Authorization: \r\n",
        b"Authorization: Bearer a\x00b\r\n",
        b"Authorization: Bearer " + b"k" * 65_536 + b"\r\n",
        b"Authorization: Bearer one\r\nAuthorization: Bearer two\r\n",
        b"Authorization: Basic YTpi\r\n",
        b"",
    ],
    ids=["latin-1", "bytes", "empty", "NUL", "64 KB", "two headers", "basic", "none"],
)
def test_raw_headers_that_are_no_key_are_401_over_a_real_server(
    web_server: WebServer, lines: bytes
) -> None:
    status, headers, body = raw_answer(
        web_server, b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n" + lines
    )
    assert status == 401
    assert headers["www-authenticate"].startswith("bearer realm=")
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["request_id"] == headers["x-request-id"]


@pytest.mark.req("X12")
@pytest.mark.case("SEC-05")
def test_a_good_key_sent_twice_is_401(web_server: WebServer, caller: Caller) -> None:
    line = f"Authorization: Bearer {caller.key}\r\n".encode()
    head = b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n"
    assert raw_answer(web_server, head + line)[0] == 404
    assert raw_answer(web_server, head + line + line)[0] == 401


@pytest.mark.req("X3")
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET / HTTP/9.9\r\nHost: x\r\n", 400),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 90_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n", 400),
    ],
    ids=["version", "long address", "long header", "bad name"],
)
def test_a_request_that_is_no_http_is_a_problem_too(
    web_server: WebServer, head: bytes, expected: int
) -> None:
    status, headers, body = raw_answer(web_server, head)
    assert status == expected
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["status"] == expected


@pytest.mark.req("X12")
def test_a_chunked_body_over_the_limit_is_413_and_one_below_is_taken(
    web_server: WebServer, caller: Caller
) -> None:
    head = (
        "POST /v1/prompt HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Transfer-Encoding: chunked\r\nAuthorization: Bearer {caller.key}\r\n"
    ).encode()
    small = json.dumps({"prompt": "hello"}).encode()
    taken = raw_answer(web_server, head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(small), small))
    assert taken[0] == 202
    large = b'{"prompt": "' + b"a" * 1_100_000 + b'"}'
    refused = raw_answer(web_server, head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large))
    assert refused[0] == 413
    assert json.loads(refused[2])["errors"][0]["field"] == "body"


@pytest.mark.req("X12")
def test_a_client_that_sends_too_much_gets_to_read_why(
    web_server: WebServer, caller: Caller
) -> None:
    for size in (1_100_000, 5_000_000):
        answer = requests.post(
            f"{web_server.url}/v1/prompt",
            data=b"a" * size,
            headers={**caller.headers, "Content-Type": "application/json"},
            timeout=20,
        )
        assert answer.status_code == 413
