"""Does the one reader of a process tell its clients the truth, also when Redis loses it?"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.events import Event, Events, Gap
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from service import fanout, sse
from service.errors import StreamsExhaustedError
from service.fanout import Fanout, Item, Subscription
from tests.conftest import QUEUE_NAME, TICKET_CAP
from tests.support.factories import new_job
from tests.support.redis_server import start_redis
from tests.support.waiting import wait_until


@pytest.fixture
def hall(redis: Redis) -> Iterator[Fanout]:
    made = Fanout(Events(redis), limit=8, limit_per_org=4)
    yield made
    made.close()


def heard(client: Subscription, count: int, within_s: float = 5.0) -> list[Item]:
    items: list[Item] = []
    wait_until(
        lambda: items.extend(client.take(0.1)) or len(items) >= count, within_s, f"{count} items"
    )
    return items


def events_of(items: list[Item]) -> list[int]:
    return [item.seq for item in items if item.event is not None]


@pytest.mark.req("A21")
def test_many_clients_of_many_organisations_get_their_own(hall: Fanout, queue: Queue) -> None:
    with hall.subscribe("a") as one, hall.subscribe("a") as two, hall.subscribe("b") as three:
        for org in "abab":
            queue.submit(new_job(org_id=org))
        assert events_of(heard(one, 2)) == events_of(heard(two, 2)) == [1, 3]
        assert events_of(heard(three, 2)) == [2, 4]
    assert hall.clients == 0


@pytest.mark.req("A21")
def test_places_are_counted_and_come_back_once(hall: Fanout) -> None:
    clients = [hall.subscribe("a") for _ in range(4)]
    with pytest.raises(StreamsExhaustedError) as refused:
        hall.subscribe("a")
    assert (refused.value.scope, refused.value.limit) == ("organisation", 4)
    clients += [hall.subscribe("b") for _ in range(4)]
    with pytest.raises(StreamsExhaustedError) as refused:
        hall.subscribe("c")
    assert refused.value.scope == "process"
    for client in clients:
        client.close()
        client.close()
    assert hall.clients == 0
    hall.subscribe("a").close()


@pytest.mark.req("C9", "A21")
def test_a_client_of_the_formation_takes_no_place_of_another(hall: Fanout) -> None:
    flood = [hall.subscribe("formation", client_id="a") for _ in range(4)]
    with pytest.raises(StreamsExhaustedError) as refused:
        hall.subscribe("formation", client_id="a")
    assert (refused.value.scope, refused.value.is_chat) == ("client", True)
    with (
        hall.subscribe("formation", client_id="b"),
        hall.subscribe("formation"),
        hall.subscribe("a"),
    ):
        assert hall.clients == 7
    for client in flood:
        client.close()
    hall.subscribe("formation", client_id="a").close()
    assert hall.clients == 0


@pytest.mark.req("A21")
def test_a_hundred_organisations_come_and_go_with_one_thread(redis: Redis, queue: Queue) -> None:
    before = set(threading.enumerate())

    def readers() -> int:
        return [one.name for one in set(threading.enumerate()) - before].count("event-reader")

    hall = Fanout(Events(redis), limit=500, limit_per_org=4)
    for _ in range(3):
        clients = [hall.subscribe(f"org-{n}") for n in range(100)]
        for number in range(0, 100, 9):
            queue.submit(new_job(org_id=f"org-{number}"))
            assert len(heard(clients[number], 1)) == 1
        for client in clients:
            client.close()
        assert readers() == 1
    hall.close()
    wait_until(lambda: readers() == 0, 5, "the reader ends")


@pytest.mark.req("A21")
@pytest.mark.case("SSE-07")
def test_a_client_that_takes_nothing_is_dropped_and_only_it(hall: Fanout, queue: Queue) -> None:
    dropped = threading.Event()
    slow = hall.subscribe("acme", on_drop=dropped.set)
    with hall.subscribe("acme") as quick:
        told: list[int] = []
        for _ in range(fanout.QUEUE_MAX // 100 + 3):
            for _ in range(100):
                queue.submit(new_job())
            told += events_of(heard(quick, 100))
        assert told == list(range(1, len(told) + 1))
        assert dropped.is_set()
        assert slow.is_over
        assert slow.take(0.1) == []
    slow.close()


@pytest.mark.req("A21")
def test_a_store_that_lost_its_data_is_a_gap_and_then_goes_on(
    hall: Fanout, queue: Queue, redis: Redis
) -> None:
    with hall.subscribe("acme") as client:
        for _ in range(5):
            queue.submit(new_job())
        heard(client, 5)
        redis.flushall()
        (gap,) = heard(client, 1)
        assert (gap.gap, gap.seq) == (Gap.UNKNOWN_ID, 0)
        queue.submit(new_job())
        assert events_of(heard(client, 1)) == [1]


@pytest.mark.req("A21")
def test_who_joins_after_a_loss_misses_nothing_and_the_others_are_told(
    hall: Fanout, queue: Queue, redis: Redis
) -> None:
    with hall.subscribe("acme") as first:
        for _ in range(3):
            queue.submit(new_job())
        heard(first, 3)
        redis.flushall()
        with hall.subscribe("acme") as second:
            for _ in range(4):
                queue.submit(new_job())
            assert events_of(heard(second, 4)) == [1, 2, 3, 4]
            told = heard(first, 5)
            assert told[0].gap is Gap.UNKNOWN_ID
            assert events_of(told) == [1, 2, 3, 4]


@pytest.mark.req("A21")
def test_a_redis_that_was_restarted_is_a_gap(tmp_path: Path) -> None:
    server = start_redis(tmp_path, aof=True)
    redis = connect(server.url)
    queue = Queue(Scripts(redis, queue_name=QUEUE_NAME), ticket_cap=TICKET_CAP)
    hall = Fanout(Events(redis), limit=8, limit_per_org=4)
    try:
        with hall.subscribe("acme") as client:
            queue.submit(new_job())
            heard(client, 1)
            server.kill()
            server.start()
            items = heard(client, 1, within_s=15)
            assert items[0].gap is Gap.UNKNOWN_ID
            queue.submit(new_job())
            assert events_of(heard(client, 1)) == [2]
    finally:
        hall.close()
        redis.close()
        server.stop()


def follower(last_seen: int | None = None, **changes: object) -> sse.Follower:
    values: dict[str, object] = {
        "wanted": lambda _event: True,
        "last_seen": last_seen,
        "is_gone": lambda: False,
        "is_allowed": lambda: True,
    }
    return sse.Follower(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.req("A21")
def test_a_quiet_stream_sends_comments_and_ends_with_its_key(
    hall: Fanout, runtime: Runtime
) -> None:
    answers = iter([True, True, False])
    frames = list(
        sse.stream(
            runtime.events,
            hall.subscribe("acme"),
            follower(is_allowed=lambda: next(answers)),
            comment_every_s=0.02,
        )
    )
    assert frames[1:] == [sse.COMMENT, sse.COMMENT]
    assert hall.clients == 0
    assert sse.COMMENT_EVERY_S == 15


@pytest.mark.req("A21")
def test_a_stream_ends_when_its_client_is_gone(hall: Fanout, runtime: Runtime) -> None:
    frames = list(
        sse.stream(runtime.events, hall.subscribe("acme"), follower(is_gone=lambda: True))
    )
    assert len(frames) == 1
    assert hall.clients == 0


class LateEvents(Events):
    """The stream as a process reads it that lags behind, until it is let go."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.may_read = threading.Event()

    def read(self, positions: Mapping[str, int], *, block_ms: int) -> dict[str, list[Event]]:
        if not self.may_read.wait(block_ms / 1000):
            return {}
        return super().read(positions, block_ms=block_ms)


@pytest.mark.req("A21")
def test_a_client_that_saw_more_at_another_process_gets_nothing_twice(
    redis: Redis, queue: Queue
) -> None:
    events = LateEvents(redis)
    hall = Fanout(events, limit=2, limit_per_org=2)
    with hall.subscribe("acme"):
        for _ in range(4):
            queue.submit(new_job())
        client = hall.subscribe("acme")
        assert client.joined_at == 0
        frames = sse.stream(events, client, follower(last_seen=2))
        assert next(frames).startswith(b"retry:")
        events.may_read.set()
        assert re.findall(rb"id: (\d+)", next(frames)) == [b"3", b"4"]
        frames.close()
    assert hall.clients == 0
    hall.close()


def test_the_shipped_limits_leave_threads_to_requests() -> None:
    shipped = Settings()
    assert shipped.stream_limit <= shipped.web_threads - 8
    assert shipped.stream_limit_per_org < shipped.stream_limit
    assert keys.EVENTS_KEPT > fanout.QUEUE_MAX
