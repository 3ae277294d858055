"""Does a client that follows the events get every one, once, in order, and only its own?"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from tests.integration.service.streams import StreamServer, numbers, stream_server
from tests.support.factories import claim_one, new_job, response_for

FIELDS = {"job_id", "prompt_id", "state", "from", "verb", "attempt", "at", "seq", "reason"}


@pytest.fixture
def key(runtime: Runtime) -> str:
    return runtime.credentials.create("acme", "ada")[1]


@pytest.fixture(scope="module")
def _shared(
    redis_server: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamServer]:
    folder = tmp_path_factory.mktemp("streams")
    with stream_server(folder, redis_server.url) as server:  # type: ignore[attr-defined]
        yield server


@pytest.fixture
def server(_shared: StreamServer, redis_url: str) -> StreamServer:
    return _shared


def in_the_stream(redis: Redis, org: str = "acme") -> list[int]:
    return [int(entry.split("-")[0]) for entry, _ in redis.xrange(keys.EVENTS(org))]


@pytest.mark.req("A21")
def test_every_move_comes_at_once_with_its_number_as_the_id(
    server: StreamServer, key: str, queue: Queue
) -> None:
    with server.opened(key) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.parser.retry_ms is not None
        job = new_job()
        queue.submit(job)
        attempt = claim_one(queue)
        queue.succeed(job.id, attempt.token, response_for(attempt))
        messages = stream.next(3)
    assert {message.name for message in messages} == {"job.state_changed"}
    assert [message.last_id for message in messages] == [str(one) for one in numbers(messages)]
    rows = [message.json for message in messages]
    assert all(set(row) == FIELDS for row in rows)
    assert [(row["verb"], row["from"], row["state"], row["attempt"]) for row in rows] == [
        ("submit", None, "queued", 1),
        ("claim", "queued", "running", 1),
        ("succeed", "running", "succeeded", 1),
    ]
    assert {(row["job_id"], row["prompt_id"]) for row in rows} == {(job.id, job.prompt_id)}
    assert all(re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", row["at"]) for row in rows)


@pytest.mark.req("A21", "X12")
def test_a_stream_tells_only_of_its_own_organisation(
    server: StreamServer, runtime: Runtime, key: str, queue: Queue
) -> None:
    theirs = runtime.credentials.create("rival", "rob")[1]
    with server.opened(key) as ours, server.opened(theirs) as others:
        queue.submit(new_job(org_id="rival"))
        mine = new_job()
        queue.submit(mine)
        queue.submit(new_job(org_id="rival"))
        assert [one.json["job_id"] for one in ours.messages(1)] == [mine.id]
        assert mine.id not in [one.json["job_id"] for one in others.next(2)]


@pytest.mark.req("A21")
def test_a_stream_of_me_leaves_out_what_colleagues_made(
    server: StreamServer, key: str, queue: Queue
) -> None:
    with server.opened(key, "?user=me") as stream:
        queue.submit(new_job(created_by="bob"))
        mine = new_job(created_by="ada")
        queue.submit(mine)
        (message,) = stream.next(1)
        assert message.json["job_id"] == mine.id
    queue.submit(new_job(created_by="bob"))
    later = new_job(created_by="ada")
    queue.submit(later)
    with server.opened(key, "?user=me", message.last_id) as stream:
        assert [one.json["job_id"] for one in stream.next(1)] == [later.id]


@pytest.mark.req("A21")
@pytest.mark.case("SSE-05")
@pytest.mark.parametrize("way", ["header", "query"])
def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice(
    server: StreamServer, key: str, queue: Queue, redis: Redis, way: str
) -> None:
    for _ in range(3):
        queue.submit(new_job())
    everything = in_the_stream(redis)
    with ExitStack() as ends:
        # An id in the header counts before the one that is still in the address.
        words = {
            "header": ("?last_event_id=999999", str(everything[0])),
            "query": (f"?last_event_id={everything[0]}", None),
        }[way]
        stream = ends.enter_context(server.opened(key, *words))
        assert numbers(stream.next(2)) == everything[1:]
        queue.submit(new_job())
        assert numbers(stream.next(1)) == in_the_stream(redis)[3:]


@pytest.mark.req("A20", "A21")
@pytest.mark.case("SSE-05")
def test_a_poll_and_a_stream_join_without_a_hole(
    server: StreamServer, key: str, queue: Queue
) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    recent = requests.get(f"{server.url}/v1/mission/recent", headers=headers, timeout=5).json()
    with server.opened(key, f"?last_event_id={recent['as_of']}") as stream:
        job = new_job()
        queue.submit(job)
        (message,) = stream.next(1)
    assert (message.name, message.json["job_id"]) == ("job.state_changed", job.id)


@pytest.mark.req("A21")
@pytest.mark.case("SSE-05")
@pytest.mark.parametrize("last_id", ["999999", "no number", "9" * 40, "-1"])
def test_an_id_that_was_never_given_out_is_a_gap_and_the_stream_goes_on(
    server: StreamServer, key: str, queue: Queue, last_id: str
) -> None:
    queue.submit(new_job())
    with server.opened(key, last_event_id=last_id) as stream:
        (gap,) = stream.next(1)
        assert (gap.name, gap.json["reason"]) == ("gap", "unknown_id")
        job = new_job()
        queue.submit(job)
        (message,) = stream.next(1)
        assert message.json["job_id"] == job.id
    with server.opened(key, last_event_id=gap.last_id) as stream:
        assert stream.next(1) == [message], "the gap's own id is a place to resume from"


@pytest.mark.req("A21")
@pytest.mark.case("SSE-05")
def test_a_stream_that_expired_is_a_gap_only_for_who_missed_something(
    server: StreamServer, key: str, queue: Queue, redis: Redis
) -> None:
    queue.submit(new_job())
    queue.submit(new_job())
    first, last = in_the_stream(redis)
    redis.delete(keys.EVENTS("acme"))
    with server.opened(key, last_event_id=str(first)) as stream:
        (gap,) = stream.next(1)
        assert (gap.name, gap.json["reason"]) == ("gap", "expired")
    with server.opened(key, last_event_id=str(last)) as stream:
        job = new_job()
        queue.submit(job)
        assert stream.next(1)[0].json["job_id"] == job.id


@pytest.mark.req("A21")
@pytest.mark.case("SSE-05")
def test_a_stream_that_was_cut_is_a_gap(
    server: StreamServer, key: str, queue: Queue, redis: Redis
) -> None:
    queue.submit(new_job())
    (first,) = in_the_stream(redis)
    pipe = redis.pipeline(transaction=False)
    for number in range(first + 1, first + keys.EVENTS_KEPT + 500):
        pipe.xadd(
            keys.EVENTS("acme"),
            {"job_id": "x", "state": "queued"},
            id=f"{number}-0",
            maxlen=keys.EVENTS_KEPT,
        )
    pipe.set(keys.SEQ(), number)
    pipe.pexpire(keys.EVENTS("acme"), keys.EVENTS_TTL_MS)
    pipe.execute()
    with server.opened(key, last_event_id=str(first)) as stream:
        (gap,) = stream.next(1)
        assert (gap.name, gap.json["reason"], gap.last_id) == ("gap", "trimmed", str(number))
        job = new_job()
        queue.submit(job)
        assert stream.next(1)[0].json["job_id"] == job.id
    with server.opened(key, last_event_id=str(number - 3000)) as stream:
        assert numbers(stream.next(3001)) == in_the_stream(redis)[-3001:]


@pytest.mark.req("A21")
@pytest.mark.case("SSE-09")
def test_texts_can_neither_end_a_line_nor_forge_an_event(
    server: StreamServer, key: str, queue: Queue
) -> None:
    texts = [
        "\r\nevent: done\ndata: {}\r\n\r\n",
        "\n\nid: 1\n\n",
        "\r\rretry: 1\r\r",
        "\u2028\u2029\x85\x0b\x0c🙂",
        "\x00\x1b[31m",
        'a"b\\c|d|e',
    ]
    ids = []
    with server.opened(key) as stream:
        for text in texts:
            job = new_job()
            queue.submit(job)
            queue.cancel(job.id, "acme", text)
            ids.append(job.id)
        messages = stream.next(2 * len(texts))
        assert stream.parser.retry_ms == 2000
    assert {message.name for message in messages} == {"job.state_changed"}
    assert numbers(messages) == sorted(numbers(messages))
    told = {one.json["job_id"]: one.json["reason"] for one in messages if one.json["reason"]}
    assert told == dict(zip(ids, texts, strict=True))
    assert all(message.data.isascii() for message in messages)


class Movements:
    """Moves jobs about at a fixed rate until told to stop."""

    def __init__(self, queue: Queue, per_s: float) -> None:
        self._queue = queue
        self._pause_s = 1 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _move(self) -> None:
        due_s = time.monotonic()
        for step in self._steps():
            due_s += self._pause_s
            if self._stop.wait(max(0.0, due_s - time.monotonic())):
                return
            step()

    def _steps(self) -> Iterator[object]:
        while True:
            job = new_job()
            yield lambda job=job: self._queue.submit(job)
            held: list[str] = []
            yield lambda held=held: held.append(claim_one(self._queue).token)
            yield lambda job=job, held=held: self._queue.fail(job.id, held[0], ErrorKind.AUTH, "no")


@pytest.mark.req("A21")
@pytest.mark.case("SSE-05")
def test_no_event_is_lost_or_doubled_over_forced_reconnects(
    server: StreamServer, key: str, queue: Queue, redis: Redis
) -> None:
    dice = random.Random(4711)
    queue.submit(new_job(target="mock:other", priority=100))
    (last_id,) = map(str, in_the_stream(redis))
    heard: list[int] = []
    reconnects = 0
    until_s = time.monotonic() + 8
    with Movements(queue, per_s=50):
        while time.monotonic() < until_s:
            with server.stream(key, last_event_id=last_id) as stream:
                messages = stream.messages(dice.choice([0.0, 0.02, 0.1, 0.4]))
                # What was cut off within a message was not heard of.
                assert {message.name for message in messages} <= {"job.state_changed"}
                heard += numbers(messages)
                last_id = messages[-1].last_id if messages else last_id
            reconnects += 1
    with server.opened(key, last_event_id=last_id) as stream:
        heard += numbers(stream.messages(2))
    assert heard == in_the_stream(redis)[1:]
    assert len(heard) > 250
    assert reconnects > 20


def test_head_takes_no_place(server: StreamServer, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    for _ in range(60):
        answer = requests.head(f"{server.url}/v1/mission/events", headers=headers, timeout=5)
        assert answer.status_code == 200
    with server.opened(key):
        pass


@pytest.mark.req("X12")
def test_a_stream_wants_a_key_and_sane_parameters(server: StreamServer, key: str) -> None:
    with server.stream("gq_no_key") as stream:
        assert stream.status == 401
    for query in ("?user=someone", "?nonsense=1"):
        with server.stream(key, query) as stream:
            assert stream.status == 422
