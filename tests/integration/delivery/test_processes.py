"""Who posts in a deployment, and what if it dies? With the processes as they are run. (C16, C17)"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from jobs.domain.delivery import DeliveryState
from jobs.runtime import Runtime
from jobs.store.deliveries import DeliveryView
from jobs.tickets import DELIVER
from tests.support.clock import start_scheduler, wait_for_ticks
from tests.support.delivery_times import lease_ends
from tests.support.ended_chains import KEY
from tests.support.processes import RQ_CLASSES, Fleet, Process, fleet, rq_command
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import WebhookReceiver, hang

pytestmark = pytest.mark.req("C16", "C17")
End = Callable[..., str]
SETTINGS = {"webhook_networks": "127.0.0.0/8", "formation_keys": KEY}
DELIVERY_LIST = "rq:queue:genqueue-deliveries"


@pytest.fixture
def ships(redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(redis_url, tmp_path) as running:
        yield running


@pytest.fixture
def scheduler(ships: Fleet, redis: Redis) -> Process:
    return start_scheduler(ships, redis, **SETTINGS)


@pytest.mark.usefixtures("scheduler")
def test_a_ticket_has_the_scheduler_post_at_once_and_leaves_nothing_at_rq(
    runtime: Runtime,
    redis: Redis,
    receiver: WebhookReceiver,
    end: End,
    view: Callable[[str], DeliveryView],
) -> None:
    delivery_id = end(receiver.url())
    runtime.delivery_tickets.issue()

    wait_until(lambda: view(delivery_id).state is DeliveryState.DELIVERED, 4, "it is delivered")

    assert len(receiver.received) == 1
    wait_until(lambda: not redis.llen(DELIVERY_LIST), 5, "the ticket is taken")
    wait_until(
        lambda: (
            not [
                name
                for name in redis.scan_iter("rq:job:*")
                if redis.hget(name, "origin") == "genqueue-deliveries"
            ]
        ),
        5,
        "the ticket is forgotten",
    )


@pytest.mark.usefixtures("scheduler")
def test_without_a_ticket_the_tick_finds_it(receiver: WebhookReceiver, end: End) -> None:
    end(receiver.url())

    wait_until(lambda: len(receiver.received) == 1, 8, "it is posted")


@pytest.mark.case("WH-05")
def test_kill_9_between_post_and_settle_sends_the_same_bytes_under_the_same_id_once_more(
    runtime: Runtime,
    ships: Fleet,
    redis: Redis,
    scheduler: Process,
    receiver: WebhookReceiver,
    end: End,
    view: Callable[[str], DeliveryView],
) -> None:
    receiver.answer_next(hang)
    delivery_id = end(receiver.url())
    runtime.delivery_tickets.issue()
    wait_until(lambda: len(receiver.received) == 1, 8, "it is posted")

    scheduler.signal_group(signal.SIGKILL)
    scheduler.wait(10)
    lease_ends(redis, delivery_id)
    start_scheduler(ships, redis, **SETTINGS)

    wait_until(lambda: view(delivery_id).state is DeliveryState.DELIVERED, 10, "it is delivered")
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == delivery_id
    assert first.body == second.body


def test_of_two_schedulers_each_delivery_is_posted_by_one(
    runtime: Runtime, ships: Fleet, redis: Redis, receiver: WebhookReceiver, end: End
) -> None:
    for _ in range(2):
        start_scheduler(ships, redis, **SETTINGS)
    ids = []
    for _ in range(40):
        ids.append(end(receiver.url()))
        runtime.delivery_tickets.issue()

    wait_until(lambda: len(receiver.received) >= 40, 15, "all are posted")

    wait_until(
        lambda: {view.state for view in runtime.deliveries.recent()} == {DeliveryState.DELIVERED},
        5,
        "all are settled",
    )
    counts = Counter(got.headers["webhook-id"] for got in receiver.received)
    assert counts == Counter(ids)


def test_a_scheduler_that_is_stopped_settles_what_is_in_flight(
    runtime: Runtime,
    scheduler: Process,
    receiver: WebhookReceiver,
    end: End,
    view: Callable[[str], DeliveryView],
) -> None:
    def slow(handler: object) -> None:
        handler.pause(2.5)  # type: ignore[attr-defined]
        handler.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # type: ignore[attr-defined]

    receiver.answer_next(slow)
    delivery_id = end(receiver.url())
    runtime.delivery_tickets.issue()
    wait_until(lambda: len(receiver.received) == 1, 8, "it is posted")

    scheduler.signal(signal.SIGTERM)

    assert scheduler.wait(8) == 0, scheduler.output()
    assert view(delivery_id).state is DeliveryState.DELIVERED


@pytest.mark.req("X7")
def test_a_plain_rq_worker_on_the_queue_posts_what_is_due(
    runtime: Runtime, ships: Fleet, receiver: WebhookReceiver, end: End
) -> None:
    for _ in range(3):
        end(receiver.url())
    runtime.delivery_tickets.issue()

    worker = ships.start(
        rq_command("worker", "genqueue-deliveries", "--burst", *RQ_CLASSES), **SETTINGS
    )

    assert worker.wait(40) == 0, worker.output()
    assert len(receiver.received) == 3, worker.output()


def test_tickets_that_nobody_takes_do_not_pile_up(runtime: Runtime, redis: Redis) -> None:
    for _ in range(40):
        runtime.delivery_tickets.issue()

    assert redis.llen(DELIVERY_LIST) == runtime.settings.ticket_cap
    assert {redis.hget(name, "description") for name in redis.scan_iter("rq:job:*")} == {
        "looking for work"
    }
    assert DELIVER == "jobs.entrypoints.deliver"


def test_a_forged_ticket_runs_nothing_and_does_not_stop_the_others(
    runtime: Runtime, redis: Redis, ships: Fleet, receiver: WebhookReceiver, end: End
) -> None:
    process = start_scheduler(ships, redis, **SETTINGS)
    redis.hset("rq:job:evil", mapping={"data": "x", "origin": "genqueue-deliveries"})
    redis.rpush(DELIVERY_LIST, "evil", "not there")
    end(receiver.url())
    runtime.delivery_tickets.issue()

    wait_until(lambda: len(receiver.received) == 1, 8, "it is posted")
    wait_for_ticks(redis, within_s=10, process=process)


def test_a_redis_that_takes_no_writes_for_a_while_is_outlived(
    runtime: Runtime,
    redis: Redis,
    scheduler: Process,
    receiver: WebhookReceiver,
    end: End,
    view: Callable[[str], DeliveryView],
) -> None:
    def redis_goes_away(handler: object) -> None:
        runtime.redis.execute_command("CLIENT", "PAUSE", "18000", "WRITE")
        handler.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # type: ignore[attr-defined]

    receiver.answer_next(redis_goes_away)
    delivery_id = end(receiver.url())
    runtime.delivery_tickets.issue()

    wait_until(lambda: len(receiver.received) == 1, 8, "it is posted")
    wait_until(
        lambda: view(delivery_id).state is DeliveryState.DELIVERED, 40, "it is settled afterwards"
    )
    assert len(receiver.received) == 1
    assert scheduler.is_running
