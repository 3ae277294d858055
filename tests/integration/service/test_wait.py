"""Does a request that waits for its job get the result, and hold nothing that it need not?"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis
from werkzeug.test import TestResponse

from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from jobs.store.events import Event, Events
from service.app import create_app
from service.context import fanout_of
from tests.integration.service.conftest import Caller
from tests.integration.service.streams import stream_server
from tests.support.factories import claim, new_job, response_for
from tests.support.processes import fleet
from tests.support.waiting import wait_until

PLACES = b"genqueue_stream_clients "


def post(caller: Caller, payload: dict[str, Any] | None = None, **headers: str) -> TestResponse:
    return caller.post({"prompt": "hello", **(payload or {})}, **headers)


@contextmanager
def worker(runtime: Runtime, fail: bool = False) -> Iterator[None]:
    """Ends every job that is submitted meanwhile, as a worker does."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.01):
            for attempt in claim(runtime.queue).attempts:
                if fail:
                    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.AUTH, "no key")
                else:
                    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.req("A27", "A1")
def test_a_request_that_waits_is_answered_with_the_result(caller: Caller, runtime: Runtime) -> None:
    with worker(runtime):
        answer = post(caller, Prefer="wait=20")
    assert answer.status_code == 200
    assert answer.headers["Preference-Applied"] == "wait=20"
    body = answer.json
    assert body is not None
    assert set(body) == {"prompt_id", "job_id", "state", "job", "response"}
    assert answer.headers["Location"] == f"/v1/jobs/{body['job_id']}"
    assert (body["state"], body["response"]["text"]) == ("succeeded", "Hello.")
    assert body["job"] == caller.get(answer.headers["Location"]).json
    prompt = caller.get(f"/v1/prompts/{body['prompt_id']}").json
    assert prompt is not None
    assert body["response"] == prompt["response"]


@pytest.mark.req("A27")
def test_a_job_that_fails_is_answered_as_well(caller: Caller, runtime: Runtime) -> None:
    with worker(runtime, fail=True):
        answer = post(caller, Prefer="wait=20")
    assert answer.status_code == 200
    assert answer.json is not None
    assert (answer.json["state"], answer.json["response"]) == ("failed", None)
    assert answer.json["job"]["error_kind"] == "auth"


@pytest.mark.req("A27")
def test_after_its_seconds_the_receipt_is_answered_and_the_job_waits_on(
    caller: Caller,
) -> None:
    began_s = time.monotonic()
    answer = post(caller, Prefer="wait=1")
    assert 0.9 < time.monotonic() - began_s < 3
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "wait=1"
    assert answer.json is not None
    assert set(answer.json) == {"prompt_id", "job_id", "state"}
    assert caller.get(answer.headers["Location"]).json["state"] == "queued"  # type: ignore[index]


@pytest.mark.req("A27")
def test_whoever_waits_has_priority_unless_the_caller_said_otherwise(caller: Caller) -> None:
    def priority(payload: dict[str, Any], **headers: str) -> int:
        answer = post(caller, payload, **headers)
        return int(caller.get(answer.headers["Location"]).json["priority"])  # type: ignore[index]

    assert priority({}) == 50
    assert priority({}, Prefer="wait=1") == 5
    assert priority({"priority": 50}, Prefer="wait=1") == 50
    assert priority({}, Prefer="wait=0") == 50


@pytest.mark.req("A27", "X4")
def test_the_receipt_and_the_result_share_an_idempotency_key(
    caller: Caller, runtime: Runtime
) -> None:
    receipt = post(caller, Idempotency_Key="k")
    with worker(runtime):
        result = post(caller, Idempotency_Key="k", Prefer="wait=20")
    assert (result.status_code, result.headers["Idempotency-Replayed"]) == (200, "true")
    assert receipt.json is not None
    assert result.json is not None
    assert result.json["job_id"] == receipt.json["job_id"]


@pytest.mark.req("A27", "A16")
def test_a_retry_waits_as_well_and_never_shows_the_answer_of_before(
    caller: Caller, runtime: Runtime
) -> None:
    with worker(runtime):
        first = post(caller, Prefer="wait=20").json
        assert first is not None
        headers = {**caller.headers, "Prefer": "wait=20"}
        again = caller.http.post(f"/v1/jobs/{first['job_id']}/retry", headers=headers)
    assert (again.status_code, again.headers["Preference-Applied"]) == (200, "wait=20")
    assert again.json is not None
    assert again.json["prompt_id"] == first["prompt_id"]
    assert again.json["response"]["id"] != first["response"]["id"]
    with worker(runtime, fail=True):
        url = f"/v1/jobs/{again.json['job_id']}/retry"
        failed = caller.http.post(url, headers=headers).json
    assert failed is not None
    assert (failed["state"], failed["response"]) == ("failed", None)


@pytest.mark.req("A27", "A16")
def test_a_retry_that_is_cancelled_does_not_show_the_response_of_before(
    caller: Caller, runtime: Runtime
) -> None:
    with worker(runtime):
        first = post(caller, Prefer="wait=20").json
    assert first is not None

    def cancel() -> None:
        job = (
            caller.http.application.test_client()
            .get(f"/v1/prompts/{first['prompt_id']}", headers=caller.headers)
            .json["jobs"][-1]
        )  # type: ignore[index]
        runtime.queue.cancel(job["id"], "acme")

    timer = threading.Timer(0.5, cancel)
    timer.start()
    url = f"/v1/jobs/{first['job_id']}/retry"
    answer = caller.http.post(url, headers={**caller.headers, "Prefer": "wait=20"})
    timer.join()
    assert answer.json is not None
    assert (answer.json["state"], answer.json["response"]) == ("cancelled", None)


@pytest.mark.req("A27")
def test_where_no_place_is_left_the_receipt_is_answered_at_once(
    make_runtime: Callable[..., Runtime],
) -> None:
    runtime = make_runtime(stream_limit=1, stream_limit_per_org=1)
    app = create_app(runtime)
    caller = Caller(app.test_client(), runtime.credentials.create("acme", "ann")[1])
    with fanout_of(app).subscribe("acme"):
        began_s = time.monotonic()
        answer = post(caller, Prefer="wait=20")
        assert (answer.status_code, time.monotonic() - began_s < 5) == (202, True)
        assert "Preference-Applied" not in answer.headers
    assert post(caller, Prefer="wait=1").headers["Preference-Applied"] == "wait=1"


class DeafEvents(Events):
    """A stream of which nothing is heard: the signal is cut."""

    def read(self, positions: Mapping[str, int], *, block_ms: int) -> dict[str, list[Event]]:
        del positions
        threading.Event().wait(block_ms / 1000)
        return {}


@pytest.mark.req("A27")
def test_with_the_signal_cut_the_poll_still_finds_the_end(runtime: Runtime) -> None:
    deaf = replace(runtime, events=DeafEvents(runtime.redis))
    caller = Caller(create_app(deaf).test_client(), runtime.credentials.create("acme", "ann")[1])
    began_s = time.monotonic()
    with worker(runtime):
        answer = post(caller, Prefer="wait=20")
    assert answer.status_code == 200
    assert time.monotonic() - began_s < 5


@pytest.mark.req("A27")
def test_the_signal_makes_it_fast(caller: Caller, runtime: Runtime) -> None:
    post(caller, Prefer="wait=1")  # the reader is running
    with worker(runtime):
        times_s = []
        for _ in range(10):
            began_s = time.monotonic()
            assert post(caller, Prefer="wait=20").status_code == 200
            times_s.append(time.monotonic() - began_s)
    assert sorted(times_s)[5] < 0.5, "polls alone take a second"


@pytest.mark.req("A32", "A27")
def test_a_client_that_leaves_frees_its_place_and_cancels_nothing(
    tmp_path: Path, redis_url: str, runtime: Runtime, redis: Redis
) -> None:
    key = runtime.credentials.create("acme", "ada")[1]
    body = json.dumps({"prompt": "hello"})
    with stream_server(tmp_path, redis_url) as server:

        def places_taken() -> bytes:
            page = requests.get(f"{server.url}/metrics", timeout=5).content
            (line,) = (one for one in page.splitlines() if one.startswith(PLACES))
            return line.removeprefix(PLACES)

        request = (
            f"POST /v1/prompt HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Prefer: wait=60\r\n\r\n{body}"
        )
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(request.encode())
            wait_until(lambda: places_taken() == b"1.0", 10, "the place is taken")
        wait_until(lambda: places_taken() == b"0.0", 5, "the place is free again")
    (attempt,) = claim(runtime.queue).attempts
    runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
    view = runtime.records.prompt(attempt.job.prompt_id)
    assert view is not None
    assert view.response is not None


@pytest.mark.req("A27", "A1")
def test_a_worker_answers_while_the_web_process_waits(
    tmp_path: Path, redis_url: str, runtime: Runtime, redis: Redis
) -> None:
    key = runtime.credentials.create("acme", "ada")[1]
    with (
        fleet(redis_url, tmp_path) as ships,
        stream_server(tmp_path, redis_url) as server,
    ):
        ships.thread_worker(redis)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.settimeout(20)
            body = json.dumps({"prompt": "[[mock delay=0.3]] hello"})
            request = (
                f"POST /v1/prompt HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                f"Prefer: wait=15\r\n\r\n{body}"
            )
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body_text = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0]
    result = json.loads(body_text)
    assert (result["state"], result["job"]["worker_claim"] is not None) == ("succeeded", True)
    assert result["response"]["provider"] == "mock"


@pytest.mark.req("A27")
def test_a_job_that_was_submitted_by_others_is_not_waited_for(
    caller: Caller, runtime: Runtime
) -> None:
    """The end of another job of the organisation is no end of this one."""
    other = new_job(priority=0)
    runtime.queue.submit(other)
    began_s = time.monotonic()

    def end_other() -> None:
        runtime.queue.cancel(other.id, "acme")

    threading.Timer(0.3, end_other).start()
    assert post(caller, Prefer="wait=1").status_code == 202
    assert time.monotonic() - began_s > 0.9
