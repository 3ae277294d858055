"""Is who named a callback told that a step ended, by a post without output? (B26)"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from redis import Redis

from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store import keys
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.integration.service.step_caller import StepCaller, worker_and_matcher
from tests.integration.service.team_caller import TeamCaller
from tests.support.signals import assert_unsigned, fail, found, lose, stack_at_work
from tests.support.stored_generations import open_to
from tests.support.stored_steps import new_step
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import WebhookReceiver, status

pytestmark = pytest.mark.req("B26")
Running = Callable[[DeliveryPool], DeliveryPool]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], redis: Redis) -> Runtime:
    """Both passes on the mock; posts may go to this machine."""
    open_to(redis, "acme")
    return make_runtime(extraction_model="mock-1", webhook_networks=LOOPBACK)


@pytest.fixture
def steps(team: TeamCaller) -> StepCaller:
    return StepCaller(team)


def test_a_step_that_ended_is_posted_to_its_callback_url_without_what_came_of_it(
    runtime: Runtime, steps: StepCaller, receiver: WebhookReceiver, running: Running
) -> None:
    with stack_at_work(runtime, running(pool_of(runtime))):
        answer = steps.submit(callback_url=receiver.url(path="/step"))
        assert (answer.status_code, answer.json is not None) == (202, True), answer.get_data()
        assert answer.json is not None
        step_id = answer.json["id"]
        assert steps.ended(step_id)["state"] == "succeeded"
        wait_until(lambda: len(receiver.received) == 1, 10, "it is posted")

    (got,) = receiver.received
    assert got.path == "/step"
    assert json.loads(got.body) == {
        "event": "$workflows_step_finished",
        "step_id": step_id,
        "team_id": "1",
        "state": "succeeded",
    }
    assert got.headers["webhook-id"] == step_id
    assert_unsigned(got)


@pytest.mark.parametrize("end", ["fail", "cancel", "expire", "lose"])
def test_whatever_way_a_step_ends_its_callback_is_called_once(
    runtime: Runtime, redis: Redis, receiver: WebhookReceiver, pool: DeliveryPool, end: str
) -> None:
    new = new_step(callback_url=receiver.url())
    runtime.steps.submit(new)
    if end == "cancel":
        runtime.queue.cancel(new.id, "acme")
    elif end == "expire":
        runtime.queue.expire(new.id, ErrorKind.MIGRATION, "too old")
    elif end == "fail":
        fail(runtime)
    else:
        redis.hset(keys.JOB(new.id), "max_attempts", 1)
        lose(runtime, new.id)
    runtime.queue.cancel(new.id, "acme")
    pool.drain()

    bodies = [json.loads(got.body) for got in receiver.received]
    assert [(body["step_id"], body["state"]) for body in bodies] == [
        (new.id, "cancelled" if end == "cancel" else "failed")
    ]
    view = found(runtime, new.id)
    assert (view.kind, view.owner, view.ref) == (DeliveryKind.WAKE, "team:1", new.id)
    assert view.state is DeliveryState.DELIVERED


@pytest.mark.parametrize("mode", ["mock", "live"])
def test_a_step_without_a_callback_and_a_walk_with_one_call_nobody(
    runtime: Runtime, steps: StepCaller, receiver: WebhookReceiver, mode: str
) -> None:
    asked = {"callback_url": receiver.url()} if mode == "mock" else {}
    with worker_and_matcher(runtime):
        body = steps.submit(mode=mode, **asked).json
        assert body is not None
        if mode == "live":
            steps.ended(body["id"])

    assert runtime.deliveries.recent() == ()


@pytest.mark.req("X4")
def test_the_callback_is_a_part_of_what_an_idempotency_key_stands_for(
    steps: StepCaller, receiver: WebhookReceiver
) -> None:
    first = steps.submit("k", callback_url=receiver.url())
    again = steps.submit("k", callback_url=receiver.url())
    other = steps.submit("k", callback_url=receiver.url(path="/elsewhere"))

    assert first.json is not None
    assert again.json is not None
    assert (again.json["id"], again.headers["Idempotency-Replayed"]) == (first.json["id"], "true")
    assert other.status_code == 422


def test_a_pending_callback_can_be_sent_again_at_once(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    new = new_step(callback_url=receiver.url())
    runtime.steps.submit(new)
    receiver.answer_next(status(500))
    fail(runtime)
    pool.drain()

    assert runtime.deliveries.replay(new.id, "team:1", "") is Answer.OK
    pool.drain()

    assert len(receiver.received) == 2
    assert found(runtime, new.id).state is DeliveryState.DELIVERED
