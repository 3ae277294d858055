"""Do name lookups that hang hold up deliveries to names that are well? (C17)"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.delivery.assembly import assemble_pool
from jobs.delivery.lookup_shares import LookupShares
from jobs.delivery.pool import DeliveryPool
from jobs.delivery.poster import Poster
from jobs.domain.delivery import DeliveryState, Tried, TryError
from jobs.providers.network import Address
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.deliveries import DeliveryView
from tests.integration.delivery.conftest import LOOPBACK
from tests.support.delivery_times import places_of
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = pytest.mark.req("C17")
TIMED_OUT = Tried(error=TryError.TIMEOUT)
NO_LOOKUP = Tried(error=TryError.NO_LOOKUP)


class Resolver:
    """Answers this machine; a name that begins with `slow` only when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.hanging: list[str] = []

    def __call__(self, host: str, port: int) -> list[Address]:
        if host.startswith("slow"):
            self.hanging.append(host)
            self.let_go.wait(30)
        return [(socket.AF_INET, ("127.0.0.1", port))]


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.let_go.set()


@pytest.fixture
def hang(resolver: Resolver) -> Iterator[Callable[..., None]]:
    """Leaves lookups of these names behind, which `poster` did for an owner."""
    with ThreadPoolExecutor(64) as threads:

        def start(poster: Poster, names: list[str], owner: str) -> None:
            wanted = len(resolver.hanging) + len(names)
            for name in names:
                threads.submit(poster.post, f"http://{name}/", {}, b"{}", owner=owner)
            wait_until(lambda: len(resolver.hanging) == wanted, 5, "they hang")

        yield start
        resolver.let_go.set()


def names(count: int) -> list[str]:
    return [f"slow{number}.example" for number in range(count)]


def test_32_lookups_that_hang_do_not_hold_up_a_post_to_another_host(
    receiver: WebhookReceiver, resolver: Resolver, hang: Callable[..., None]
) -> None:
    poster = Poster(LOOPBACK, lookup=resolver)
    hang(poster, names(32), "one")
    began_s = time.monotonic()

    assert poster.post(receiver.url("good.example"), {}, b"{}", owner="two") == Tried(200)

    assert time.monotonic() - began_s < 1


def test_who_finds_the_share_of_its_owner_taken_is_not_said_to_be_late_and_others_go_on(
    receiver: WebhookReceiver, resolver: Resolver, hang: Callable[..., None]
) -> None:
    poster = Poster(LOOPBACK, lookup=resolver, shares=LookupShares(owner_max=3))
    hang(poster, names(3), "one")
    url = receiver.url("good.example")

    assert poster.post(url, {}, b"{}", owner="one") == NO_LOOKUP
    assert poster.post(url, {}, b"{}", owner="two") == Tried(200)
    resolver.let_go.set()
    assert poster.post(url, {}, b"{}", owner="one") == Tried(200)


def test_where_all_slots_are_taken_nobody_is_said_to_be_late(
    receiver: WebhookReceiver, resolver: Resolver, hang: Callable[..., None]
) -> None:
    poster = Poster(LOOPBACK, lookup=resolver, shares=LookupShares(all_max=3))
    hang(poster, names(3), "one")

    assert poster.post(receiver.url("good.example"), {}, b"{}", owner="two") == NO_LOOKUP
    assert poster.post(receiver.url(), {}, b"{}", owner="two") == Tried(200), "an address"


def test_a_name_whose_lookups_hang_holds_its_share_of_them_and_is_late(
    resolver: Resolver, hang: Callable[..., None]
) -> None:
    poster = Poster(LOOPBACK, lookup=resolver, shares=LookupShares(host_max=2))
    hang(poster, ["slow.example"] * 2, "one")

    assert poster.post("http://slow.example:81/", {}, b"{}", owner="two") == TIMED_OUT
    assert resolver.hanging == ["slow.example"] * 2


def test_a_delivery_without_a_lookup_pauses_nobody_and_is_tried_again_soon(
    runtime: Runtime,
    receiver: WebhookReceiver,
    resolver: Resolver,
    hang: Callable[..., None],
    end: Callable[..., str],
    view: Callable[[str], DeliveryView],
    running: Callable[[DeliveryPool], DeliveryPool],
) -> None:
    poster = Poster(LOOPBACK, lookup=resolver, shares=LookupShares(all_max=2))
    hang(poster, names(2), "one")
    delivery_id = end(receiver.url("good.example"))
    pool = running(
        assemble_pool(runtime.settings, runtime.deliveries, runtime.turns, poster=poster)
    )

    pool.nudge()

    wait_until(lambda: view(delivery_id).tries == 1, 5, "there is no slot for it")
    seen = view(delivery_id)
    assert (seen.state, seen.log[0].entry) == (DeliveryState.PENDING, "no_lookup")
    for name in places_of(runtime.redis, delivery_id):
        assert not runtime.redis.exists(keys.HEALTH(name))
    resolver.let_go.set()
    wait_until(lambda: view(delivery_id).state is DeliveryState.DELIVERED, 8, "it is delivered")
