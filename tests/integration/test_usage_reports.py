"""Does what generations used get to the receiver and into the log, and does none get lost? (B17)"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs import logs
from jobs.domain.billing import BilledCall, Payer, usage_event
from jobs.maintenance import report_usage
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.billing import Outbox
from jobs.store.queue import Queue
from jobs.usage_reports import (
    BATCH,
    Event,
    HttpCapture,
    ReportError,
    log_usage,
    report_waiting,
)
from service.stack.free_port import free_port
from tests.support.capture_server import CaptureServer, capture_server, status
from tests.support.clock import start_scheduler
from tests.support.factories import claim_one, new_id
from tests.support.processes import fleet
from tests.support.stored_generations import (
    ENVELOPE,
    billed,
    call_of,
    generations_of,
    new_generation,
    open_to,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("B17")

MakeRuntime = Callable[..., Runtime]
CANARY = "canary-prompt-4711"


@pytest.fixture
def receiver() -> Iterator[CaptureServer]:
    with capture_server() as server:
        yield server


def run_one(redis: Redis, queue: Queue, *calls: BilledCall, is_captured: bool = True) -> str:
    """A generation that was settled with these calls on its bill; answers its id."""
    open_to(redis, "acme")
    new = new_generation(prompt_text=CANARY)
    generations_of(redis).submit(new)
    attempt = claim_one(queue)
    bill = billed(attempt.job, *calls, is_captured=is_captured)
    queue.succeed_generation(new.id, attempt.token, ENVELOPE, bill)
    return new.id


def wait_in(redis: Redis, count: int) -> None:
    """Put so many events into the outbox, numbered."""
    redis.rpush(keys.BILLING(), *(json.dumps({"n": n}) for n in range(count)))


def told(server: CaptureServer) -> list[tuple[str, int]]:
    """Generation and pass of every event that arrived."""
    found = [event["properties"] for event in server.events]
    return [(one["generation_id"], one["pass"]) for one in found]


def an_event(**payer: Any) -> Event:
    values = {"team_id": "1", "org_id": "acme", "generation_id": "g-1", "invocation_id": "run-1"}
    return usage_event(call_of(1_500), Payer(**{**values, "hog_flow_id": None, **payer}), new_id())


def test_every_call_of_a_settled_generation_is_posted_once(
    make_runtime: MakeRuntime, redis: Redis, queue: Queue, receiver: CaptureServer
) -> None:
    runtime = make_runtime(capture_url=receiver.url)
    done = run_one(redis, queue, call_of(7, provider_request_id="r-1"), call_of(5, pass_number=2))

    assert [report_usage(runtime), report_usage(runtime)] == [2, 0]

    (post,) = receiver.posts
    assert (post.path, post.headers["content-type"]) == ("/capture", "application/json")
    assert list(post.body) == ["batch"]
    assert told(receiver) == [(done, 1), (done, 2)]
    first = receiver.events[0]
    assert first["event"] == "$ai_generation"
    assert {
        "ai_product": "workflows",
        "feature": "llm_action",
        "$ai_billable": True,
        "team_id": "1",
        "$ai_trace_id": "run-1",
        "$ai_total_cost_usd": 0.000007,
        "provider_request_id": "r-1",
    }.items() <= first["properties"].items()
    assert CANARY not in json.dumps(post.body)
    assert redis.exists(keys.BILLING()) == 0


def test_without_a_receiver_nothing_waits_for_one(redis: Redis, queue: Queue) -> None:
    run_one(redis, queue, call_of(), is_captured=False)
    assert redis.exists(keys.BILLING()) == 0


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_any_2xx_is_taken_for_received(receiver: CaptureServer, code: int) -> None:
    receiver.answer_next(status(code))
    HttpCapture(receiver.url).report([{"n": 1}])
    assert receiver.events == [{"n": 1}]


@pytest.mark.parametrize("code", [301, 307, 308, 400, 413, 429, 500, 503])
def test_what_is_refused_is_kept_and_sent_again_and_no_redirect_is_followed(
    make_runtime: MakeRuntime, redis: Redis, queue: Queue, receiver: CaptureServer, code: int
) -> None:
    runtime = make_runtime(capture_url=receiver.url)
    done = run_one(redis, queue, call_of())
    with capture_server() as elsewhere:
        receiver.answer_next(status(code, Location=elsewhere.url))

        assert report_usage(runtime) == 0
        assert redis.llen(keys.BILLING()) == 1
        assert report_usage(runtime) == 1
        assert elsewhere.posts == []

    assert told(receiver) == [(done, 1)] * 2
    assert redis.llen(keys.BILLING()) == 0


def test_nothing_is_lost_while_the_receiver_is_down(
    make_runtime: MakeRuntime, redis: Redis, queue: Queue
) -> None:
    port = free_port()
    runtime = make_runtime(capture_url=f"http://127.0.0.1:{port}/capture")
    ids = []
    for _ in range(3):
        ids.append(run_one(redis, queue, call_of()))
        assert report_usage(runtime) == 0

    with capture_server(port) as receiver:
        assert report_usage(runtime) == 3
        assert told(receiver) == [(one, 1) for one in ids]


@pytest.mark.parametrize("how", ["hang", "trickle"])
def test_a_receiver_that_hangs_or_trickles_holds_nobody_up_and_gets_it_again(
    redis: Redis, receiver: CaptureServer, how: str
) -> None:
    wait_in(redis, 1)
    outbox, capture = Outbox(redis), HttpCapture(receiver.url, within_s=0.8)
    receiver.answer_next(getattr(receiver, how))

    began_s = time.monotonic()
    assert report_waiting(outbox, capture) == 0
    assert time.monotonic() - began_s < 5
    assert redis.llen(keys.BILLING()) == 1

    with capture_server() as other:
        if how == "trickle":
            assert report_waiting(outbox, HttpCapture(other.url)) == 0
            assert other.posts == []
            receiver.close()
        patient = HttpCapture(other.url)
        wait_until(lambda: report_waiting(outbox, patient) == 1, 10, "the next post gets through")
        assert other.events == [{"n": 0}]


def test_a_proxy_of_the_environment_gets_to_see_nothing(
    receiver: CaptureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        HttpCapture(receiver.url).report([{"n": 1}])
        assert proxy.posts == []
    assert receiver.events == [{"n": 1}]


@pytest.mark.req("X10", "X12")
def test_the_credentials_of_the_address_are_sent_and_never_logged(
    redis: Redis, receiver: CaptureServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://meter:hunter2hunter2@127.0.0.1:{receiver.port}/capture"
    wait_in(redis, 1)
    receiver.answer_next(status(500))
    with caplog.at_level(logging.DEBUG):
        assert report_waiting(Outbox(redis), HttpCapture(url)) == 0
        assert report_waiting(Outbox(redis), HttpCapture(url)) == 1
        with pytest.raises(ReportError) as refused:
            HttpCapture("http://meter:hunter2hunter2@127.0.0.1:1/capture").report([{"n": 1}])

    assert receiver.posts[0].headers["authorization"].startswith("Basic ")
    assert "usage of 1 calls not reported yet: it answered 500" in caplog.text
    for text in (caplog.text, str(refused.value), repr(refused.value.__context__)):
        assert "hunter2" not in text


def test_the_longest_waiting_go_first_a_batch_at_a_time(
    redis: Redis, receiver: CaptureServer
) -> None:
    wait_in(redis, 2 * BATCH + 1)
    outbox, capture = Outbox(redis), HttpCapture(receiver.url)

    assert [report_waiting(outbox, capture) for _ in range(4)] == [BATCH, BATCH, 1, 0]
    assert [event["n"] for event in receiver.events] == list(range(2 * BATCH + 1))


def test_beyond_its_bound_the_outbox_keeps_the_newest(redis: Redis, queue: Queue) -> None:
    wait_in(redis, keys.BILLING_KEPT)

    run_one(redis, queue, call_of(), call_of())

    assert redis.llen(keys.BILLING()) == keys.BILLING_KEPT
    assert json.loads(redis.lindex(keys.BILLING(), 0) or "")["n"] == 2
    redis.delete(keys.BILLING())


def test_every_call_has_an_id_of_its_own_that_a_repeat_keeps(redis: Redis, queue: Queue) -> None:
    nameless = call_of(provider_request_id=None)
    run_one(redis, queue, nameless, nameless)

    first, second = (json.loads(row)["uuid"] for row in redis.lrange(keys.BILLING(), 0, -1))
    assert first != second


def test_the_clock_reports_by_itself_and_again_what_was_refused(
    redis: Redis, redis_url: str, queue: Queue, receiver: CaptureServer, tmp_path: Path
) -> None:
    done = run_one(redis, queue, call_of())
    receiver.answer_next(status(503))
    with fleet(redis_url, tmp_path) as ships:
        start_scheduler(ships, redis, capture_url=receiver.url)
        wait_until(lambda: redis.exists(keys.BILLING()) == 0, 20, "the receiver took it")

    assert told(receiver) == [(done, 1)] * 2


class MeanwhileAnother:
    """A receiver in front of which a second tick runs, whole, while the first one posts."""

    def __init__(self, redis: Redis, capture: HttpCapture) -> None:
        self._redis = redis
        self._capture = capture

    def report(self, events: Sequence[Event]) -> None:
        assert report_waiting(Outbox(self._redis), self._capture) == len(events)
        self._redis.rpush(keys.BILLING(), '{"n": "since"}')
        self._capture.report(events)


def test_two_ticks_at_once_may_tell_twice_and_lose_nothing(
    redis: Redis, receiver: CaptureServer
) -> None:
    wait_in(redis, 2)
    capture = HttpCapture(receiver.url)

    assert report_waiting(Outbox(redis), MeanwhileAnother(redis, capture)) == 2
    assert report_waiting(Outbox(redis), capture) == 1

    assert [event["n"] for event in receiver.events] == [0, 1, 0, 1, "since"]
    assert redis.llen(keys.BILLING()) == 0


@pytest.mark.req("X10")
def test_a_call_is_one_log_line_whose_fields_can_be_searched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        log_usage([an_event(), an_event(generation_id="g-2")])

    as_json = logs.JsonFormatter(logs.Scrubber()).format
    lines = [json.loads(as_json(record)) for record in caplog.records]
    assert [line["message"] for line in lines] == [
        "generation usage: pass 1 of g-1",
        "generation usage: pass 1 of g-2",
    ]
    assert {
        "ai_product": "workflows",
        "feature": "llm_action",
        "ai_billable": True,
        "team_id": "1",
        "organization_id": "acme",
        "generation_id": "g-1",
        "ai_trace_id": "run-1",
        "ai_model": "mock-1",
        "ai_input_tokens": 3,
        "ai_output_tokens": 2,
        "ai_total_cost_usd": 0.0015,
        "pass": 1,
    }.items() <= lines[0].items()
    assert not any(name.startswith("$") for name in lines[0])
