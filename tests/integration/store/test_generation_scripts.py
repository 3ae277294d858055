"""Generations under lost replies, full memory and many clients at one instant: one of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Attempt
from jobs.domain.states import Answer
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.credits import CreditBalance
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.integration.store.test_command_counts import commands, inner
from tests.support.factories import claim, claim_one, new_id
from tests.support.invariants import problems_of
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.redis_server import redis_server
from tests.support.snapshot import snapshot
from tests.support.stored_generations import (
    CAP_USD_MICROS,
    ENVELOPE,
    RESERVED_USD_MICROS,
    billed,
    call_of,
    credits_of,
    figures,
    generations_of,
    ledger,
    new_generation,
    open_to,
    wakes,
)

AT_ONCE = 50
Act = Callable[[Queue, Attempt], Any]


def succeed(queue: Queue, attempt: Attempt) -> Answer:
    bill = billed(attempt.job, call_of(7, provider_request_id="a"), is_captured=True)
    return queue.succeed_generation(attempt.job.id, attempt.token, ENVELOPE, bill).answer


def fail(queue: Queue, attempt: Attempt) -> Answer:
    bill = billed(attempt.job, call_of(7, provider_request_id="a"), is_captured=True)
    code = GenerationCode.MODEL_REFUSED
    return queue.fail(
        attempt.job.id, attempt.token, ErrorKind.PROVIDER_4XX, "no", code=code, bill=bill
    ).answer


def cancel(queue: Queue, attempt: Attempt) -> Answer:
    return queue.cancel(attempt.job.id, "acme").answer


ENDS: dict[str, Act] = {"succeed": succeed, "fail": fail, "cancel": cancel}


@pytest.fixture
def proxy(redis_url: str) -> Iterator[LossyProxy]:
    port = urlsplit(redis_url).port
    assert port is not None
    with lossy_proxy(port) as proxy:
        yield proxy


@pytest.fixture
def lossy(proxy: LossyProxy) -> Iterator[Redis]:
    client = connect(proxy.url)
    client.ping()
    yield client
    client.close()


@pytest.mark.req("B7", "B9", "B21")
def test_all_gates_and_the_write_are_one_round_trip(redis: Redis) -> None:
    open_to(redis, "acme")
    generations = generations_of(redis)
    first = new_generation(wake_token="token-of-a-step")
    generations.submit(first)
    redis.lpush("rq:queue:genqueue", *["t"] * 16)

    stored = commands(redis, lambda: generations.submit(new_generation(wake_token="token" * 4)))
    again = commands(redis, lambda: generations.submit(new_generation(digest=first.digest)))

    assert (stored["evalsha"], again["evalsha"]) == (1, 1)
    assert (inner(stored) <= 46, inner(again) <= 12) == (True, True), (stored, again)


@pytest.mark.req("B9")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize("refusal", [None, GenerationCode.INVALID_MODEL])
def test_a_submit_whose_reply_got_lost_counts_and_stores_once(
    redis: Redis, proxy: LossyProxy, lossy: Redis, refusal: GenerationCode | None
) -> None:
    open_to(redis, "acme")
    generations_of(redis).submit(new_generation(team_id="warm-up"))
    new = new_generation(wake_token="token-of-a-step", refusal=refusal)
    proxy.lose_reply_to("EVALSHA")

    accepted = generations_of(lossy).submit(new)

    assert proxy.lost_replies == 1
    assert (accepted.view.id, accepted.replayed) == (new.id, False)
    assert redis.zcard(keys.SUBMITS("1")) == 1
    reserved = credits_of(redis).of_team("1").reserved_usd_micros
    assert reserved == (0 if refusal else RESERVED_USD_MICROS)
    assert problems_of(redis) == []


@pytest.mark.req("B17", "B19")
@pytest.mark.case("RED-07")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_end_whose_reply_got_lost_is_booked_and_told_once(
    redis: Redis, queue: Queue, proxy: LossyProxy, lossy: Redis, end: Act
) -> None:
    open_to(redis, "acme")
    for _ in range(2):
        generations_of(redis).submit(new_generation(wake_token="token-of-a-step"))
    warm_up, attempt = claim(queue, 2).attempts
    end(queue, warm_up)
    before = credits_of(redis).of_org("acme")
    proxy.lose_reply_to("EVALSHA")

    assert end(Queue(Scripts(lossy, queue_name="genqueue"), ticket_cap=16), attempt) is Answer.OK

    after = credits_of(redis).of_org("acme")
    assert proxy.lost_replies == 1
    assert len(wakes(redis)) == 2
    assert after.spent_usd_micros == 2 * before.spent_usd_micros
    assert after.unsettled_usd_micros == 2 * before.unsettled_usd_micros
    assert after.reserved_usd_micros == 0
    assert redis.llen(keys.BILLING()) == (0 if end is cancel else 2)
    assert sum(figures(redis).values()) == 4


@pytest.mark.req("B17", "B18")
@pytest.mark.case("RED-07")
def test_a_late_booking_whose_reply_got_lost_is_made_once(
    redis: Redis, queue: Queue, proxy: LossyProxy, lossy: Redis
) -> None:
    open_to(redis, "acme")
    generations_of(redis).submit(new_generation())
    attempt = claim_one(queue)
    queue.cancel(attempt.job.id, "acme")
    queue.book_generation(new_id(), "1", "", "")
    proxy.lose_reply_to("EVALSHA")

    late = Queue(Scripts(lossy, queue_name="genqueue"), ticket_cap=16)
    bill = billed(attempt.job, call_of(9))
    assert late.book_generation(attempt.job.id, "1", attempt.token, bill).answer is Answer.OK

    assert proxy.lost_replies == 1
    assert credits_of(redis).of_org("acme") == CreditBalance(CAP_USD_MICROS, 9, 0, 0)


@pytest.mark.case("RED-07")
def test_credits_that_were_added_are_added_once(
    redis: Redis, proxy: LossyProxy, lossy: Redis
) -> None:
    credits_of(redis).set_cap("acme", 4)
    credits_of(redis).add("acme", 1)
    proxy.lose_reply_to("EVALSHA")
    credits_of(lossy).add("acme", 7)
    assert (proxy.lost_replies, credits_of(redis).of_org("acme").cap_usd_micros) == (1, 12)


@pytest.mark.req("B17")
@pytest.mark.case("RED-07")
def test_a_write_off_whose_reply_got_lost_has_one_row(
    redis: Redis, queue: Queue, proxy: LossyProxy, lossy: Redis
) -> None:
    open_to(redis, "acme")
    credits_of(redis).write_off("acme", ["1"])
    generations_of(redis).submit(new_generation())
    queue.cancel(claim_one(queue).job.id, "acme")
    proxy.lose_reply_to("EVALSHA")

    credits_of(lossy).write_off("acme", ["1"])

    assert proxy.lost_replies == 1
    assert credits_of(redis).of_org("acme").unsettled_usd_micros == 0
    rows = [event for event in ledger(redis) if event["event"] == "credits_written_off"]
    assert [row["properties"]["usd_micros"] for row in rows] == [RESERVED_USD_MICROS]


def at_once(url: str, act: Callable[[Redis, int], Any]) -> list[Any]:
    """What each of 50 clients got that acted at the same instant."""
    clients = [connect(url) for _ in range(AT_ONCE)]
    for client in clients:
        client.ping()
    start = threading.Barrier(AT_ONCE)
    answers: list[Any] = [None] * AT_ONCE

    def run(n: int) -> None:
        start.wait(20)
        answers[n] = act(clients[n], n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    return answers


@pytest.mark.req("B9")
def test_the_same_payload_fifty_times_at_once_is_one_job(redis: Redis, redis_url: str) -> None:
    open_to(redis, "acme")
    digest = new_generation().digest

    answers = at_once(
        redis_url,
        lambda client, n: generations_of(client).submit(
            new_generation(digest=digest, wake_token=f"token-of-step-{n}")
        ),
    )

    assert len({answer.view.id for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert redis.zcard(keys.CHANGED("acme")) == 1
    assert redis.scard(keys.WAITERS(answers[0].view.id)) == 16
    assert problems_of(redis) == []


@pytest.mark.req("B17")
def test_submits_at_the_same_instant_never_reserve_more_than_the_cap(
    redis: Redis, redis_url: str
) -> None:
    open_to(redis, "acme", cap_usd_micros=10 * RESERVED_USD_MICROS)

    answers = at_once(
        redis_url, lambda client, n: generations_of(client).submit(new_generation(team_id=str(n)))
    )

    codes = [answer.view.code for answer in answers]
    assert (codes.count(None), codes.count(GenerationCode.QUOTA_EXCEEDED)) == (10, 40)
    assert credits_of(redis).of_org("acme").left_usd_micros == 0


@pytest.mark.req("B8")
def test_submits_at_the_same_instant_pass_the_throttle_no_more_often_than_it_says(
    redis: Redis, redis_url: str
) -> None:
    open_to(redis, "acme")

    def submit(client: Redis, n: int) -> bool:
        try:
            generations_of(client, per_minute=20).submit(new_generation())
        except Exception as error:  # the test says below what it has to be
            return "throttled" not in str(error)
        return True

    assert at_once(redis_url, submit).count(True) == 20


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Redis]:
    """A server of this test's own, whose memory it may fill."""
    with redis_server(tmp_path) as server:
        client = connect(server.url)
        yield client
        client.config_set("maxmemory", 0)
        assert problems_of(client) == []
        client.close()


def fill(redis: Redis) -> None:
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) - 1)


@pytest.mark.req("X13")
@pytest.mark.case("RED-01")
def test_at_full_memory_a_submit_is_refused_whole_and_every_end_passes(own_redis: Redis) -> None:
    open_to(own_redis, "acme")
    queue = Queue(Scripts(own_redis, queue_name="genqueue"), ticket_cap=16)
    generations = generations_of(own_redis)
    for _ in range(4):
        generations.submit(new_generation(wake_token="token-of-a-step"))
    attempts = claim(queue, 4).attempts
    fill(own_redis)
    before = snapshot(own_redis)
    with pytest.raises(StoreUnavailableError):
        generations.submit(new_generation())
    assert snapshot(own_redis) == before

    for attempt, end in zip(attempts, (succeed, fail, cancel), strict=False):
        assert end(queue, attempt) is Answer.OK
        assert generations.get(attempt.job.id, "1").status != "pending"
    booked = queue.book_generation(attempts[2].job.id, "1", attempts[2].token, "")
    assert booked.answer is Answer.OK
    queue.snooze(attempts[3].job.id, attempts[3].token, "leaving", 0)
    own_redis.config_set("maxmemory", 0)
    own_redis.zadd(keys.EXPIRING(), {attempts[3].job.id: 1}, xx=True)
    fill(own_redis)
    queue.promote()
    assert generations.get(attempts[3].job.id, "1").code is GenerationCode.DEADLINE_EXCEEDED
