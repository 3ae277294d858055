"""Does a streamed turn arrive as it is written, and end as it did? (C9)"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis

from jobs.domain.escalation import Delivery
from jobs.domain.escalation_text import escalation_text
from tests.integration.service.chat_caller import (
    ESCALATES,
    FAILS,
    KEY,
    KEYS,
    OTHER_KEY,
    formation_file,
)
from tests.integration.service.streams import StreamServer, stream_server
from tests.integration.service.team_caller import stored_jobs
from tests.support.processes import Fleet, Process, fleet
from tests.support.sse_client import EventStream, Message
from tests.support.waiting import wait_until

HEADERS = {"X-Muxi-Client-Key": KEY, "X-Muxi-User-Id": "ada"}
SLOW = "Say hello. [[mock delay=1.5]]"


@dataclass(frozen=True)
class Stage:
    """A web process and its redis; `work` starts a worker."""

    server: StreamServer
    ships: Fleet
    redis: Redis
    folder: Path

    def work(self) -> Process:
        path = self.folder / "formation.yaml"
        return self.ships.thread_worker(self.redis, formation_file=path)

    def stream(self, message: str, **headers: str) -> EventStream:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps({"message": message, "stream": True}).encode()
        sent = {**HEADERS, **named, "Content-Type": "application/json"}
        return EventStream(self.server.port, "/v1/chat", sent, body)

    def call(self, method: str, path: str, payload: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.server.url}{path}"
        answer = requests.request(
            method, url, json=payload, headers={**HEADERS, **named}, timeout=20
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, request_id: str) -> dict[str, Any]:
        """`data` of the request's status, once it has ended."""

        def look() -> dict[str, Any]:
            data: dict[str, Any] = self.call("GET", f"/v1/requests/{request_id}")["data"]
            return data

        wait_until(lambda: look()["ended_at"], 20, "the request has ended")
        return look()

    def places(self) -> bytes:
        page = requests.get(f"{self.server.url}/metrics", timeout=5).content
        (line,) = (one for one in page.splitlines() if one.startswith(b"genqueue_stream_clients "))
        return line.rpartition(b" ")[2]


@pytest.fixture
def settings() -> dict[str, object]:
    """What a test sets beside; replaced where it matters."""
    return {}


@pytest.fixture
def stage(
    redis_url: str, redis: Redis, tmp_path: Path, settings: dict[str, object]
) -> Iterator[Stage]:
    path = formation_file(tmp_path)
    known = {"formation_keys": ",".join(KEYS), "formation_file": path, **settings}
    with fleet(redis_url, tmp_path) as ships, stream_server(tmp_path, redis_url, **known) as server:
        yield Stage(server, ships, redis, tmp_path)


def until_the_end(stream: EventStream, within_s: float = 20) -> list[Message]:
    """All events up to the end of the stream, which has to come by itself."""
    found = stream.messages(within_s)
    assert stream.is_over, f"still open after {found}"
    return found


def text_of(messages: list[Message]) -> str:
    return "".join(message.json["text"] for message in messages if message.name == "delta")


def request_id_of_stream(messages: list[Message]) -> str:
    assert messages[0].name == "started"
    return str(messages[0].json["request_id"])


@pytest.mark.req("C9", "C1")
def test_the_text_arrives_as_it_is_written_and_then_the_answer_once(stage: Stage) -> None:
    stage.work()
    with stage.stream(SLOW) as stream:
        assert stream.status == 200
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert stream.headers["Cache-Control"] == "no-store"
        first = stream.messages(10, lambda found: any(one.name == "delta" for one in found))
        first_at_s = time.monotonic()
        rest = until_the_end(stream)
        assert time.monotonic() - first_at_s > 0.5, "the text came all at once"
    messages = first + rest
    names = [message.name for message in messages]
    assert names[:2] == ["started", "progress"]
    assert set(names[2:-1]) == {"delta"}
    assert names[-1] == "completed"
    assert messages[1].json == {"task": 1, "of": 1, "agent": "assistant"}
    ids = [int(message.last_id) for message in messages]
    assert ids == list(range(1, len(ids) + 1))
    request_id = request_id_of_stream(messages)
    assert stream.headers["Location"] == f"/v1/requests/{request_id}"
    answer = messages[-1].json
    assert (answer["type"], answer["request"]) == ("chat.turn.completed", {"id": request_id})
    assert text_of(messages) == answer["data"]["content"] == stage.ended(request_id)["result"]


@pytest.mark.req("C9", "X4")
def test_a_stream_ends_in_the_same_envelope_as_an_answer_without_one(stage: Stage) -> None:
    stage.work()
    with stage.stream("Say hello.", Idempotency_Key="k") as stream:
        messages = until_the_end(stream)
    payload = {"message": "Say hello."}
    plain = stage.call("POST", "/v1/chat", payload, Idempotency_Key="k")
    assert plain == messages[-1].json
    with stage.stream("Say hello.", Idempotency_Key="k") as again:
        assert again.headers["Idempotency-Replayed"] == "true"
        repeated = until_the_end(again)
    assert [(one.name, one.data, one.last_id) for one in repeated] == [
        (one.name, one.data, one.last_id) for one in messages
    ]


@pytest.mark.req("C9", "C8", "C2")
def test_a_turn_that_fails_ends_its_stream_as_escalated_and_goes_on(stage: Stage) -> None:
    stage.work()
    with stage.stream(ESCALATES) as stream:
        messages = until_the_end(stream)
    request_id = request_id_of_stream(messages)
    (completed,) = (message for message in messages if message.name == "completed")
    data = completed.json["data"]
    assert completed == messages[-1]
    assert (data["status"], data["metadata"]["escalated"]) == ("escalated", True)
    assert data["content"] == escalation_text(request_id, Delivery.POLLING)
    assert data["metadata"]["delivery"] == "polling"
    assert stage.ended(request_id)["status"] == "completed"


@pytest.mark.req("C9", "C3")
def test_a_failure_that_does_not_escalate_is_told_on_completed(stage: Stage) -> None:
    stage.work()
    with stage.stream(FAILS) as stream:
        assert stream.status == 200
        messages = until_the_end(stream)
    data = messages[-1].json["data"]
    assert (messages[-1].name, data["status"]) == ("completed", "failed")
    assert data["metadata"]["escalated"] is False
    status = stage.ended(request_id_of_stream(messages))
    assert data["error"] == status["error"]
    assert data["error"]["kind"] == "auth"


@pytest.mark.req("C9", "C15")
def test_a_stream_whose_request_is_cancelled_ends_with_that(stage: Stage) -> None:
    stage.work()
    with stage.stream("[[mock hang]]") as stream:
        messages = stream.next(2)
        stage.call("DELETE", f"/v1/requests/{request_id_of_stream(messages)}")
        cancelled_at_s = time.monotonic()
        (completed,) = until_the_end(stream)
        assert time.monotonic() - cancelled_at_s < 2
    assert (completed.name, completed.json["data"]["status"]) == ("completed", "cancelled")


@pytest.mark.req("C9")
def test_a_client_that_leaves_frees_its_place_and_the_turn_goes_on(stage: Stage) -> None:
    stage.work()
    with stage.stream(SLOW) as stream:
        messages = stream.next(3)
        assert stage.places() == b"1.0"
    wait_until(lambda: stage.places() == b"0.0", 2, "the place is free again")
    assert stage.ended(request_id_of_stream(messages))["status"] == "completed"


@pytest.mark.req("C9")
def test_a_process_that_stops_ends_the_stream_without_completed(stage: Stage) -> None:
    with stage.stream("Say hello.") as stream:
        messages = stream.next(1)
        stage.server.process.signal(signal.SIGTERM)
        assert until_the_end(stream, 10) == []
    stage.server.process.wait(10)
    stage.work()
    job_id = stored_jobs(stage.redis)[0]
    assert f"req_{job_id.replace('-', '')}" == request_id_of_stream(messages)
    wait_until(
        lambda: stage.redis.hget(f"{{gq}}:request:{job_id}", "status") == "completed",
        20,
        "the turn goes on",
    )


@pytest.mark.req("C9")
@pytest.mark.case("SSE-03")
@pytest.mark.parametrize(
    "settings", [{"web_threads": 16, "stream_limit": 3, "stream_limit_per_org": 2}]
)
def test_where_no_place_is_left_it_is_503_before_anything_is_stored(stage: Stage) -> None:
    with ExitStack() as ends:
        for _ in range(2):
            ends.enter_context(stage.stream("Say hello.")).next(1)
        stored = stored_jobs(stage.redis)
        assert len(stored) == 2
        with stage.stream("Say hello.") as refused:
            assert refused.status == 503
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert int(refused.headers["Retry-After"]) >= 1
            detail = json.loads(refused.response.read())["detail"]
            assert "client" in detail
            assert "/v1/chat without `stream`" in detail
        assert stored_jobs(stage.redis) == stored
        # Without a stream the message is taken, and its receipt answered.
        payload, url = {"message": "hello"}, f"{stage.server.url}/v1/chat"
        answer = requests.post(url, json=payload, headers=HEADERS, timeout=10)
        assert answer.status_code == 202
        # Another client has places of its own.
        other = ends.enter_context(stage.stream("Say hello.", X_Muxi_Client_Key=OTHER_KEY))
        assert [message.name for message in other.next(1)] == ["started"]


@pytest.mark.req("C9")
@pytest.mark.timeout(60)
def test_a_quiet_turn_keeps_its_stream_open_by_comments(stage: Stage) -> None:
    with stage.stream("Say hello.") as stream:
        began_s = time.monotonic()
        stream.next(1)
        assert stream.messages(20, lambda _found: stream.parser.comments) == []
        assert 14 <= time.monotonic() - began_s <= 17
        stage.work()
        assert until_the_end(stream)[-1].name == "completed"
