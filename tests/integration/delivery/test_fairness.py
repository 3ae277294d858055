"""Does one receiver hold up the others, and does a delivery get lost or doubled? (C17)"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryState, Verdict
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.deliveries import Deliveries, DeliveryView, Taken
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.integration.service.round_trips import counting_proxy
from tests.support.delivery_times import due_now, lease_ends, look_now, places_of
from tests.support.ended_chains import KEY, end_chain
from tests.support.factories import new_id
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import (
    WebhookReceiver,
    hang,
    status,
    trickle_header,
    webhook_receiver,
)

pytestmark = pytest.mark.req("C17")
End = Callable[..., str]
DONE = Verdict(DeliveryState.DELIVERED, pause_ms=0)
AGAIN = Verdict(DeliveryState.PENDING, after_ms=5_000, pause_ms=5_000)


@pytest.fixture
def receivers() -> Iterator[list[WebhookReceiver]]:
    with ExitStack() as stack:
        yield [stack.enter_context(webhook_receiver()) for _ in range(5)]


def take(deliveries: Deliveries, count: int = 50) -> tuple[Taken, ...]:
    return deliveries.take(new_id(), count).deliveries


def settle(deliveries: Deliveries, taken: Taken, verdict: Verdict = DONE) -> Answer:
    return deliveries.settle(taken, verdict, "200", 1, b"{}").answer


@pytest.mark.case("WH-05")
@pytest.mark.parametrize("reply", [hang, trickle_header])
def test_50_deliveries_to_a_receiver_that_hangs_do_not_hold_up_50_to_others(
    runtime: Runtime,
    receivers: list[WebhookReceiver],
    running: Callable[[DeliveryPool], DeliveryPool],
    end: End,
    reply: Callable[..., None],
) -> None:
    hung, *well = receivers
    hung.answer_all(reply)
    for _ in range(50):
        end(hung.url())
    for number in range(50):
        end(well[number % 4].url())
    pool = running(pool_of(runtime))
    began_s = time.monotonic()

    pool.nudge()

    wait_until(lambda: sum(len(r.received) for r in well) == 50, 10, "all others")
    assert time.monotonic() - began_s < 8
    assert len(hung.received) <= 2
    ids = Counter(got.headers["webhook-id"] for each in well for got in each.received)
    assert set(ids.values()) == {1}


def test_a_receiver_that_failed_gets_one_at_a_time_until_it_takes_one(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    ids = [end(receiver.url()) for _ in range(10)]
    receiver.answer_all(status(500))
    pool.drain()
    assert len(receiver.received) <= 2

    due_now(runtime.redis, ids[0])
    assert len(take(runtime.deliveries)) == 1

    receiver.answer_all(None)
    runtime.redis.delete(keys.HEALTH(places_of(runtime.redis, ids[0])[0]))
    look_now(runtime.redis, ids[0])
    pool.drain()
    states = [view.state for view in runtime.deliveries.recent()]
    assert Counter(states)[DeliveryState.DELIVERED] >= 7


def test_two_at_a_time_go_to_a_receiver_however_its_host_is_spelled(
    runtime: Runtime, end: End
) -> None:
    for url in (
        "https://hook.example/a",
        "https://HOOK.example:443/b",
        "https://hook.example.?c",
        "https://hook.example#d",
    ):
        end(url)
    end("https://hook.example:444/e")
    end("http://hook.example/f")

    taken = take(runtime.deliveries)

    assert sorted(each.url[-1] for each in taken) == ["a", "b", "e", "f"]
    assert runtime.redis.zcard(keys.ORIGINS()) == 3


@pytest.mark.case("WH-05")
def test_a_delivery_whose_lease_ended_is_taken_again_and_only_the_new_holder_settles(
    runtime: Runtime, end: End, view: Callable[[str], DeliveryView]
) -> None:
    delivery_id = end("https://hook.example/")
    (first,) = take(runtime.deliveries)
    assert take(runtime.deliveries) == ()

    lease_ends(runtime.redis, first.id)
    (second,) = take(runtime.deliveries)

    assert (first.id, first.first_at_ms) == (second.id, second.first_at_ms)
    assert settle(runtime.deliveries, first) is Answer.LEASE_LOST
    assert view(delivery_id).state is DeliveryState.PENDING
    assert settle(runtime.deliveries, second) is Answer.OK
    seen = view(delivery_id)
    assert (seen.state, seen.tries) == (DeliveryState.DELIVERED, 2)
    assert [line.entry for line in seen.log] == ["200", "unsettled"]


def test_a_take_and_a_settle_can_be_sent_twice(
    runtime: Runtime, end: End, view: Callable[[str], DeliveryView]
) -> None:
    ids = {end("https://hook.example/"), end("https://two.example/")}
    once = runtime.deliveries.take("a-token", 10).deliveries
    assert {taken.id for taken in once} == ids

    assert runtime.deliveries.take("a-token", 10).deliveries == once
    taken = once[0]
    assert [settle(runtime.deliveries, taken, AGAIN) for _ in range(2)] == [Answer.OK] * 2

    assert view(taken.id).tries == 1
    assert runtime.deliveries.take("a-token", 10).deliveries == once[1:]


def test_settling_what_is_gone_changes_nothing(runtime: Runtime, end: End) -> None:
    end("https://hook.example/")
    (taken,) = take(runtime.deliveries)
    runtime.redis.flushall()

    assert settle(runtime.deliveries, taken) is Answer.MISSING
    assert runtime.redis.keys("*") == []


def test_the_log_keeps_20_tries(
    runtime: Runtime, end: End, view: Callable[[str], DeliveryView]
) -> None:
    delivery_id = end("https://hook.example/")
    for _ in range(25):
        runtime.deliveries.replay(delivery_id, view(delivery_id).owner, view(delivery_id).user)
        (taken,) = take(runtime.deliveries)
        settle(runtime.deliveries, taken, AGAIN)

    seen = view(delivery_id)
    assert (seen.tries, len(seen.log)) == (25, 20)


def test_every_key_ends_and_what_ended_leaves_the_sets(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    waits = end("https://hook.example/")
    done = end(receiver.url())
    receiver.answer_next(status(200))
    (taken,) = (each for each in take(runtime.deliveries) if each.id == done)
    settle(runtime.deliveries, taken)
    redis, day_ms = runtime.redis, 86_400_000

    for each, most_ms in ((waits, 31 * day_ms), (done, 30 * day_ms)):
        assert most_ms - 60_000 < redis.pttl(keys.DELIVERY(each)) <= most_ms
    for key in (keys.DELIVERY_BODY(done), keys.DELIVERY_LOG(done)):
        assert 30 * day_ms - 60_000 < redis.pttl(key) <= 30 * day_ms
    assert redis.pttl(keys.ALL_DELIVERIES()) > 0
    assert redis.zrange(keys.ORIGINS(), 0, -1) == ["https://hook.example:443"]
    for name in redis.keys("*http*"):
        assert "127.0.0.1" not in name
        assert "posting" not in name or redis.pttl(name) > 0


def test_round_trips_of_a_delivery(
    make_runtime: Callable[..., Runtime], runtime: Runtime, receivers: list[WebhookReceiver]
) -> None:
    """A first try takes (which all that are due share), reads the outcome, and settles; a further
    one does not read."""
    port = runtime.redis.connection_pool.connection_kwargs["port"]
    settings = {"webhook_networks": LOOPBACK, "formation_keys": (KEY,)}
    with counting_proxy(port) as proxy:
        counted = make_runtime(redis_url=f"redis://127.0.0.1:{proxy.port}/0", **settings)
        pool = pool_of(counted)

        def costs(count: int) -> int:
            """Of so many deliveries at once, two to each receiver at most."""
            for number in range(count):
                end_chain(runtime.turns, runtime.queue, receivers[number % 5].url())
            before = proxy.round_trips
            assert pool.drain() == count
            return proxy.round_trips - before

        costs(10)  # connections open, and the scripts are loaded
        assert costs(1) <= 4
        assert costs(10) <= 3 * 10 + 2
        receivers[0].answer_next(status(500))
        costs(1)
        (failed,) = runtime.deliveries.recent(1)
        runtime.deliveries.replay(failed.id, failed.owner, failed.user)
        before = proxy.round_trips
        assert pool.drain() == 1
        assert proxy.round_trips - before == 2
