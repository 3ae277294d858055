"""What passes when Redis is full? What gives back; what takes is refused whole. (decision 4)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.domain.job import Attempt
from jobs.domain.states import Answer, State
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.credentials import Credentials
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts
from tests.support.factories import claim, claim_one, new_id, new_job, records_of, response_for
from tests.support.invariants import problems_of
from tests.support.job_states import now_ms, reach
from tests.support.redis_server import redis_server
from tests.support.snapshot import snapshot


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A server of this test's own, whose memory it may fill."""
    with redis_server(tmp_path) as server:
        client = connect(server.url)
        yield client
        client.config_set("maxmemory", 0)
        assert problems_of(client) == []
        client.close()


@pytest.fixture
def queue(redis: Redis) -> Queue:
    return Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=16)


def fill(redis: Redis) -> None:
    """No byte more: the limit is where the memory is, with a little for what comes and goes."""
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) - 1)


TAKES: dict[str, Callable[[Queue, Attempt], Any]] = {
    "submit": lambda q, a: q.submit(new_job()),
    "submit with a key": lambda q, a: q.submit(
        new_job(idempotency_key="k", payload_hash="h", metadata={"a": 1}, parent_id=a.job.prompt_id)
    ),
    "claim": lambda q, a: claim(q),
    "claim of many": lambda q, a: claim(q, 50),
    "supersede": lambda q, a: q.supersede("ended", new_id(), "acme", "ada"),
}
GIVES: dict[str, Callable[[Queue, Attempt], Any]] = {
    "succeed": lambda q, a: q.succeed(a.job.id, a.token, response_for(a, text="x" * 50_000)).answer,
    "fail": lambda q, a: q.fail(a.job.id, a.token, ErrorKind.PARSE, "m" * 1000).answer,
    "retry": lambda q, a: q.retry(a.job.id, a.token, ErrorKind.TIMEOUT, "slow", 60_000).answer,
    "retry now": lambda q, a: q.retry(a.job.id, a.token, ErrorKind.TIMEOUT, "slow", 0).answer,
    "snooze": lambda q, a: q.snooze(a.job.id, a.token, "busy", 60_000).answer,
    "cancel": lambda q, a: q.cancel(a.job.id, "acme").answer,
    "cancel of a waiting job": lambda q, a: q.cancel("waiting", "acme").answer,
    "expire": lambda q, a: q.expire("waiting", ErrorKind.BLOCKED, "never").answer,
}


def busy_store(queue: Queue) -> Attempt:
    """A store with an ended, a running and some waiting jobs; answers the running attempt."""
    queue.submit(new_job(id="ended", priority=0))
    ended = claim_one(queue)
    queue.fail("ended", ended.token, ErrorKind.PARSE, "")
    queue.submit(new_job(priority=1))
    running = claim_one(queue)
    for job_id in ("waiting", "next", "last"):
        queue.submit(new_job(id=job_id))
    return running


@pytest.mark.req("X13")
@pytest.mark.case("RED-01")
@pytest.mark.parametrize("act", TAKES.values(), ids=TAKES)
def test_what_takes_memory_is_refused_and_leaves_nothing_half_done(
    redis: Redis, queue: Queue, act: Callable[[Queue, Attempt], Any]
) -> None:
    running = busy_store(queue)
    fill(redis)
    before = snapshot(redis)

    with pytest.raises(StoreUnavailableError) as caught:
        act(queue, running)

    assert caught.value.retry_after_s >= 1
    assert snapshot(redis) == before
    redis.config_set("maxmemory", 0)
    act(queue, running)


@pytest.mark.req("X13", "A14")
@pytest.mark.case("RED-01")
@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten script"])
@pytest.mark.parametrize("act", GIVES.values(), ids=GIVES)
def test_what_ends_an_attempt_passes_whole(
    redis: Redis, queue: Queue, act: Callable[[Queue, Attempt], Any], forgotten: bool
) -> None:
    running = busy_store(queue)
    if forgotten:
        redis.script_flush()
    fill(redis)

    assert act(queue, running) is Answer.OK
    assert problems_of(redis) == []


@pytest.mark.req("X13", "A8")
@pytest.mark.case("RED-01")
def test_heartbeats_sweeps_and_promotions_pass(redis: Redis, queue: Queue) -> None:
    running = busy_store(queue)
    dead = claim_one(queue, window_ms=0)
    waits = claim_one(queue)
    queue.snooze(waits.job.id, waits.token, "busy", 60_000)
    redis.zadd(keys.SCHEDULED(), {waits.job.id: 1})
    redis.set(keys.SWEPT_AT(), now_ms(redis) - 15_000)
    fill(redis)

    assert queue.renew({running.job.id: running.token}, window_ms=90_000) == {}
    assert queue.check({running.job.id: running.token}) == {}
    swept = queue.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)
    assert (swept.renewed, swept.requeued) == (False, 1)
    assert queue.promote().promoted == 1
    assert queue.promote().ticket_wanted
    assert redis.hget(keys.JOB(dead.job.id), "attempt") == "2"
    assert problems_of(redis) == []


@pytest.mark.case("RED-01")
def test_a_look_that_finds_nothing_and_all_reads_pass(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.SUCCEEDED)
    fill(redis)

    assert claim(queue).attempts == ()
    assert records_of(redis).prompt(job.prompt_id) is not None
    with pytest.raises(StoreUnavailableError):
        Credentials(redis).create("acme", "ada")


@pytest.mark.req("X13")
@pytest.mark.case("RED-01")
def test_all_that_was_accepted_ends_after_memory_is_there_again(
    redis: Redis, queue: Queue, records: Records
) -> None:
    ids = []
    reach(queue, State.SUCCEEDED)
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) + 1_000_000)

    def submit_until_full() -> None:
        for _ in range(20_000):
            job = new_job()
            queue.submit(job)
            ids.append(job.id)

    with pytest.raises(StoreUnavailableError):
        submit_until_full()
    assert len(ids) > 50
    # At the very limit a buffer that is freed lets a claim pass: well below it none does.
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) - 500_000)
    with pytest.raises(StoreUnavailableError):
        claim(queue)
    redis.config_set("maxmemory", 0)

    done = []
    while got := claim(queue, 50).attempts:
        for attempt in got:
            queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
            done.append(attempt.job.id)
    assert done == ids
