"""Whom does a team's token let in, and where? (B2)"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

from jobs.runtime import Runtime
from jobs.store.credentials import CACHE_S, Credentials
from tests.integration.service.conftest import Caller, Keyspace, WebServer
from tests.integration.service.team_caller import PAYLOAD, TeamCaller, team_caller
from tests.integration.service.test_auth import raw_answer
from tests.support.factories import new_id

UNKNOWN = f"gqt_{'a' * 12}_{'b' * 43}"
WRONG: list[tuple[str, str | None]] = [
    ("none", None),
    ("empty", ""),
    ("scheme alone", "Bearer"),
    ("no token", "Bearer "),
    ("no scheme", UNKNOWN),
    ("basic", "Basic YTpi"),
    ("unknown token", f"Bearer {UNKNOWN}"),
    ("malformed token", "Bearer gqt_"),
    ("bytes", "Bearer k\u00e9y"),
    ("64 KB", "Bearer " + "k" * 65_536),
    ("two in one", f"Bearer {UNKNOWN},Bearer {UNKNOWN}"),
]


@pytest.fixture
def team(http: FlaskClient, runtime: Runtime) -> TeamCaller:
    return team_caller(http, runtime)


@pytest.mark.req("B2", "X12")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize("header", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_whatever_is_no_token_is_401_in_the_shape_of_the_routes(
    team: TeamCaller, keyspace: Callable[[], Keyspace], header: str | None, method: str
) -> None:
    path = team.address if method == "POST" else f"{team.address}{new_id()}/"
    headers = {} if header is None else {"Authorization": header}
    before = keyspace()
    answer = team.http.open(path, method=method, headers=headers, data=b"{")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="genqueue"')
    assert answer.mimetype == "application/json"
    assert answer.json is not None
    assert answer.json["error"]["code"] == "unauthenticated"
    assert "genqueue teams token" in answer.json["error"]["message"]
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]
    assert keyspace() == before


@pytest.mark.req("B2", "X12")
@pytest.mark.case("SEC-05")
@pytest.mark.parametrize(
    "lines",
    [
        b"Authorization: Bearer k\xe9y\r\n",
        b"Authorization: \r\n",
        b"Authorization: Bearer a\x00b\r\n",
        b"Authorization: Bearer " + b"k" * 65_536 + b"\r\n",
        b"Authorization: Bearer one\r\nAuthorization: Bearer two\r\n",
        b"",
    ],
    ids=["latin-1", "empty", "NUL", "64 KB", "two headers", "none"],
)
def test_raw_headers_that_are_no_token_are_401_over_a_real_server(
    web_server: WebServer, lines: bytes
) -> None:
    head = b"GET /api/projects/1/workflow_llm_generations/x/ HTTP/1.1\r\nHost: x\r\n"
    status, headers, body = raw_answer(web_server, head + lines)
    assert status == 401
    assert headers["www-authenticate"].startswith("bearer realm=")
    assert json.loads(body)["request_id"] == headers["x-request-id"]


@pytest.mark.req("B2", "X12")
@pytest.mark.case("SEC-05")
def test_a_good_token_sent_twice_is_401(web_server: WebServer, team: TeamCaller) -> None:
    line = f"Authorization: Bearer {team.token}\r\n".encode()
    head = f"GET {team.address}{new_id()}/ HTTP/1.1\r\nHost: x\r\n".encode()
    assert raw_answer(web_server, head + line)[0] == 404
    assert raw_answer(web_server, head + line + line)[0] == 401


@pytest.mark.req("B2")
def test_a_token_of_another_team_reads_as_an_id_that_never_was(
    team: TeamCaller, runtime: Runtime, keyspace: Callable[[], Keyspace]
) -> None:
    accepted = team.submit().json
    assert accepted is not None
    sister = team_caller(team.http, runtime, "2", "acme")
    intruder = TeamCaller(team.http, sister.token, team.team_id)
    nowhere = TeamCaller(team.http, team.token, "no-such-team")
    never = team.collect(new_id())
    before = keyspace()

    def told(answer: object) -> tuple[int, object]:
        assert hasattr(answer, "json")
        assert hasattr(answer, "status_code")
        return answer.status_code, {**answer.json, "request_id": ""}

    for answer in (
        intruder.collect(accepted["id"]),
        intruder.submit(),
        intruder.post_raw(b"{"),
        nowhere.submit(),
        sister.collect(accepted["id"]),
    ):
        assert told(answer) == told(never)
    assert keyspace() == before


@pytest.mark.req("B2", "X12")
def test_a_team_s_token_opens_no_route_of_users_and_a_user_s_key_none_of_teams(
    team: TeamCaller, caller: Caller
) -> None:
    for path in ("/v1/jobs", "/v1/jobs/x", "/v1/prompts/x", "/v1/mission/recent"):
        answer = team.http.get(path, headers=team.headers)
        assert answer.status_code == 401
        assert answer.mimetype == "application/problem+json"
    posted = team.http.post("/v1/prompt", json={"prompt": "hello"}, headers=team.headers)
    assert posted.status_code == 401
    assert team.http.get("/v1/mission/events", headers=team.headers).status_code == 401

    assert team.http.post(team.address, json=PAYLOAD, headers=caller.headers).status_code == 401
    assert team.http.get(f"{team.address}x/", headers=caller.headers).status_code == 401


@pytest.mark.req("B2", "X12")
def test_a_token_under_the_prefix_of_a_key_is_nobody_s_and_the_other_way_round(
    team: TeamCaller, caller: Caller, runtime: Runtime
) -> None:
    credentials = Credentials(runtime.redis)
    as_key = team.token.replace("gqt_", "gq_", 1)
    as_token = caller.key.replace("gq_", "gqt_", 1)
    assert credentials.authenticate(as_key) is None
    assert credentials.authenticate(as_token) is None
    assert caller.http.get("/v1/jobs", headers={"Authorization": f"Bearer {as_key}"}).status == (
        "401 UNAUTHORIZED"
    )


@pytest.mark.req("B2", "X12")
def test_a_revoked_token_is_refused_within_five_seconds(team: TeamCaller, runtime: Runtime) -> None:
    now_s = 100.0
    timed = Credentials(runtime.redis, clock=lambda: now_s)
    identity = timed.authenticate(team.token)
    assert identity is not None
    assert (identity.team_id, identity.org_id) == ("1", "acme")
    assert runtime.credentials.revoke(identity.key_id)
    now_s += CACHE_S
    assert timed.authenticate(team.token) is None


@pytest.mark.req("X12")
def test_the_token_is_looked_at_before_the_body(team: TeamCaller) -> None:
    stranger = TeamCaller(team.http, UNKNOWN, team.team_id)
    for body in (b"{", b"x" * 2_000_000):
        assert stranger.post_raw(body).status_code == 401
