"""Does an outcome arrive, signed, as it was, and as often as it has to? (C16, C17)"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable

import pytest
from openai import InvalidWebhookSignatureError, OpenAI

from jobs.delivery.pool import DeliveryPool
from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.domain.escalation import Delivery
from jobs.domain.request_ids import request_id_of
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.deliveries import DeliveryView
from tests.integration.delivery.conftest import LOOPBACK, pool_of
from tests.support.delivery_times import due_now
from tests.support.ended_chains import CLIENT, KEY, MESSAGE, USER, end_chain
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import WebhookReceiver, status

pytestmark = pytest.mark.req("C16", "C17")
End = Callable[..., str]
View = Callable[[str], DeliveryView]


def test_the_webhook_of_a_chain_that_gave_up_holds_its_report_as_canonical_json(
    receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url(path="/hook?a=b"))

    assert pool.drain() == 1

    (got,) = receiver.received
    body = json.loads(got.body)
    assert got.path == "/hook?a=b"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"].startswith("genqueue/")
    assert set(body) == {"request_id", "state", "attempts", "timestamp", "report"}
    assert body["request_id"] == request_id_of(delivery_id)
    assert (body["state"], body["attempts"]) == ("budget_exhausted", 2)
    assert abs(body["timestamp"] - time.time()) < 30
    assert body["report"]["original_message"] == MESSAGE
    assert [attempt["kind"] for attempt in body["report"]["attempts"]] == ["sync", "async"]
    spelled = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert got.body == spelled.encode()
    seen = view(delivery_id)
    assert (seen.state, seen.kind, seen.tries) == (
        DeliveryState.DELIVERED,
        DeliveryKind.WEBHOOK,
        1,
    )
    assert [line.entry for line in seen.log] == ["200"]


def test_an_achieved_chain_delivers_its_result_and_no_report(
    receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    end(receiver.url(), answer="Q3: 1.0 — ü")

    pool.drain()

    body = json.loads(receiver.received[0].body)
    assert (body["state"], body["result"]) == ("achieved", "Q3: 1.0 — ü")
    assert "report" not in body
    assert body["attempts"] == 2


def test_a_channel_gets_the_user_and_a_text_to_show_as_well(
    receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    end(receiver.url(), delivery=Delivery.CHANNEL, answer="All done.")
    end(receiver.url(), delivery=Delivery.CHANNEL)

    pool.drain()

    bodies = [json.loads(got.body) for got in receiver.received]
    texts = {body["state"]: body["text"] for body in bodies}
    assert {body["user_id"] for body in bodies} == {USER}
    assert texts["achieved"] == "All done."
    assert texts["budget_exhausted"].startswith("# ")


@pytest.mark.req("X5")
@pytest.mark.case("WH-01")
def test_every_try_sends_the_same_bytes_under_the_same_id_and_two_libraries_verify_them(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    delivery_id = end(receiver.url())
    receiver.answer_next(status(500), status(302, Location="/elsewhere"), status(204))

    pool.drain()
    for _ in range(2):
        due_now(runtime.redis, delivery_id)
        pool.drain()

    tries = receiver.received
    assert len(tries) == 3
    assert {got.path for got in tries} == {"/hook"}, "no redirect is followed"
    assert len({got.body for got in tries}) == 1
    assert {got.headers["webhook-id"] for got in tries} == {delivery_id}
    for got in tries:
        client = OpenAI(api_key="unused", webhook_secret=KEY)
        client.webhooks.verify_signature(got.body, got.headers)
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.verify_signature(got.body + b" ", got.headers)
        stamp, _, signature = got.headers["x-muxi-signature"].partition(",v1=")
        signed = f"{got.headers['x-muxi-timestamp']}.".encode() + got.body
        assert stamp == f"t={got.headers['x-muxi-timestamp']}"
        assert signature == hmac.digest(KEY.encode(), signed, hashlib.sha256).hex()


def test_410_ends_it_at_once(
    receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url())
    receiver.answer_all(status(410))

    pool.drain()

    seen = view(delivery_id)
    assert (seen.state, seen.due_at_ms) == (DeliveryState.GONE, None)


def test_retry_after_is_not_undercut(
    receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url())
    receiver.answer_next(status(503, Retry_After="3600"))

    pool.drain()

    seen = view(delivery_id)
    assert seen.state is DeliveryState.PENDING
    assert seen.due_at_ms is not None
    assert 3_600_000 <= seen.due_at_ms - seen.log[0].at_ms <= 3_600_000 * 1.2 + 1


def test_a_retry_after_beyond_the_day_ends_with_the_day_and_nothing_is_sent_then(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url())
    receiver.answer_next(status(503, Retry_After="999999"))
    pool.drain()
    seen = view(delivery_id)
    assert seen.due_at_ms == seen.gives_up_at_ms == seen.created_at_ms + 86_400_000

    runtime.redis.hset(keys.DELIVERY(delivery_id), "gives_up_at", seen.created_at_ms)
    due_now(runtime.redis, delivery_id)
    pool.drain()

    assert view(delivery_id).state is DeliveryState.GIVEN_UP
    assert len(receiver.received) == 1


def test_a_key_that_is_no_longer_set_is_waited_for_and_stays_visible(
    runtime: Runtime,
    make_runtime: Callable[..., Runtime],
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    end: End,
    view: View,
) -> None:
    delivery_id = end(receiver.url())
    rotated = make_runtime(webhook_networks=LOOPBACK, formation_keys=("fmc_another_key_0123",))

    pool_of(rotated).drain()

    seen = view(delivery_id)
    assert (seen.state, seen.log[0].entry) == (DeliveryState.PENDING, "no_key")
    assert receiver.received == []

    due_now(runtime.redis, delivery_id)
    pool.drain()
    assert view(delivery_id).state is DeliveryState.DELIVERED


def test_a_failed_delivery_leaves_the_outcome_as_it_was(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    delivery_id = end(receiver.url())
    before = runtime.turns.view(delivery_id, CLIENT, USER)
    receiver.answer_all(status(500))

    pool.drain()

    assert runtime.turns.view(delivery_id, CLIENT, USER) == before


@pytest.mark.req("C21")
def test_others_neither_see_nor_replay_a_delivery(runtime: Runtime, end: End) -> None:
    delivery_id = end("https://example.com/hook")
    deliveries = runtime.deliveries

    for owner, user in ((CLIENT, "user-2"), ("f" * 16, USER), (CLIENT, "")):
        assert deliveries.get(delivery_id, owner, user) is None
        assert deliveries.replay(delivery_id, owner, user) is Answer.MISSING
        assert list(deliveries.list(owner, user)) == []
    assert deliveries.replay("nothing", CLIENT, USER) is Answer.MISSING


def test_lists_are_newest_first_and_filtered(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    first = end(receiver.url())
    pool.drain()
    second = end("https://example.com/hook")
    other = end_chain(runtime.turns, runtime.queue, receiver.url(), user_id="user-2")
    deliveries = runtime.deliveries

    def ids(found: object) -> list[str]:
        return [each.id for each in found]  # type: ignore[attr-defined]

    assert ids(deliveries.list(CLIENT, USER)) == [second, first]
    assert ids(deliveries.list(CLIENT, USER, limit=1)) == [second]
    assert ids(deliveries.list(CLIENT, USER, ref=first)) == [first]
    assert ids(deliveries.list(CLIENT, USER, state=DeliveryState.PENDING)) == [second]
    assert ids(deliveries.recent()) == [other, second, first]
    assert ids(deliveries.recent(state=DeliveryState.DELIVERED)) == [first]


def test_a_pool_posts_on_a_nudge_and_retries_by_itself(
    receiver: WebhookReceiver,
    pool: DeliveryPool,
    running: Callable[[DeliveryPool], DeliveryPool],
    end: End,
    view: View,
) -> None:
    running(pool)
    receiver.answer_next(status(500))
    delivery_id = end(receiver.url())
    pool.nudge()

    wait_until(lambda: len(receiver.received) == 1, 5, "the first try")
    wait_until(
        lambda: view(delivery_id).state is DeliveryState.DELIVERED, 10, "it is tried again by 6 s"
    )
    gap_ms = view(delivery_id).log[0].at_ms - view(delivery_id).log[1].at_ms
    assert gap_ms >= 5_000


@pytest.mark.req("B30")
def test_a_wake_is_posted_unsigned_and_its_token_is_forgotten_when_it_ends(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End
) -> None:
    delivery_id = end(receiver.url())
    wake = {"kind": "wake", "owner": "team-1", "user": "", "ref": "a-generation"}
    runtime.redis.hset(keys.DELIVERY(delivery_id), mapping={**wake, "wake_token": "w" * 32})
    receiver.answer_next(status(500))

    pool.drain()
    due_now(runtime.redis, delivery_id)
    pool.drain()

    first, second = receiver.received
    assert first.body == second.body
    assert json.loads(first.body) == {
        "event": "$workflows_llm_generation_finished",
        "generation_id": "a-generation",
        "team_id": "team-1",
        "wake_token": "w" * 32,
    }
    assert first.headers["webhook-id"] == delivery_id
    assert not {"webhook-signature", "x-muxi-signature"} & first.headers.keys()
    assert "w" * 32 not in str(runtime.redis.hgetall(keys.DELIVERY(delivery_id)))
    assert not runtime.redis.exists(keys.DELIVERY_BODY(delivery_id))
    assert 0 < runtime.redis.pttl(keys.DELIVERY(delivery_id)) <= 86_400_000
    assert runtime.deliveries.replay(delivery_id, "team-1", "") is Answer.FINAL


def test_a_request_whose_record_is_gone_fails_for_good(
    runtime: Runtime, receiver: WebhookReceiver, pool: DeliveryPool, end: End, view: View
) -> None:
    delivery_id = end(receiver.url())
    runtime.redis.delete(keys.REQUEST(delivery_id))

    pool.drain()

    seen = view(delivery_id)
    assert (seen.state, seen.log[0].entry) == (DeliveryState.FAILED, "no_record")


@pytest.mark.req("C10")
def test_a_chain_that_is_polled_for_delivers_nothing(runtime: Runtime, end: End) -> None:
    end("https://hook.example/", delivery=Delivery.POLLING)

    assert list(runtime.deliveries.recent()) == []
