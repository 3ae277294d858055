"""Does an operator find what is posted, of all owners, and can it be sent again? (C17)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from jobs.delivery.pool import DeliveryPool
from jobs.domain.request_ids import request_id_of
from jobs.runtime import Runtime
from tests.integration.cli.conftest import Invoke
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.stored_generations import new_generation, open_to
from tests.support.stored_steps import new_step
from tests.support.webhook_receiver import WebhookReceiver, status, webhook_receiver

pytestmark = pytest.mark.req("C17")
ReadJson = Callable[..., Any]
FIELDS = [
    *("id", "owner", "user", "ref", "kind", "state", "url", "tries", "created_at", "due_at"),
    *("gives_up_at", "ended_at", "log", "request_id"),
]


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


@pytest.fixture
def end(runtime: Runtime, receiver: WebhookReceiver) -> Callable[..., str]:
    """Ends a chain that is to be posted; answers the delivery's id."""
    return lambda **changes: end_chain(
        runtime.turns, runtime.queue, receiver.url(path="/secret-path"), **changes
    )


def step_that_ended(runtime: Runtime, url: str) -> str:
    new = new_step(callback_url=url)
    runtime.steps.submit(new)
    runtime.queue.cancel(new.id, "acme")
    return new.id


def ids(listed: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in listed]


def test_deliveries_of_all_owners_are_listed_newest_first(
    invoke_json: ReadJson,
    invoke: Invoke,
    runtime: Runtime,
    redis: Redis,
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: Callable[..., str],
) -> None:
    assert invoke("deliveries").stdout == "There are no such deliveries.\n"
    webhook = end()
    pool.drain()
    open_to(redis, "acme")
    generation = new_generation(wake_token="wake-0123456789abcdef", wake_url=receiver.url())
    runtime.generations.submit(generation)
    runtime.queue.cancel(generation.id, "acme")
    step = step_that_ended(runtime, receiver.url())

    listed = invoke_json("deliveries")

    assert list(listed[0]) == FIELDS
    assert {(one["ref"], one["owner"], one["kind"]) for one in listed} == {
        (webhook, CLIENT, "webhook"),
        (generation.id, "team:1", "wake"),
        (step, "team:1", "wake"),
    }
    assert listed[-1]["id"] == webhook
    assert ids(invoke_json("deliveries", "--state", "delivered")) == [webhook]
    assert len(invoke_json("deliveries", "--state", "pending")) == 2
    assert ids(invoke_json("deliveries", "--limit", "1")) == [listed[0]["id"]]
    table = invoke("deliveries").stdout
    assert all(one["id"] in table for one in listed)
    assert "secret-path" not in table, "where it goes is told by its host"
    assert "wake-0123456789abcdef" not in table + str(listed)


@pytest.mark.parametrize("words", [("--state", "lost"), ("--limit", "0"), ("--limit", "1001")])
def test_a_wrong_filter_is_a_usage_error(invoke: Invoke, words: tuple[str, str]) -> None:
    done = invoke("deliveries", *words)
    assert done.exit_code == 2
    assert words[0] in done.stderr


def test_a_delivery_is_shown_with_its_tries(
    invoke: Invoke,
    invoke_json: ReadJson,
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: Callable[..., str],
) -> None:
    delivery_id = end()
    receiver.answer_next(status(503))
    pool.drain()

    shown = invoke("deliveries", "show", delivery_id)
    as_json = invoke_json("deliveries", "show", delivery_id)

    assert shown.exit_code == 0, shown.output
    for part in (delivery_id, CLIENT, USER, receiver.url(path="/secret-path"), "pending", "503"):
        assert part in shown.stdout
    assert list(as_json) == FIELDS
    assert [line["entry"] for line in as_json["log"]] == ["503"]


def test_a_replay_has_it_sent_again_at_once(
    invoke: Invoke,
    invoke_json: ReadJson,
    redis: Redis,
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: Callable[..., str],
) -> None:
    delivery_id = end()
    pool.drain()

    done = invoke("deliveries", "replay", delivery_id)
    assert done.stdout == f"Delivery {delivery_id}, which was delivered, is sent again.\n"
    assert redis.llen("rq:queue:genqueue-deliveries") == 1
    pool.drain()
    assert invoke_json("deliveries", "replay", delivery_id)["state"] == "pending"
    pool.drain()

    assert len({(got.headers["webhook-id"], got.body) for got in receiver.received}) == 1
    assert len(receiver.received) == 3


def test_a_delivery_goes_by_the_id_of_its_request_as_well(
    invoke: Invoke,
    invoke_json: ReadJson,
    runtime: Runtime,
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: Callable[..., str],
) -> None:
    delivery_id = end()
    request_id = request_id_of(delivery_id)
    pool.drain()

    told = invoke_json("deliveries", "show", request_id.upper())
    assert (told["id"], told["request_id"]) == (delivery_id, request_id)
    assert request_id in invoke("deliveries", "show", delivery_id).stdout
    assert invoke_json("deliveries", "replay", request_id)["id"] == delivery_id
    assert invoke_json("deliveries")[0]["request_id"] == request_id
    assert pool.drain() == 1

    step = step_that_ended(runtime, receiver.url())
    assert invoke_json("deliveries", "show", step)["request_id"] is None


def test_a_wake_that_has_ended_is_not_sent_again(
    invoke: Invoke, runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    step_id = step_that_ended(runtime, receiver.url())
    pool.drain()

    done = invoke("deliveries", "replay", step_id)

    assert done.exit_code == 1
    assert done.stderr == (
        f"Delivery {step_id} is a wake that has ended (delivered): nobody waits for it.\n"
    )
    assert pool.drain() == 0


@pytest.mark.parametrize("word", ["show", "replay"])
@pytest.mark.parametrize(
    "delivery_id", ["78864a4d-c29d-42d1-b146-2dfa138a3198", "x:body", "\x1b[31m", "x" * 200, ""]
)
def test_where_there_is_none_it_is_status_1(invoke: Invoke, word: str, delivery_id: str) -> None:
    done = invoke("deliveries", word, delivery_id)

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("There is no delivery ")
    assert "\x1b" not in done.stderr


def test_a_part_of_a_delivery_is_none(
    invoke: Invoke, pool: DeliveryPool, end: Callable[..., str]
) -> None:
    delivery_id = end()
    pool.drain()

    for part in ("body", "log"):
        done = invoke("deliveries", "show", f"{delivery_id}:{part}")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("There is no delivery ")
