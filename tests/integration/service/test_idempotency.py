"""Can a submit be repeated without being done twice?"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from redis import Redis

from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.answers import ClaimRequest
from tests.integration.service.conftest import Caller, WebServer
from tests.support.invariants import problems_of
from tests.support.waiting import wait_until

Keyspace = Callable[[], dict[bytes, bytes]]


def job_ids(redis: Redis) -> list[str]:
    return [name for name in redis.scan_iter(match=keys.JOB("*")) if name.count(":") == 2]


@pytest.mark.req("X4")
@pytest.mark.case("RQ-07")
def test_a_repeat_answers_the_same_job_with_its_present_state(
    caller: Caller, runtime: Runtime, keyspace: Keyspace
) -> None:
    payload = {"prompt": "hello", "priority": 7}
    first = caller.post(payload, Idempotency_Key="order-1")
    assert "Idempotency-Replayed" not in first.headers
    runtime.queue.claim(ClaimRequest(token="t" * 32, count=1, window_ms=90_000))
    before = keyspace()
    repeat = caller.post(payload, Idempotency_Key="order-1")
    assert repeat.status_code == 202
    assert repeat.headers["Idempotency-Replayed"] == "true"
    assert repeat.headers["Location"] == first.headers["Location"]
    assert first.json is not None
    assert repeat.json == {**first.json, "state": "running"}
    assert keyspace() == before


@pytest.mark.req("X4")
@pytest.mark.case("RQ-07")
def test_another_payload_under_the_same_key_is_422_and_changes_nothing(
    caller: Caller, keyspace: Keyspace
) -> None:
    first = caller.post({"prompt": "hello", "priority": 7}, Idempotency_Key="order-1")
    before = keyspace()
    for other in (
        {"prompt": "hello", "priority": 8},
        {"prompt": "hello!", "priority": 7},
        {"prompt": "hello", "priority": 7, "metadata": {"a": 1}},
        {"prompt": "hello", "priority": 7, "model": "mock-1"},
    ):
        answer = caller.post(other, Idempotency_Key="order-1")
        assert answer.status_code == 422
        assert answer.json is not None
        assert answer.json["errors"][0]["field"] == "Idempotency-Key"
        assert answer.json["type"].endswith("idempotency-key-reused")
    assert keyspace() == before
    prompt = caller.get(f"/v1/prompts/{first.json['prompt_id']}").json  # type: ignore[index]
    assert prompt is not None
    assert prompt["text"] == "hello"


@pytest.mark.req("X4")
def test_the_same_payload_may_be_spelled_otherwise(caller: Caller) -> None:
    first = caller.post_raw_with_key(b'{"prompt": "h\\u00e9", "metadata": {"a": 1, "b": 2}}', "k")
    repeat = caller.post_raw_with_key(
        '{"metadata":{"b":2,"a":1},"priority":50,"max_attempts":3,"prompt":"hé"}'.encode(), "k"
    )
    assert repeat.headers["Idempotency-Replayed"] == "true"
    assert repeat.json == first.json


@pytest.mark.req("X4")
def test_a_key_is_the_organisations_own(
    caller: Caller, make_caller: Callable[[str, str], Caller]
) -> None:
    first = caller.post({"prompt": "hello"}, Idempotency_Key="k")
    colleague = make_caller("acme", "bob").post({"prompt": "hello"}, Idempotency_Key="k")
    stranger = make_caller("rival", "rob").post({"prompt": "other"}, Idempotency_Key="k")
    assert first.json is not None
    assert colleague.json == first.json
    assert stranger.status_code == 202
    assert stranger.json is not None
    assert stranger.json["job_id"] != first.json["job_id"]


def test_without_a_key_every_submit_is_a_job(caller: Caller, redis: Redis) -> None:
    for _ in range(2):
        caller.post({"prompt": "hello"})
    assert len(job_ids(redis)) == 2


@pytest.mark.req("X4")
def test_fifty_submits_at_once_under_one_key_are_one_job(caller: Caller, redis: Redis) -> None:
    barrier = threading.Barrier(50)

    def post(_: int) -> tuple[int, str, bool]:
        barrier.wait(20)
        answer = Caller(caller.http.application.test_client(), caller.key).post(
            {"prompt": "hello"}, Idempotency_Key="k"
        )
        assert answer.json is not None
        replayed = answer.headers.get("Idempotency-Replayed") == "true"
        return answer.status_code, answer.json["job_id"], replayed

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(post, range(50)))
    assert {status for status, _, _ in answers} == {202}
    assert len({job_id for _, job_id, _ in answers}) == 1
    assert sum(not replayed for _, _, replayed in answers) == 1
    assert len(job_ids(redis)) == 1
    assert problems_of(redis) == []


@pytest.mark.req("A18")
def test_submits_at_once_to_different_parents_each_keep_their_own(caller: Caller) -> None:
    parents = [caller.post({"prompt": f"parent {n}"}).json["prompt_id"] for n in range(16)]  # type: ignore[index]
    barrier = threading.Barrier(len(parents))

    def post(parent: str) -> str:
        barrier.wait(20)
        own = Caller(caller.http.application.test_client(), caller.key)
        answer = own.post({"prompt": f"child of {parent}", "parent_id": parent}).json
        assert answer is not None
        return str(answer["prompt_id"])

    with ThreadPoolExecutor(len(parents)) as pool:
        children = list(pool.map(post, parents))
    for parent, child in zip(parents, children, strict=True):
        prompt = caller.get(f"/v1/prompts/{child}").json
        assert prompt is not None
        assert prompt["text"] == f"child of {parent}"
        assert (prompt["parent_id"], prompt["correlation_id"]) == (parent, parent)


@pytest.mark.req("X4", "A1")
@pytest.mark.case("IDEM-01")
def test_a_submit_whose_answer_was_lost_is_found_by_its_repeat(
    web_server: WebServer, caller: Caller, redis: Redis
) -> None:
    body = json.dumps({"prompt": "hello"}).encode()
    head = (
        "POST /v1/prompt HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {caller.key}\r\nIdempotency-Key: once\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", web_server.port)) as connection:
        connection.sendall(head.encode() + body)
    wait_until(lambda: job_ids(redis), 10, "the job is stored")
    headers = {**caller.headers, "Idempotency-Key": "once"}
    url = f"{web_server.url}/v1/prompt"
    repeat = requests.post(url, json={"prompt": "hello"}, headers=headers, timeout=10)
    assert (repeat.status_code, repeat.headers["Idempotency-Replayed"]) == (202, "true")
    assert job_ids(redis) == [keys.JOB(repeat.json()["job_id"])]
    changed = requests.post(url, json={"prompt": "changed"}, headers=headers, timeout=10)
    assert changed.status_code == 422
    assert len(job_ids(redis)) == 1
