"""Is what is replayed sent at once, whatever is going on with it? (C17)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryState, Tried, TryError, judge
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.deliveries import DeliveryView, SettledDelivery, Taken
from tests.support.delivery_times import due_now, lease_ends
from tests.support.ended_chains import CLIENT, USER
from tests.support.factories import new_id
from tests.support.webhook_receiver import WebhookReceiver, status

pytestmark = pytest.mark.req("C17")
End = Callable[..., str]
View = Callable[[str], DeliveryView]


def test_a_replay_sends_the_same_id_and_body_again_whatever_became_of_it(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivered, gone = end(receiver.url()), end(receiver.url())
    receiver.answer_next(status(200), status(410))
    pool.drain()

    answers = [runtime.deliveries.replay(each, CLIENT, USER) for each in (delivered, gone)]
    pool.drain()

    assert answers == [Answer.OK, Answer.OK]
    assert len(receiver.received) == 4
    for each in (delivered, gone):
        bodies = {g.body for g in receiver.received if g.headers["webhook-id"] == each}
        assert len(bodies) == 1
        assert (view(each).state, view(each).tries) == (DeliveryState.DELIVERED, 2)


def test_a_replay_begins_a_fresh_day_at_once_though_its_receiver_pauses(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url())
    receiver.answer_all(status(500))
    for _ in range(5):
        pool.drain()
        due_now(runtime.redis, delivery_id)
    pool.drain()
    assert view(delivery_id).tries == 6

    runtime.deliveries.replay(delivery_id, CLIENT, USER)
    pool.drain()

    seen = view(delivery_id)
    assert (seen.state, seen.tries) == (DeliveryState.PENDING, 7)
    assert seen.due_at_ms is not None
    assert seen.due_at_ms - seen.log[0].at_ms <= 6_000, "the ladder begins anew"


def taken_at_the_last_step(runtime: Runtime, end: End) -> Taken:
    """A delivery in flight, whose next wait would be of 10 h."""
    delivery_id = end("https://hook.example/")
    runtime.redis.hset(keys.DELIVERY(delivery_id), "step", 7)
    (taken,) = runtime.deliveries.take(new_id(), 1).deliveries
    return taken


@pytest.mark.parametrize(
    "tried", [Tried(500), Tried(410), Tried(error=TryError.TIMEOUT), Tried(error=TryError.NO_KEY)]
)
def test_a_replay_during_a_flight_that_fails_is_sent_at_once_with_a_fresh_ladder(
    runtime: Runtime, end: End, view: View, tried: Tried
) -> None:
    taken = taken_at_the_last_step(runtime, end)

    assert runtime.deliveries.replay(taken.id, CLIENT, USER) is Answer.OK
    assert runtime.deliveries.take(new_id(), 1).deliveries == ()
    settled = settle(runtime, taken, tried)

    assert settled.due_in_ms == 0
    assert (view(taken.id).state, view(taken.id).tries) == (DeliveryState.PENDING, 1)
    (again,) = runtime.deliveries.take(new_id(), 1).deliveries
    assert (again.id, again.step) == (taken.id, 0)
    settle(runtime, again, Tried(410))
    assert view(taken.id).state is DeliveryState.GONE, "the replay was used up"


def test_a_replay_during_a_flight_that_delivers_is_not_sent_once_more(
    runtime: Runtime, end: End, view: View
) -> None:
    taken = taken_at_the_last_step(runtime, end)

    runtime.deliveries.replay(taken.id, CLIENT, USER)
    settled = settle(runtime, taken, Tried(200))

    assert settled.due_in_ms is None
    assert view(taken.id).state is DeliveryState.DELIVERED


def test_a_replay_during_a_flight_that_nobody_settles_still_begins_the_ladder_anew(
    runtime: Runtime, end: End, view: View
) -> None:
    taken = taken_at_the_last_step(runtime, end)

    runtime.deliveries.replay(taken.id, CLIENT, USER)
    lease_ends(runtime.redis, taken.id)
    (again,) = runtime.deliveries.take(new_id(), 1).deliveries

    assert again.step == 0
    settle(runtime, again, Tried(410))
    assert view(taken.id).state is DeliveryState.GONE


def test_a_try_without_a_lookup_leaves_the_ladder_where_it_was(runtime: Runtime, end: End) -> None:
    taken = taken_at_the_last_step(runtime, end)

    settled = settle(runtime, taken, Tried(error=TryError.NO_LOOKUP))

    assert settled.due_in_ms is not None
    assert settled.due_in_ms <= 6_000
    due_now(runtime.redis, taken.id)
    (again,) = runtime.deliveries.take(new_id(), 1).deliveries
    assert (again.step, again.failures) == (7, 0)


def settle(runtime: Runtime, taken: Taken, tried: Tried) -> SettledDelivery:
    """Say what came of it, as one who posted does."""
    verdict = judge(tried, taken.kind, taken.step, taken.failures, lambda spread: spread)
    return runtime.deliveries.settle(taken, verdict, tried.entry, 5, b"{}")
