"""Can an operator see that what is posted arrives, and alert where it does not? (C17, X10)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from jobs import metrics
from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.runtime import Runtime
from jobs.store import keys
from service.app import create_app
from service.cli.main import genqueue
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.stored_steps import new_step
from tests.support.webhook_receiver import WebhookReceiver, status, webhook_receiver

pytestmark = pytest.mark.req("C17", "X10")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as running:
        yield running


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return make_runtime(webhook_networks=LOOPBACK, formation_keys=(KEY,))


@pytest.fixture
def pool(runtime: Runtime) -> DeliveryPool:
    return pool_of(runtime)


def samples(runtime: Runtime) -> dict[str, float]:
    """The samples of deliveries in a scrape, by name and labels."""
    page = create_app(runtime).test_client().get("/metrics").text
    lines = (line.rpartition(" ") for line in page.splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in lines if name.startswith("genqueue_deliver")}


def told(samples: dict[str, float]) -> dict[str, float]:
    """Those that are not 0, by their shorter names."""
    return {
        name.removeprefix("genqueue_deliver").replace('"', ""): value
        for name, value in samples.items()
        if value and not name.startswith("genqueue_delivery_lateness")
    }


def queue_metrics(redis_url: str, *words: str) -> Any:
    runner = CliRunner(env={"REDIS_URL": redis_url, "COLUMNS": "250"})
    return runner.invoke(genqueue, ["queue-metrics", *words]).stdout


def test_all_figures_are_there_from_the_start(runtime: Runtime) -> None:
    found = samples(runtime)

    kinds = [kind.value for kind in DeliveryKind]
    ends = [state.value for state in DeliveryState if state is not DeliveryState.PENDING]
    expected = [f'genqueue_deliveries_pending{{kind="{kind}"}}' for kind in kinds]
    expected += [
        f'genqueue_deliveries_ended_total{{kind="{kind}",state="{state}"}}'
        for kind in kinds
        for state in ends
    ]
    expected += [f'genqueue_delivery_retries_total{{kind="{kind}"}}' for kind in kinds]
    expected += ["genqueue_delivery_origins", "genqueue_delivery_origins_due"]
    expected += ["genqueue_delivery_lateness_seconds"]
    assert found == dict.fromkeys(expected, 0.0)


def test_deliveries_are_counted_as_they_wait_fail_and_end(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    url = receiver.url()
    for _ in range(2):
        end_chain(runtime.turns, runtime.queue, url)
    step = new_step(callback_url=url)
    runtime.steps.submit(step)
    runtime.queue.cancel(step.id, "acme")
    assert told(samples(runtime)) == {
        "ies_pending{kind=webhook}": 2,
        "ies_pending{kind=wake}": 1,
        "y_origins": 1,
        "y_origins_due": 1,
    }

    pool.drain()
    failing = end_chain(runtime.turns, runtime.queue, url)
    receiver.answer_next(status(500))
    pool.drain()
    waiting = told(samples(runtime))
    assert waiting == {
        "ies_pending{kind=webhook}": 1,
        "ies_ended_total{kind=webhook,state=delivered}": 2,
        "ies_ended_total{kind=wake,state=delivered}": 1,
        "y_retries_total{kind=webhook}": 1,
        "y_origins": 1,
    }

    runtime.deliveries.replay(failing, CLIENT, USER)
    assert told(samples(runtime))["ies_pending{kind=webhook}"] == 1
    receiver.answer_next(status(410))
    pool.drain()
    runtime.deliveries.replay(failing, CLIENT, USER)
    assert told(samples(runtime))["ies_pending{kind=webhook}"] == 1
    pool.drain()
    assert told(samples(runtime)) == {
        "ies_ended_total{kind=webhook,state=delivered}": 3,
        "ies_ended_total{kind=webhook,state=gone}": 1,
        "ies_ended_total{kind=wake,state=delivered}": 1,
        "y_retries_total{kind=webhook}": 1,
    }


def test_one_that_is_given_up_is_counted(
    runtime: Runtime, redis: Redis, pool: DeliveryPool
) -> None:
    delivery_id = end_chain(runtime.turns, runtime.queue, "http://127.0.0.1:1/")
    redis.hset(keys.DELIVERY(delivery_id), "gives_up_at", 1)

    pool.drain()

    assert told(samples(runtime)) == {"ies_ended_total{kind=webhook,state=given_up}": 1}


def test_where_nobody_posts_the_lateness_grows(runtime: Runtime, redis: Redis) -> None:
    end_chain(runtime.turns, runtime.queue, "http://127.0.0.1:1/")
    (origin,) = redis.zrange(keys.ORIGINS(), 0, -1)
    redis.zincrby(keys.ORIGINS(), -90_000, origin)

    assert 90 <= samples(runtime)["genqueue_delivery_lateness_seconds"] < 120


def test_the_metrics_of_the_shell_tell_the_same(
    redis_url: str, runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    end_chain(runtime.turns, runtime.queue, receiver.url())
    pool.drain()
    end_chain(runtime.turns, runtime.queue, receiver.url())

    lines = queue_metrics(redis_url).partition("\nDeliveries\n")[2].splitlines()

    assert lines[0].split("  ")[0] == "kind"
    (webhook,) = [line.split() for line in lines if line.startswith("webhook ")]
    assert webhook == ["webhook", "1", "1", "0", "0", "0", "0"]
    assert '"origins_due": 1' in queue_metrics(redis_url, "--json")


def test_a_worker_has_figures_of_escalations_and_ended_chains() -> None:
    metrics.CHAINS_ENDED.labels("stuck").inc(0)
    metrics.ESCALATED.inc(0)

    page = metrics.page("")[0].decode()

    assert 'genqueue_chains_ended_total{state="stuck"} ' in page
    assert "genqueue_turns_escalated_total " in page
