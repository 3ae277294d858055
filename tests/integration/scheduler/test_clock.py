"""Does the clock go on, and fire each tick once, whatever is in Redis? Step by step."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable

import pytest
from redis import Redis
from rq.serializers import DefaultSerializer

from jobs.store import keys
from jobs.store.ticks import Ticks
from jobs.tickets import connect_rq
from scheduler.schedule import Tick
from tests.support.clock import (
    TICK_LIST,
    TICK_QUEUE,
    make_clock,
    make_tick_worker,
    status,
)

PROMOTE = Tick("promote", "jobs.entrypoints.tick_promote", 1)
DAILY = Tick("daily", "jobs.entrypoints.tick_promote", 86_400)
DUE = keys.SCHEDULER_DUE()


def now_s(redis: Redis) -> float:
    return Ticks(redis).now_ms() / 1000


def due_s(redis: Redis, tick: Tick) -> float | None:
    return redis.zscore(DUE, tick.job_id)


@pytest.mark.req("X13")
@pytest.mark.case("SCH-01", "SCH-03")
def test_two_schedulers_without_a_lock_queue_each_of_300_due_ticks_once(
    redis: Redis, redis_url: str
) -> None:
    table = [Tick(f"t-{n}", "jobs.entrypoints.tick_promote", 3600) for n in range(300)]
    clocks = [make_clock(redis, redis_url, table) for _ in range(2)]
    for clock in clocks:
        clock.register_table()
    start = threading.Barrier(2)
    fired: list[str] = []

    def fire_all(clock: object) -> None:
        start.wait(10)
        pause_s = 0.0
        while pause_s == 0.0:
            ids, pause_s = clock.enqueue_jobs()  # type: ignore[attr-defined]
            fired.extend(ids)

    threads = [threading.Thread(target=fire_all, args=(clock,)) for clock in clocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    queued = redis.lrange(TICK_LIST, 0, -1)
    assert sorted(queued) == sorted(fired) == sorted(tick.job_id for tick in table)
    assert redis.zcount(DUE, "-inf", now_s(redis)) == 0


@pytest.mark.case("SCH-05")
def test_what_was_missed_is_made_up_for_once_and_not_once_an_interval(
    redis: Redis, redis_url: str
) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE])
    clock.register_table()
    redis.zadd(DUE, {PROMOTE.job_id: now_s(redis) - 600})

    assert clock.enqueue_jobs() == ([PROMOTE.job_id], 0.0)
    assert clock.enqueue_jobs()[0] == []
    assert redis.llen(TICK_LIST) == 1


def lost_job(redis: Redis, job_id: str, _bytes: Redis) -> None:
    redis.delete(f"rq:job:{job_id}")


def of_another_type(redis: Redis, job_id: str, _bytes: Redis) -> None:
    redis.delete(f"rq:job:{job_id}")
    redis.set(f"rq:job:{job_id}", "x", ex=60)


def forbidden(redis: Redis, job_id: str, raw: Redis) -> None:
    raw.hset(f"rq:job:{job_id}", "data", json.dumps(["os.getpid", None, [], {}]))


def without_function(redis: Redis, job_id: str, raw: Redis) -> None:
    raw.hset(f"rq:job:{job_id}", "data", json.dumps(["jobs.entrypoints.tick_gone", None, [], {}]))


def pickled(redis: Redis, job_id: str, raw: Redis) -> None:
    payload = DefaultSerializer.dumps(("jobs.entrypoints.tick_promote", None, (), {}))
    raw.hset(f"rq:job:{job_id}", "data", zlib.compress(payload))


def odd_interval(redis: Redis, job_id: str, raw: Redis) -> None:
    raw.hset(f"rq:job:{job_id}", "meta", '{"interval": "soon"}')


def endless_interval(redis: Redis, job_id: str, raw: Redis) -> None:
    raw.hset(f"rq:job:{job_id}", "meta", '{"interval": NaN}')


BROKEN = (
    lost_job,
    of_another_type,
    forbidden,
    without_function,
    pickled,
    odd_interval,
    endless_interval,
)


@pytest.mark.req("X13")
@pytest.mark.case("SCH-07")
@pytest.mark.parametrize("break_it", BROKEN, ids=lambda f: f.__name__)
def test_an_entry_that_cannot_run_is_removed_and_blocks_nothing_behind_it(
    redis: Redis, redis_url: str, break_it: Callable[[Redis, str, Redis], None]
) -> None:
    bad = Tick("bad", "jobs.entrypoints.tick_promote", 3600)
    writer = make_clock(redis, redis_url, [bad])
    writer.register_table()
    clock = make_clock(redis, redis_url, [PROMOTE])
    clock.verify_table()
    redis.zadd(DUE, {bad.job_id: 1})
    break_it(redis, bad.job_id, connect_rq(redis_url))

    assert clock.enqueue_jobs()[0] == [PROMOTE.job_id]
    assert redis.zrange(DUE, 0, -1) == [PROMOTE.job_id]
    assert redis.lrange(TICK_LIST, 0, -1) == [PROMOTE.job_id]


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda f: f.__name__)
def test_a_broken_entry_of_the_table_is_put_back_whole(
    redis: Redis, redis_url: str, break_it: Callable[[Redis, str, Redis], None]
) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE])
    clock.register_table()
    break_it(redis, PROMOTE.job_id, connect_rq(redis_url))

    assert clock.enqueue_jobs()[0] == []
    soon_s = due_s(redis, PROMOTE)
    assert soon_s is not None
    assert 0 < soon_s - now_s(redis) <= 1
    redis.zadd(DUE, {PROMOTE.job_id: 1})
    assert clock.enqueue_jobs()[0] == [PROMOTE.job_id]


def test_a_lost_periodic_entry_is_put_back_and_one_too_far_off_is_brought_near(
    redis: Redis, redis_url: str
) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE, DAILY])
    clock.register_table()
    redis.zrem(DUE, PROMOTE.job_id)
    redis.zadd(DUE, {DAILY.job_id: now_s(redis) + 10 * 86_400})

    clock.verify_table()

    promote_s, daily_s = due_s(redis, PROMOTE), due_s(redis, DAILY)
    assert promote_s is not None
    assert daily_s is not None
    assert promote_s <= now_s(redis)
    assert daily_s <= now_s(redis) + 86_400


def test_a_verified_table_is_left_as_it_is(redis: Redis, redis_url: str) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE, DAILY])
    clock.register_table()
    clock.enqueue_jobs()
    before = redis.zrange(DUE, 0, -1, withscores=True)

    clock.verify_table()

    assert redis.zrange(DUE, 0, -1, withscores=True) == before


def test_a_restart_neither_repeats_a_daily_tick_nor_puts_it_off(
    redis: Redis, redis_url: str
) -> None:
    clock = make_clock(redis, redis_url, [DAILY])
    clock.register_table()
    clock.enqueue_jobs()
    make_tick_worker(redis, redis_url).step()
    ran_at_ms = status(redis, "daily").ran_at_ms
    assert ran_at_ms is not None

    for _ in range(3):
        make_clock(redis, redis_url, [DAILY]).register_table()

    assert due_s(redis, DAILY) == pytest.approx(ran_at_ms / 1000 + 86_400, abs=1)
    assert clock.enqueue_jobs()[0] == []


def test_a_daily_tick_whose_firing_was_lost_runs_a_minute_after_it_should_have(
    redis: Redis, redis_url: str
) -> None:
    clock = make_clock(redis, redis_url, [DAILY])
    clock.register_table()
    clock.enqueue_jobs()
    make_tick_worker(redis, redis_url).step()
    yesterday_ms = round(1000 * (now_s(redis) - 86_400 - 61))
    redis.hset(keys.TICKS(), "daily:ran_at_ms", yesterday_ms)

    clock.verify_table()

    assert clock.enqueue_jobs()[0] == [DAILY.job_id]


def test_a_start_removes_entries_that_no_table_has(redis: Redis, redis_url: str) -> None:
    make_clock(redis, redis_url, [DAILY]).register_table()

    make_clock(redis, redis_url, [PROMOTE]).register_table()

    assert redis.zrange(DUE, 0, -1) == [PROMOTE.job_id]


@pytest.mark.req("X12")
@pytest.mark.case("SCH-07")
def test_nothing_that_the_clock_stores_is_a_pickle(redis: Redis, redis_url: str) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE])
    worker = make_tick_worker(redis, redis_url)
    raw = connect_rq(redis_url)
    clock.step()
    fields = raw.hgetall(f"rq:job:{PROMOTE.job_id}")
    worker.step()

    assert json.loads(zlib.decompress(fields[b"data"])) == [
        "jobs.entrypoints.tick_promote",
        None,
        [],
        {},
    ]
    assert json.loads(fields[b"meta"])["interval"] == 1
    values = [
        value
        for name in raw.scan_iter()
        if raw.type(name) == b"hash"
        for value in raw.hgetall(name).values()
    ]
    assert values
    assert not [value for value in values if value.startswith(b"\x80")]
    assert not raw.keys("rq:results:*")


@pytest.mark.req("X13")
def test_all_keys_of_rq_scheduler_carry_our_prefix(redis: Redis, redis_url: str) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE])
    parent = type(clock).__mro__[1]
    names = [name for name, value in vars(parent).items() if str(value).startswith("rq:")]

    assert len(names) == 4
    assert all(getattr(clock, name).startswith(keys.PREFIX + "scheduler") for name in names)
    clock.step()
    clock.register_death()
    assert not [name for name in redis.scan_iter() if name.startswith("rq:scheduler")]


def test_copies_of_a_tick_that_piled_up_are_dropped_but_the_newest(
    redis: Redis, redis_url: str
) -> None:
    table = [PROMOTE, DAILY]
    make_clock(redis, redis_url, table).register_table()
    redis.rpush(TICK_LIST, *[PROMOTE.job_id, DAILY.job_id] * 400, PROMOTE.job_id)

    assert make_tick_worker(redis, redis_url).step() == 2

    assert redis.llen(TICK_LIST) == 0
    assert [status(redis, tick.name).runs for tick in table] == [1, 1]


@pytest.mark.parametrize("break_it", BROKEN[:5], ids=lambda f: f.__name__)
def test_a_tick_that_fails_is_written_down_and_the_next_one_runs(
    redis: Redis, redis_url: str, break_it: Callable[[Redis, str, Redis], None]
) -> None:
    make_clock(redis, redis_url, [PROMOTE, DAILY]).register_table()
    break_it(redis, DAILY.job_id, connect_rq(redis_url))
    redis.rpush(TICK_LIST, DAILY.job_id, PROMOTE.job_id)

    make_tick_worker(redis, redis_url).step()

    assert status(redis, "promote").runs == 1
    assert status(redis, "daily").runs == 0
    known = break_it not in (lost_job, of_another_type)
    assert status(redis, "daily").failures == int(known)
    assert bool(status(redis, "daily").failure) == known


@pytest.mark.req("A8")
def test_count_duration_and_lateness_of_a_run_are_kept(redis: Redis, redis_url: str) -> None:
    clock = make_clock(redis, redis_url, [PROMOTE])
    clock.register_table()
    redis.zadd(DUE, {PROMOTE.job_id: now_s(redis) - 2})
    clock.enqueue_jobs()
    make_tick_worker(redis, redis_url).step()

    first = status(redis)

    assert first.interval_ms == 1000
    assert 2_000 <= first.late_ms < 10_000
    assert abs(Ticks(redis).now_ms() - (first.ran_at_ms or 0)) < 10_000
    assert (first.runs, first.failures, first.failure) == (1, 0, "")


def test_a_worker_of_ticks_is_shown_by_rq(redis: Redis, redis_url: str) -> None:
    worker = make_tick_worker(redis, redis_url)
    redis.rpush(TICK_LIST, "unknown")

    worker.step()

    assert redis.smembers(f"rq:workers:{TICK_QUEUE}") == {worker.key}
    assert redis.hget(worker.key, "state") == "idle"
