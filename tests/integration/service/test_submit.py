"""What does `POST /v1/prompt` store and answer?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from flask.testing import FlaskClient
from redis import Redis

from jobs.runtime import build
from jobs.settings import Settings
from jobs.store import keys
from service.app import create_app
from tests.integration.service.conftest import Caller
from tests.integration.service.round_trips import CountingProxy, counting_proxy
from tests.support.invariants import problems_of
from tests.support.redis_server import RedisServer

EVERYTHING = {
    "prompt": "Wörter, \u2028 and 🙂",
    "priority": 0,
    "max_attempts": 10,
    "model": "mock-1",
    "execution_options": {"model": "mock-1", "max_tokens": 5, "temperature": 1, "system": "Be."},
    "metadata": {"a": [1, {"b": None}], "ü": 1.5},
}


@pytest.mark.req("A1")
def test_a_submit_is_stored_queued_and_answered_with_its_location(caller: Caller) -> None:
    answer = caller.post({"prompt": "hello"})
    assert answer.status_code == 202
    assert answer.json is not None
    assert set(answer.json) == {"prompt_id", "job_id", "state"}
    assert answer.json["state"] == "queued"
    assert answer.headers["Location"] == f"/v1/jobs/{answer.json['job_id']}"
    assert "Idempotency-Replayed" not in answer.headers
    assert caller.get(answer.headers["Location"]).json["state"] == "queued"  # type: ignore[index]


@pytest.mark.req("A1", "A2", "A13")
def test_every_field_of_a_submit_comes_back_as_it_was_sent(caller: Caller, redis: Redis) -> None:
    accepted = caller.post(EVERYTHING).json
    assert accepted is not None
    job = caller.get(f"/v1/jobs/{accepted['job_id']}").json
    prompt = caller.get(f"/v1/prompts/{accepted['prompt_id']}").json
    assert job is not None
    assert prompt is not None
    assert job["execution_options"] == EVERYTHING["execution_options"]
    assert (job["priority"], job["max_attempts"]) == (0, 10)
    assert (job["provider"], job["model"]) == ("mock", "mock-1")
    assert prompt["text"] == EVERYTHING["prompt"]
    assert prompt["metadata"] == EVERYTHING["metadata"]
    assert problems_of(redis) == []


@pytest.mark.req("A1", "A13")
def test_what_is_left_out_has_the_documented_defaults(caller: Caller) -> None:
    job = caller.get(caller.post({"prompt": "hello"}).headers["Location"]).json
    assert job is not None
    assert (job["priority"], job["max_attempts"], job["attempt"]) == (50, 3, 1)
    assert (job["model"], job["execution_options"]) == ("mock-1", {})


@pytest.fixture
def proxied(redis_server: RedisServer, caller: Caller) -> Iterator[tuple[CountingProxy, Caller]]:
    """An app that reaches Redis through the counting proxy, its connections open already."""
    with counting_proxy(redis_server.port) as proxy:
        runtime = build(Settings(redis_url=f"redis://127.0.0.1:{proxy.port}/0", ticket_cap=2))
        through = Caller(create_app(runtime).test_client(), caller.key)
        while through.get("/v1/jobs/unknown").status_code != 404:
            pass
        assert runtime.rq_redis.ping()
        assert runtime.redis.script_load("return 1")
        yield proxy, through


@pytest.mark.req("A1")
def test_a_submit_waits_for_redis_once_and_at_most_twice_more_for_a_ticket(
    proxied: tuple[CountingProxy, Caller], redis: Redis
) -> None:
    proxy, through = proxied
    assert through.post({"prompt": "load the script"}).status_code == 202
    counts, tickets = [], []
    for _ in range(4):
        before = proxy.round_trips
        assert through.post({"prompt": "hello"}).status_code == 202
        counts.append(proxy.round_trips - before)
        tickets.append(redis.llen("rq:queue:genqueue"))
    assert tickets == [2, 2, 2, 2]
    assert counts[0] in {2, 3}, "the write and a ticket"
    assert counts[1:] == [1, 1, 1], "the write alone: the backlog has its tickets"


@pytest.mark.req("A1", "X13")
def test_a_ticket_that_cant_be_issued_doesnt_fail_the_submit(
    caller: Caller, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis.set("rq:queues", "not a set")
    answer = caller.post({"prompt": "hello"})
    assert answer.status_code == 202
    assert caller.get(answer.headers["Location"]).status_code == 200
    assert "no ticket for job" in caplog.text
    redis.delete("rq:queues")


@pytest.mark.req("X13")
def test_full_memory_is_a_503_with_retry_after_and_nothing_stored(
    caller: Caller, redis: Redis, keyspace: Callable[[], dict[bytes, bytes]]
) -> None:
    assert caller.post({"prompt": "hello"}).status_code == 202
    before = keyspace()
    redis.config_set("maxmemory", 1)
    try:
        answer = caller.post({"prompt": "one too many"})
        ready = caller.get("/readyz")
    finally:
        redis.config_set("maxmemory", 0)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.mimetype == "application/problem+json"
    assert ready.status_code == 503
    assert keyspace() == before


@pytest.mark.req("X3")
def test_a_request_id_is_taken_over_where_it_is_sane_and_made_where_not(caller: Caller) -> None:
    sane = caller.post({"prompt": " "}, X_Request_Id="trace-1.a_b")
    assert sane.headers["X-Request-Id"] == "trace-1.a_b"
    assert sane.json is not None
    assert sane.json["request_id"] == "trace-1.a_b"
    for presented in ("a b", "x" * 65, "<script>", ""):
        made = caller.post({"prompt": "hello"}, X_Request_Id=presented).headers["X-Request-Id"]
        assert re.fullmatch(r"[0-9a-f]{32}", made)


@pytest.mark.req("X6")
def test_a_model_without_its_key_is_refused_with_the_variable_to_set(
    caller: Caller, keyspace: Callable[[], dict[bytes, bytes]]
) -> None:
    before = keyspace()
    answer = caller.post({"prompt": "hello", "model": "gpt-5-mini"})
    assert answer.status_code == 422
    assert answer.json is not None
    assert answer.json["errors"][0]["field"] == "model"
    assert "OPENAI_API_KEY" in answer.json["errors"][0]["reason"]
    assert keyspace() == before


def test_a_web_process_never_imports_the_provider_sdk(redis_url: str) -> None:
    source = (
        "import sys; from jobs.runtime import build; from jobs.settings import Settings\n"
        "from service.app import create_app\n"
        f"settings = Settings(redis_url={redis_url!r}, api_keys={{'OPENAI_API_KEY': 'k'}})\n"
        "app = create_app(build(settings))\n"
        "assert app.test_client().get('/readyz').status_code == 200\n"
        "print([name for name in ('openai', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.req("X13")
def test_with_redis_away_a_submit_is_503_and_only_the_liveness_probe_is_fine() -> None:
    away = create_app(build(Settings(redis_url="redis://127.0.0.1:1/0"))).test_client()
    key = {"Authorization": f"Bearer gq_{'a' * 12}_{'b' * 43}"}
    answers = {
        "submit": away.post("/v1/prompt", json={"prompt": "hello"}, headers=key),
        "ready": away.get("/readyz"),
    }
    for answer in answers.values():
        assert answer.status_code == 503
        assert answer.mimetype == "application/problem+json"
        assert int(answer.headers["Retry-After"]) >= 1
        assert "127.0.0.1" not in answer.get_data(as_text=True)
    assert away.get("/healthz").status_code == 200


@pytest.mark.req("X13")
def test_a_redis_that_may_evict_is_not_ready(http: FlaskClient, redis: Redis) -> None:
    assert http.get("/readyz").json == {"status": "ok"}
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        answer = http.get("/readyz")
    finally:
        redis.config_set("maxmemory-policy", "noeviction")
    assert answer.status_code == 503
    assert "noeviction" in answer.get_data(as_text=True)


@pytest.mark.req("X13")
def test_a_read_only_replica_is_not_ready_and_a_probe_leaves_no_key(
    http: FlaskClient, redis: Redis
) -> None:
    assert http.get("/readyz").status_code == 200
    assert redis.exists(keys.SEQ()) == 0
    redis.replicaof("127.0.0.1", 1)
    try:
        assert http.get("/readyz").status_code == 503
    finally:
        redis.replicaof("NO", "ONE")
