"""Whose turn is it at a host that several owners, or several hooks of one, post to? (C17)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from jobs.delivery.pool import DeliveryPool
from jobs.domain.client_keys import client_id_of
from jobs.domain.delivery import DeliveryKind, DeliveryState, Tried, judge
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store.deliveries import Taken
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.support.delivery_times import due_now, lease_ends
from tests.support.ended_chains import CLIENT, KEY, end_chain
from tests.support.factories import new_id
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import Handler, WebhookReceiver, hang, status

pytestmark = pytest.mark.req("C17")
End = Callable[..., str]
OTHER_KEY = "fmc_fedcba9876543210"
HOST = "https://shared.example"


def take(runtime: Runtime, count: int = 50) -> tuple[Taken, ...]:
    return runtime.deliveries.take(new_id(), count).deliveries


def settle(runtime: Runtime, taken: Taken, code: int) -> None:
    verdict = judge(Tried(code), DeliveryKind.WEBHOOK, taken.step, taken.failures, lambda _: 0.0)
    assert runtime.deliveries.settle(taken, verdict, str(code), 1, b"{}").answer is Answer.OK


def by_path(handler: Handler) -> None:
    """500 at /bad, 200 at all else."""
    status(500 if handler.path.startswith("/bad") else 200)(handler)


def test_hooks_of_one_client_that_fail_do_not_delay_another_client_at_the_same_host(
    make_runtime: Callable[..., Runtime],
    receiver: WebhookReceiver,
    running: Callable[[DeliveryPool], DeliveryPool],
) -> None:
    both = make_runtime(webhook_networks=LOOPBACK, formation_keys=(KEY, OTHER_KEY))
    receiver.answer_all(by_path)
    for number in range(6):
        end_chain(both.turns, both.queue, receiver.url(path=f"/bad/{number % 3}"))
    pool = running(pool_of(both))
    pool.nudge()
    wait_until(lambda: len(receiver.received) >= 2, 5, "they fail")

    end_chain(both.turns, both.queue, receiver.url(path="/good"), client_id=client_id_of(OTHER_KEY))
    pool.nudge()

    wait_until(lambda: "/good" in [got.path for got in receiver.received], 3, "it is delivered")


def test_a_hook_that_fails_does_not_delay_another_hook_of_its_client_at_the_same_host(
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    running: Callable[[DeliveryPool], DeliveryPool],
    end: End,
) -> None:
    receiver.answer_all(by_path)
    for number in range(6):
        end(receiver.url(path=f"/bad?{number}"))
    end(receiver.url(path="/good"))
    running(pool)

    pool.nudge()

    wait_until(lambda: "/good" in [got.path for got in receiver.received], 3, "it is delivered")
    assert len([got for got in receiver.received if got.path.startswith("/bad")]) <= 2


def test_one_host_has_8_posts_in_flight_however_many_owners_it_has_and_each_of_those_2(
    runtime: Runtime, end: End
) -> None:
    for owner in range(10):
        for number in range(5):
            end(f"{HOST}/{number}", client_id=f"{owner:016}")
    end("https://other.example/")

    taken = take(runtime)

    assert Counter(each.url.startswith(HOST) for each in taken) == {True: 8, False: 1}
    assert max(Counter(each.owner for each in taken if HOST in each.url).values()) <= 2
    assert take(runtime) == ()


def test_owners_take_turns_at_a_host_that_is_full_however_much_one_of_them_has(
    runtime: Runtime, end: End
) -> None:
    owners = [f"{number:016}" for number in range(9)]
    for owner in owners[:8]:
        for number in range(6):
            end(f"{HOST}/{number}", client_id=owner)
    in_flight = list(take(runtime))
    assert len(in_flight) == 8
    end(f"{HOST}/late", client_id=owners[8])

    served: list[str] = []
    for _ in range(9):
        settle(runtime, in_flight.pop(0), 200)
        (taken,) = take(runtime)
        served.append(taken.owner)
        in_flight.append(taken)

    assert owners[8] in served


def test_hooks_take_turns_however_much_one_of_them_has(runtime: Runtime, end: End) -> None:
    for path in ["/much"] * 10 + ["/little"]:
        end(HOST + path)

    paths = [taken.url.removeprefix(HOST) for taken in take(runtime)]

    assert sorted(paths) == ["/little", "/much"]


def test_a_host_at_which_several_hooks_in_a_row_fail_gets_one_post_in_5_s_of_that_owner(
    runtime: Runtime, end: End
) -> None:
    for number in range(50):
        end(f"{HOST}/{number}")
    other = end(f"{HOST}/", client_id="f" * 16)
    for taken in take(runtime):
        settle(runtime, taken, 500)

    found = runtime.deliveries.take(new_id(), 50)

    assert found.deliveries == ()
    assert found.due_in_ms is not None
    assert 4_000 < found.due_in_ms <= 5_000
    assert runtime.deliveries.find(other).tries == 1  # type: ignore[union-attr]
    (waits, *_) = runtime.deliveries.list(CLIENT, "user-1", state=DeliveryState.PENDING)
    due_now(runtime.redis, waits.id)
    (one,) = take(runtime)
    settle(runtime, one, 200)
    assert len(take(runtime)) == 2, "one that goes well opens it"


def test_posts_that_nobody_settles_leave_a_full_host_when_their_leases_end(
    runtime: Runtime, end: End
) -> None:
    for owner in range(10):
        end(f"{HOST}/", client_id=f"{owner:016}")
    first = take(runtime)
    assert len(first) == 8

    for taken in first:
        lease_ends(runtime.redis, taken.id)

    second = take(runtime)
    assert len(second) == 8


def test_8_threads_at_most_hang_at_a_host_of_many_owners(
    make_runtime: Callable[..., Runtime],
    receiver: WebhookReceiver,
    running: Callable[[DeliveryPool], DeliveryPool],
) -> None:
    client_keys = tuple(f"fmc_{number:016}" for number in range(20))
    many = make_runtime(webhook_networks=LOOPBACK, formation_keys=client_keys)
    receiver.answer_all(hang)
    for number, key in enumerate(client_keys):
        url = receiver.url(path=f"/{number}")
        end_chain(many.turns, many.queue, url, client_id=client_id_of(key))
    pool = running(pool_of(many, within_s=4.0))

    pool.nudge()

    wait_until(lambda: len(receiver.received) == 8, 5, "it is full")
    assert take(many) == ()
