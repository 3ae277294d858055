"""Does the clock's world change once when Redis did the work and the reply got lost?"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.scripts import Scripts
from jobs.store.ticks import TickLog, TickRun
from scheduler.schedule import Tick
from tests.support.clock import TICK_LIST, make_clock, status, tick_log
from tests.support.lossy_proxy import LossyProxy, lossy_proxy

PROMOTE = Tick("promote", "jobs.entrypoints.tick_promote", 1)
CALL = "EVALSHA"


@pytest.fixture
def proxy(redis_url: str) -> Iterator[LossyProxy]:
    port = urlsplit(redis_url).port
    assert port is not None
    with lossy_proxy(port) as proxy:
        yield proxy


@pytest.fixture
def lossy(proxy: LossyProxy, redis: Redis) -> Iterator[TickLog]:
    """A log whose replies get lost; Redis knows its scripts, so each call is one EVALSHA."""
    log = tick_log(redis)
    fire(log, "none", "1")
    log.ticked(run_of("none"))
    redis.delete(keys.TICKS())
    client = connect(proxy.url)
    client.ping()
    yield TickLog(Scripts(client, queue_name="genqueue"))
    client.close()


def fire(log: TickLog, entry: str, due: str) -> str:
    return log.fire(
        entry, due=due, later="9e9", queues_key="rq:queues", queue_key=TICK_LIST, meta="{}"
    )


def run_of(token: str) -> TickRun:
    return TickRun("promote", token, 1, due_at_ms=None, took_ms=3, count=7)


@pytest.mark.case("RED-07")
def test_a_firing_whose_reply_got_lost_queues_one_tick(
    redis: Redis, redis_url: str, lossy: TickLog, proxy: LossyProxy
) -> None:
    make_clock(redis, redis_url, [PROMOTE]).register_table()
    (due_s,) = (score for _, score in redis.zrange(keys.SCHEDULER_DUE(), 0, -1, withscores=True))
    proxy.lose_reply_to(CALL)

    assert fire(lossy, PROMOTE.job_id, repr(due_s)) == "EARLY"

    assert proxy.count_of(CALL) == 2
    assert redis.lrange(TICK_LIST, 0, -1) == [PROMOTE.job_id]


@pytest.mark.case("RED-07")
def test_a_run_whose_reply_got_lost_is_counted_once(
    redis: Redis, lossy: TickLog, proxy: LossyProxy
) -> None:
    proxy.lose_reply_to(CALL)

    lossy.ticked(run_of("first"))
    assert proxy.count_of(CALL) == 2
    assert (status(redis).runs, status(redis).total) == (1, 7)

    lossy.ticked(run_of("second"))
    assert (status(redis).runs, status(redis).total) == (2, 14)
