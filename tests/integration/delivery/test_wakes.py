"""Is who waits for a generation told that it ended, by a post without output? (B26)"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from redis import Redis

from jobs import maintenance
from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryState
from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store import keys
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.integration.service.step_caller import StepCaller
from tests.integration.service.team_caller import TeamCaller
from tests.support.delivery_times import due_now
from tests.support.factories import claim_one
from tests.support.signals import assert_unsigned, fail, found, lose, stack_at_work
from tests.support.stored_generations import new_generation, open_to, wakes
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import Received, WebhookReceiver, status

pytestmark = pytest.mark.req("B26")
TOKEN = "wake-0123456789abcdef"
OTHER_TOKEN = "wake-fedcba9876543210"
Running = Callable[[DeliveryPool], DeliveryPool]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], redis: Redis) -> Runtime:
    """Both passes on the mock; posts may go to this machine."""
    open_to(redis, "acme")
    return make_runtime(extraction_model="mock-1", webhook_networks=LOOPBACK)


@pytest.fixture
def steps(team: TeamCaller) -> StepCaller:
    return StepCaller(team)


def wake(url: str | None, token: str = TOKEN) -> dict[str, str]:
    return {"token": token, **({"url": url} if url else {})}


def submitted(team: TeamCaller, **changes: object) -> str:
    answer = team.submit(**changes)
    assert (answer.status_code, answer.json is not None) == (202, True), answer.get_data()
    assert answer.json is not None
    return str(answer.json["id"])


def store(runtime: Runtime, url: str | None, token: str = TOKEN, **changes: object) -> str:
    """Submit a generation with a waiter; answers its id."""
    new = new_generation(wake_token=token, wake_url=url, **changes)
    return runtime.generations.submit(new).view.id


def told(received: list[Received]) -> list[tuple[str, str]]:
    """Of each post: the generation and the token that it names."""
    bodies = [json.loads(got.body) for got in received]
    return sorted((body["generation_id"], body["wake_token"]) for body in bodies)


@pytest.mark.req("B3")
def test_a_generation_that_ended_is_posted_to_who_named_a_url_and_told_by_the_stream(
    runtime: Runtime, redis: Redis, team: TeamCaller, receiver: WebhookReceiver, running: Running
) -> None:
    with stack_at_work(runtime, running(pool_of(runtime))):
        generation_id = submitted(team, wake=wake(receiver.url(path="/wake?a=b")))
        wait_until(lambda: len(receiver.received) == 1, 10, "it is posted")

    (got,) = receiver.received
    assert got.path == "/wake?a=b"
    assert json.loads(got.body) == {
        "event": "$workflows_llm_generation_finished",
        "generation_id": generation_id,
        "team_id": "1",
        "wake_token": TOKEN,
    }
    assert got.headers["webhook-id"].startswith(generation_id)
    assert TOKEN not in got.headers["webhook-id"]
    assert_unsigned(got)
    assert wakes(redis) == [(generation_id, TOKEN)]
    answer = team.collect(generation_id)
    assert answer.json is not None
    assert (answer.status_code, answer.json["status"]) == (200, "succeeded")


@pytest.mark.req("B9")
def test_how_a_caller_is_woken_makes_no_other_generation_and_each_waiter_is_woken(
    runtime: Runtime, redis: Redis, team: TeamCaller, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    first = submitted(team, wake=wake(None))
    for asked in (
        {"wake": wake(receiver.url(path="/one"), OTHER_TOKEN)},
        {"wake": wake(receiver.url(path="/one"), OTHER_TOKEN)},
        {"wake": wake(None, OTHER_TOKEN)},
        {"wake": wake(receiver.url(path="/three"), "wake-of-the-third-one")},
        {},
    ):
        assert submitted(team, **asked) == first

    fail(runtime)
    pool.drain()

    assert sorted(got.path for got in receiver.received) == ["/one", "/three"]
    assert told(receiver.received) == [(first, OTHER_TOKEN), (first, "wake-of-the-third-one")]
    assert sorted(token for _, token in wakes(redis)) == [
        TOKEN,
        OTHER_TOKEN,
        "wake-of-the-third-one",
    ]


def test_of_the_urls_that_came_with_a_token_the_last_one_counts(
    runtime: Runtime, redis: Redis, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    for path in ("/old", "/new"):
        store(runtime, receiver.url(path=path), digest="d" * 64)

    fail(runtime)
    pool.drain()

    assert [got.path for got in receiver.received] == ["/new"]
    assert len(wakes(redis)) == 1


@pytest.mark.req("B9")
def test_sixteen_waiters_are_kept(
    runtime: Runtime, redis: Redis, receiver: WebhookReceiver
) -> None:
    for number in range(20):
        store(runtime, receiver.url(), f"wake-of-waiter-{number:02}", digest="d" * 64)
    store(runtime, receiver.url(path="/moved"), "wake-of-waiter-00", digest="d" * 64)

    fail(runtime)

    views = runtime.deliveries.recent()
    assert len(views) == len(wakes(redis)) == 16
    assert [view.url for view in views if view.url.endswith("/moved")] == [
        receiver.url(path="/moved")
    ]


def expire(runtime: Runtime, generation_id: str) -> None:
    """Nothing could run it for as long as somebody waited."""
    runtime.redis.zadd(keys.EXPIRING(), {generation_id: 1})
    maintenance.promote(runtime)


def cancel_queued(runtime: Runtime, generation_id: str) -> None:
    assert runtime.queue.cancel(generation_id, "acme").delivery_wanted


def cancel_running(runtime: Runtime, generation_id: str) -> None:
    claim_one(runtime.queue)
    cancel_queued(runtime, generation_id)


@pytest.mark.req("B11", "B19")
@pytest.mark.parametrize("end", [expire, cancel_queued, cancel_running, lose])
def test_whatever_way_a_generation_ends_its_waiter_is_woken_once(
    runtime: Runtime,
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: Callable[[Runtime, str], None],
) -> None:
    generation_id = store(runtime, receiver.url())

    end(runtime, generation_id)
    assert runtime.generations.get(generation_id, "1").status == "failed"
    runtime.queue.cancel(generation_id, "acme")
    runtime.queue.expire(generation_id, ErrorKind.TIMEOUT, "once more")
    pool.drain()

    assert told(receiver.received) == [(generation_id, TOKEN)]


def test_a_worker_that_says_the_end_twice_adds_no_second_post(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    store(runtime, receiver.url())
    attempt = claim_one(runtime.queue)
    ends = [
        runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "in vain")
        for _ in range(2)
    ]

    assert [(end.answer, end.delivery_wanted) for end in ends] == [
        (Answer.OK, True),
        (Answer.OK, False),
    ]
    assert pool.drain() == 1
    assert len(receiver.received) == 1


def test_what_has_ended_already_wakes_nobody(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    store(runtime, None, digest="d" * 64)
    fail(runtime)

    store(runtime, receiver.url(), OTHER_TOKEN, digest="d" * 64)

    assert pool.drain() == 0
    assert receiver.received == []


def test_a_wake_that_is_not_taken_is_tried_four_times_with_the_same_bytes_and_then_forgotten(
    runtime: Runtime, redis: Redis, receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    store(runtime, receiver.url())
    receiver.answer_all(status(503))
    fail(runtime)
    (view,) = runtime.deliveries.recent()
    assert view.gives_up_at_ms - view.created_at_ms == 600_000

    for _ in range(5):
        due_now(redis, view.id)
        pool.drain()

    assert len(receiver.received) == 4
    assert len({(got.body, got.headers["webhook-id"]) for got in receiver.received}) == 1
    assert found(runtime, view.id).state is DeliveryState.GIVEN_UP
    assert "wake_token" not in redis.hgetall(keys.DELIVERY(view.id))
    assert not redis.exists(keys.DELIVERY_BODY(view.id))
    assert runtime.deliveries.replay(view.id, "team:1", "") is Answer.FINAL


@pytest.mark.req("X12")
def test_a_stored_address_that_is_private_is_never_connected_to(
    make_runtime: Callable[..., Runtime], redis: Redis, receiver: WebhookReceiver
) -> None:
    open_to(redis, "acme")
    closed = make_runtime(extraction_model="mock-1")
    store(closed, receiver.url())
    fail(closed)

    pool_of(closed).drain()

    (view,) = closed.deliveries.recent()
    assert (view.state, [line.entry for line in view.log]) == (
        DeliveryState.PENDING,
        ["refused_address"],
    )
    assert receiver.received == []


@pytest.mark.req("X12")
@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://example.com/", "https://10.0.0.1/"])
def test_only_the_networks_of_the_settings_are_open_beside_the_public_ones(
    team: TeamCaller, steps: StepCaller, url: str
) -> None:
    answers = {
        "wake.url": team.submit(wake=wake(url)),
        "callback_url": steps.submit(callback_url=url),
    }
    refused = {
        name for name, answer in answers.items() if name in answer.get_data(as_text=True)
    } & {name for name, answer in answers.items() if answer.status_code == 422}

    is_a_name_by_http = url == "http://example.com/"  # whose addresses are looked at when posting
    assert refused == (set() if is_a_name_by_http else {"wake.url", "callback_url"})
