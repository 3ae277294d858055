"""Does a client see what became of its outcomes, and can it have one sent again? (C16, C17)"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.delivery.pool import DeliveryPool
from jobs.domain.escalation import Delivery
from jobs.domain.request_ids import request_id_of
from jobs.runtime import Runtime
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.integration.service.chat_caller import ChatCaller, chat_app
from tests.integration.service.round_trips import counting_proxy
from tests.integration.service.streams import stream_server
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.factories import claim_one
from tests.support.stored_steps import new_step
from tests.support.webhook_receiver import WebhookReceiver, status, webhook_receiver

pytestmark = pytest.mark.req("C17")
OTHER_KEY = "fmc_other-0123456789abcdef"
PATH = "/v1/deliveries"
FIELDS = [
    *("id", "request_id", "kind", "state", "url", "tries", "created_at", "due_at"),
    *("gives_up_at", "ended_at", "log"),
]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as running:
        yield running


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return make_runtime(webhook_networks=LOOPBACK, formation_keys=(KEY, OTHER_KEY))


@pytest.fixture
def caller(runtime: Runtime) -> Iterator[ChatCaller]:
    with chat_app(runtime) as anybody:
        yield anybody.of(KEY, USER)


@pytest.fixture
def pool(runtime: Runtime) -> DeliveryPool:
    return pool_of(runtime)


@pytest.fixture
def end(runtime: Runtime, receiver: WebhookReceiver) -> Callable[..., str]:
    """Ends a chain that is to be posted to the receiver; answers the delivery's id."""
    return lambda **changes: end_chain(runtime.turns, runtime.queue, receiver.url(), **changes)


def read(caller: ChatCaller, delivery_id: str) -> dict[str, Any]:
    answer = caller.get(f"{PATH}/{delivery_id}")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    body: dict[str, Any] = answer.json  # type: ignore[assignment]
    return body


def listed(caller: ChatCaller, query: str = "") -> list[str]:
    answer = caller.get(f"{PATH}{query}")
    assert answer.status_code == 200, answer.get_data()
    assert answer.json is not None
    return [one["id"] for one in answer.json["deliveries"]]


def replay(caller: ChatCaller, delivery_id: str) -> Any:
    return caller.http.post(f"{PATH}/{delivery_id}/replay", headers=caller.headers)


@pytest.mark.req("C16")
def test_a_delivery_is_shown_as_it_waits_fails_and_is_delivered(
    caller: ChatCaller, end: Callable[..., str], receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    delivery_id = end()
    waiting = read(caller, delivery_id)
    assert list(waiting) == FIELDS
    assert waiting == {
        **waiting,
        "id": delivery_id,
        "request_id": request_id_of(delivery_id),
        "kind": "webhook",
        "state": "pending",
        "url": receiver.url(),
        "tries": 0,
        "due_at": waiting["created_at"],
        "ended_at": None,
        "log": [],
    }

    receiver.answer_next(status(503))
    pool.drain()
    failed = read(caller, delivery_id)
    assert (failed["state"], failed["tries"]) == ("pending", 1)
    assert failed["due_at"] > waiting["due_at"]
    (line,) = failed["log"]
    assert set(line) == {"at", "entry", "took_ms"}
    assert (line["entry"], line["took_ms"] >= 0) == ("503", True)

    assert replay(caller, delivery_id).status_code == 202
    pool.drain()
    done = read(caller, delivery_id)
    assert (done["state"], done["tries"], done["due_at"]) == ("delivered", 2, None)
    assert done["ended_at"] > done["created_at"]
    assert [one["entry"] for one in done["log"]] == ["200", "503"]
    assert caller.get(PATH).json == {"deliveries": [done]}


def test_deliveries_are_listed_newest_first_and_by_request_state_and_number(
    caller: ChatCaller, end: Callable[..., str], pool: DeliveryPool
) -> None:
    delivered = end()
    pool.drain()
    pending = [end() for _ in range(3)]

    everything = listed(caller)
    assert set(everything) == {delivered, *pending}
    assert everything[-1] == delivered
    assert listed(caller, "?state=delivered") == [delivered]
    assert set(listed(caller, "?state=pending")) == set(pending)
    assert listed(caller, "?state=gone") == []
    assert listed(caller, "?limit=2") == everything[:2]
    assert listed(caller, f"?request_id={request_id_of(pending[0])}") == [pending[0]]
    assert listed(caller, f"?request_id={request_id_of(pending[0])}&state=delivered") == []
    assert listed(caller, f"?request_id=req_{'0' * 32}") == []


@pytest.mark.req("C10")
def test_what_goes_to_a_channel_is_listed_as_well(
    caller: ChatCaller, end: Callable[..., str]
) -> None:
    delivery_id = end(delivery=Delivery.CHANNEL)

    assert read(caller, delivery_id)["kind"] == "channel"
    assert listed(caller) == [delivery_id]


@pytest.mark.req("C16")
@pytest.mark.parametrize("code", [200, 410])
def test_a_replay_sends_the_same_bytes_under_the_same_id_whatever_became_of_it(
    caller: ChatCaller,
    runtime: Runtime,
    redis: Redis,
    end: Callable[..., str],
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    code: int,
) -> None:
    receiver.answer_next(status(code))
    delivery_id = end()
    pool.drain()
    ended = read(caller, delivery_id)
    assert ended["state"] == {200: "delivered", 410: "gone"}[code]

    answer = replay(caller, delivery_id)

    assert answer.status_code == 202
    assert list(answer.json) == FIELDS
    assert (answer.json["state"], answer.json["ended_at"]) == ("pending", None)
    assert answer.json["gives_up_at"] > ended["gives_up_at"]
    assert redis.llen("rq:queue:genqueue-deliveries") == 1, "a ticket has it posted at once"
    pool.drain()
    first, second = receiver.received
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    assert read(caller, delivery_id)["state"] == "delivered"
    assert len(runtime.deliveries.list(CLIENT, USER)) == 1


@pytest.mark.req("C21")
def test_deliveries_of_another_user_or_client_are_not_there(
    caller: ChatCaller, end: Callable[..., str], receiver: WebhookReceiver, pool: DeliveryPool
) -> None:
    delivery_id = end()
    pool.drain()

    for stranger in (
        caller.of(KEY, "somebody"),
        caller.of(KEY, None),
        caller.of(OTHER_KEY, USER),
    ):
        answers = (stranger.get(f"{PATH}/{delivery_id}"), replay(stranger, delivery_id))
        for answer in answers:
            assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")
        assert listed(stranger) == []
        assert listed(stranger, f"?request_id={request_id_of(delivery_id)}") == []
    assert pool.drain() == 0
    assert len(receiver.received) == 1


@pytest.mark.parametrize("key", ["", "wrong", KEY[:-1], f"{KEY},{KEY}"])
def test_without_a_key_of_the_formation_nothing_is_told(
    caller: ChatCaller, end: Callable[..., str], key: str
) -> None:
    delivery_id = end()
    stranger = ChatCaller(caller.http, key, USER)

    for answer in (
        stranger.get(PATH),
        stranger.get(f"{PATH}/{delivery_id}"),
        replay(stranger, delivery_id),
    ):
        assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")


@pytest.mark.req("X3")
@pytest.mark.parametrize(
    "delivery_id",
    ["x", "%00", "0" * 36, f"{'0' * 8}-0000-4000-8000-{'0' * 12}", "a%3Abody", "é", "%0a", "..%2f"],
)
def test_what_is_no_delivery_is_404(caller: ChatCaller, delivery_id: str) -> None:
    for answer in (caller.get(f"{PATH}/{delivery_id}"), replay(caller, delivery_id)):
        assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")


@pytest.mark.req("X3")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=lost", "state"),
        ("state=", "state"),
        ("request_id=x", "request_id"),
        (f"request_id=req_{'0' * 32}%0a", "request_id"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("cursor=1", "cursor"),
    ],
)
def test_a_wrong_query_is_422_with_its_parameter(
    caller: ChatCaller, query: str, field: str
) -> None:
    answer = caller.get(f"{PATH}?{query}")

    assert (answer.status_code, answer.mimetype) == (422, "application/problem+json")
    assert answer.json is not None
    assert [error["field"] for error in answer.json["errors"]] == [field]


@pytest.mark.req("B26", "C21")
def test_a_signal_of_a_team_that_is_named_as_a_client_is_not_the_clients(
    caller: ChatCaller, runtime: Runtime, receiver: WebhookReceiver
) -> None:
    new = new_step(team_id=CLIENT, callback_url=receiver.url())
    runtime.steps.submit(new)
    runtime.queue.cancel(claim_one(runtime.queue).job.id, "acme")
    nobody = caller.of(KEY, None)

    assert replay(nobody, new.id).status_code == 404
    assert nobody.get("/v1/deliveries").json == {"deliveries": []}


def test_a_list_takes_two_round_trips_and_a_read_one(
    make_runtime: Callable[..., Runtime], end: Callable[..., str], redis_url: str
) -> None:
    ids = [end() for _ in range(5)]
    with counting_proxy(urlsplit(redis_url).port or 0) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with chat_app(make_runtime(redis_url=url, formation_keys=(KEY,))) as anybody:
            caller = anybody.of(KEY, USER)
            counts = []
            for act in (listed, listed, lambda caller: read(caller, ids[0])):
                before = proxy.round_trips
                act(caller)
                counts.append(proxy.round_trips - before)
    assert counts[1:] == [2, 1], "the first one connects"


def test_where_the_store_is_away_it_is_503(make_runtime: Callable[..., Runtime]) -> None:
    away = make_runtime(redis_url="redis://127.0.0.1:1/0", formation_keys=(KEY,))
    with chat_app(away) as anybody:
        caller = anybody.of(KEY, USER)
        for answer in (
            caller.get(PATH),
            caller.get(f"{PATH}/0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11"),
            replay(caller, "0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11"),
        ):
            assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
            assert "Retry-After" in answer.headers


@pytest.mark.req("X3")
@pytest.mark.case("API-01")
@pytest.mark.timeout(150)
def test_generated_requests_meet_only_documented_answers(
    runtime: Runtime, end: Callable[..., str], redis_url: str, tmp_path: Path
) -> None:
    end(user_id="")
    with stream_server(tmp_path, redis_url, formation_keys=KEY) as server:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--header", f"X-Muxi-Client-Key: {KEY}"),
            *("--include-path-regex", "^/v1/deliveries"),
            *("--max-examples", "20", "--seed", "1", "--checks", "all", "--no-color"),
            # Which ids there are is beyond a schema.
            *("--exclude-checks", "positive_data_acceptance"),
            "--generation-deterministic",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=140
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "3 selected / " in done.stdout
