"""What do the tests of deliveries share? A receiver, a pool in this process, ended chains."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterator

import pytest
from flask.testing import FlaskClient

from jobs.delivery.assembly import assemble_pool
from jobs.delivery.pool import DeliveryPool
from jobs.delivery.poster import Poster
from jobs.runtime import Runtime
from jobs.store.deliveries import DeliveryView
from service.app import create_app
from service.context import fanout_of
from tests.integration.service.team_caller import TeamCaller, team_caller
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.webhook_receiver import WebhookReceiver, webhook_receiver

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    """One that takes all."""
    with webhook_receiver() as running:
        yield running


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """Deliveries to this machine, signed for one client."""
    return make_runtime(webhook_networks=LOOPBACK, formation_keys=(KEY,))


@pytest.fixture
def end(runtime: Runtime) -> Callable[..., str]:
    """Ends a chain that is to be delivered to a URL."""
    return lambda url, **changes: end_chain(runtime.turns, runtime.queue, url, **changes)


@pytest.fixture
def view(runtime: Runtime) -> Callable[[str], DeliveryView]:
    """A delivery as its owner sees it."""

    def read(delivery_id: str) -> DeliveryView:
        found = runtime.deliveries.get(delivery_id, CLIENT, USER)
        assert found is not None
        return found

    return read


@pytest.fixture
def pool(runtime: Runtime) -> DeliveryPool:
    """A pool that is not started."""
    return pool_of(runtime)


def pool_of(runtime: Runtime, **options: float) -> DeliveryPool:
    """A pool of this runtime, whose posts may take `within_s`."""
    poster = Poster(runtime.settings.webhook_networks, **options)
    return assemble_pool(runtime.settings, runtime.deliveries, runtime.turns, poster=poster)


@pytest.fixture
def running() -> Iterator[Callable[[DeliveryPool], DeliveryPool]]:
    """Starts pools, and stops them at the end."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(pool: DeliveryPool) -> DeliveryPool:
        threads.append(threading.Thread(target=pool.run, args=(stop,), daemon=True))
        threads[-1].start()
        return pool

    yield start
    stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def http(runtime: Runtime) -> Iterator[FlaskClient]:
    """A client of an app over this test's runtime."""
    app = create_app(runtime)
    yield app.test_client()
    fanout_of(app).close()


@pytest.fixture
def team(http: FlaskClient, runtime: Runtime) -> TeamCaller:
    """A team that may generate."""
    return team_caller(http, runtime)
