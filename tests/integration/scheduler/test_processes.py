"""Do the ticks go on when processes die, and Redis? With `python -m scheduler` as it is run."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from rq import Queue as RqQueue

from jobs.settings import Settings
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.ticks import Ticks
from jobs.tickets import connect_rq
from scheduler.schedule import ticks
from tests.support.clock import (
    SCHEDULER,
    TICK_LIST,
    start_scheduler,
    status,
    wait_for_ticks,
)
from tests.support.factories import claim, new_job
from tests.support.invariants import problems_of
from tests.support.processes import Fleet, fleet, rq_command
from tests.support.redis_server import RedisServer, start_redis
from tests.support.waiting import wait_until

GOES_ON_S = 15.0
FOREIGN = (
    sys.executable,
    "-c",
    "from rq_scheduler.scripts.rqscheduler import main; main()",
    "--interval",
    "1",
    "--url",
)
FOREIGN_JOB = (
    sys.executable,
    "-c",
    """
import datetime, sys
from redis import Redis
from rq_scheduler import Scheduler

foreign = Scheduler("foreign", connection=Redis.from_url(sys.argv[1]))
soon = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
foreign.schedule(soon, "os.getpid", interval=2, id="foreign-job")
""",
)
"""In a process of its own: other tests of this one make JSON the serializer of all RQ jobs."""


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of this test's own, with an append-only file, to be killed."""
    server = start_redis(tmp_path / "redis", aof=True, extra=("--appendfsync", "always"))
    yield server
    server.stop()


def schedule_in_the_past(redis: Redis, queue: Queue, count: int) -> list[str]:
    """Jobs that wait in the scheduled set and are due."""
    jobs = [new_job(scheduled_for_ms=Ticks(redis).now_ms() + 3_600_000) for _ in range(count)]
    for job in jobs:
        queue.submit(job)
    redis.zadd(keys.SCHEDULED(), {job.id: 1 + n for n, job in enumerate(jobs)})
    return [job.id for job in jobs]


@pytest.mark.req("A8", "X13")
@pytest.mark.case("SCH-03", "RQ-13")
def test_two_schedulers_promote_each_of_many_due_jobs_once(
    redis: Redis, ships: Fleet, queue: Queue
) -> None:
    jobs = schedule_in_the_past(redis, queue, 300)
    start_scheduler(ships, redis)
    start_scheduler(ships, redis)

    wait_until(lambda: redis.zcard(keys.SCHEDULED()) == 0, 10, "all are promoted")
    wait_for_ticks(redis, within_s=5, more=3)

    assert status(redis).total == 300
    claimed = claim(queue, 1000).attempts
    assert sorted(attempt.job.id for attempt in claimed) == sorted(jobs)


@pytest.mark.req("X13")
@pytest.mark.case("RQ-05", "LEASE-17")
def test_ticks_go_on_when_one_of_two_schedulers_is_killed(redis: Redis, ships: Fleet) -> None:
    doomed = start_scheduler(ships, redis)
    kept = start_scheduler(ships, redis)

    doomed.signal_group(signal.SIGKILL)
    doomed.wait(5)

    wait_for_ticks(redis, within_s=GOES_ON_S, more=5, process=kept)


@pytest.mark.req("X13")
@pytest.mark.case("LEASE-17")
def test_a_scheduler_killed_at_any_point_leaves_nothing_that_holds_up_the_next(
    redis: Redis, ships: Fleet
) -> None:
    for ticks_before_the_kill in range(1, 5):
        doomed = start_scheduler(ships, redis)
        wait_for_ticks(redis, within_s=GOES_ON_S, more=ticks_before_the_kill)
        doomed.signal_group(signal.SIGKILL)
        doomed.wait(5)

    start_scheduler(ships, redis)
    wait_for_ticks(redis, within_s=GOES_ON_S, more=2)
    assert redis.zcard(keys.SCHEDULER_DUE()) == len(ticks(Settings()))


@pytest.mark.req("X13")
@pytest.mark.case("LEASE-17")
def test_a_lock_that_a_dead_scheduler_left_behind_is_in_nobodys_way(
    redis: Redis, ships: Fleet
) -> None:
    redis.set("rq:scheduler_lock", 1)
    redis.hset(keys.SCHEDULER("lock"), "owner", "dead")

    start_scheduler(ships, redis)

    wait_for_ticks(redis, within_s=5, more=2)


@pytest.mark.req("X13")
def test_a_foreign_scheduler_on_the_same_redis_and_ours_leave_each_other_alone(
    redis: Redis, redis_url: str, ships: Fleet
) -> None:
    raw = connect_rq(redis_url)
    assert ships.start((*FOREIGN_JOB, redis_url)).wait(20) == 0
    ours = start_scheduler(ships, redis)

    theirs = ships.start((*FOREIGN, redis_url))
    foreign_queue = RqQueue("foreign", connection=raw)
    wait_until(lambda: len(foreign_queue) >= 2, 40, "the foreign job is queued twice")

    wait_for_ticks(redis, within_s=5, more=3, process=ours)
    assert theirs.is_running
    assert redis.zcard(keys.SCHEDULER_DUE()) == len(ticks(Settings()))
    assert redis.zrange("rq:scheduler:scheduled_jobs", 0, -1) == ["foreign-job"]


@pytest.mark.req("X7")
def test_rq_suspend_does_not_stop_the_ticks(redis: Redis, ships: Fleet) -> None:
    start_scheduler(ships, redis)
    assert ships.start(rq_command("suspend")).wait(20) == 0
    assert redis.exists("rq:suspended")

    wait_for_ticks(redis, within_s=5, more=3)


@pytest.mark.req("X7")
def test_rq_empty_of_the_ticks_queue_costs_a_tick_or_two(redis: Redis, ships: Fleet) -> None:
    process = start_scheduler(ships, redis)
    # A worker that waits, though stopped, still gets the first: hence promote twice.
    names = ("promote", "promote", "reclaim", "repair")
    for _ in range(3):
        process.signal(signal.SIGSTOP)
        redis.rpush(TICK_LIST, *[f"genqueue-tick-{n}" for n in names])
        assert ships.start(rq_command("empty", "--all")).wait(20) == 0
        assert not redis.exists("rq:job:genqueue-tick-promote")
        process.signal(signal.SIGCONT)

        wait_for_ticks(redis, within_s=GOES_ON_S, more=2, process=process)


@pytest.mark.req("X13")
def test_copies_that_piled_up_while_no_worker_ran_are_not_all_run(
    redis: Redis, ships: Fleet
) -> None:
    start_scheduler(ships, redis).end()
    before = status(redis).runs
    redis.rpush(TICK_LIST, *["genqueue-tick-promote"] * 500)

    start_scheduler(ships, redis)

    wait_until(lambda: redis.llen(TICK_LIST) == 0, 5, "the queue is empty")
    assert status(redis).runs - before < 10


@pytest.mark.req("X13")
def test_ticks_go_on_after_redis_was_away_for_ten_seconds(
    durable: RedisServer, tmp_path: Path
) -> None:
    redis = connect(durable.url)
    with fleet(durable.url, tmp_path) as ships:
        process = start_scheduler(ships, redis)
        before = status(redis).runs
        durable.kill()
        wait_until(lambda: "waits for Redis" in process.output(), 10, "the outage is seen")
        time.sleep(10)  # the outage
        durable.start()

        wait_until(lambda: status(redis).runs >= before + 3, GOES_ON_S, "ticks go on")
        assert process.is_running
        assert "Redis is back" in process.output()
        assert problems_of(redis) == []


@pytest.mark.req("X13")
def test_ticks_go_on_after_redis_lost_everything(redis: Redis, ships: Fleet) -> None:
    process = start_scheduler(ships, redis)

    redis.flushall()

    wait_for_ticks(redis, within_s=GOES_ON_S, more=2, process=process)
    assert redis.zcard(keys.SCHEDULER_DUE()) == len(ticks(Settings()))


@pytest.mark.req("X13")
def test_a_scheduler_that_starts_before_redis_waits_for_it(
    durable: RedisServer, tmp_path: Path
) -> None:
    redis = connect(durable.url)
    durable.kill()
    with fleet(durable.url, tmp_path) as ships:
        process = ships.start(SCHEDULER)
        wait_until(lambda: "waits for Redis" in process.output(), 20, "it waits")
        durable.start()

        wait_for_ticks(redis, within_s=GOES_ON_S, more=2, process=process)


@pytest.mark.req("X13")
def test_ticks_go_on_at_full_memory_since_they_are_what_frees_it(
    redis: Redis, ships: Fleet
) -> None:
    process = start_scheduler(ships, redis)
    redis.config_set("maxmemory", 1)
    try:
        wait_for_ticks(redis, within_s=5, more=3, process=process)
        process.end()
        again = ships.start(SCHEDULER)
        wait_for_ticks(redis, within_s=20, more=3, process=again)
    finally:
        redis.config_set("maxmemory", 0)


def test_sigterm_ends_both_parts_within_five_seconds(redis: Redis, ships: Fleet) -> None:
    process = start_scheduler(ships, redis)

    process.signal(signal.SIGTERM)

    assert process.wait(5) == 0
    assert redis.smembers("rq:workers") == set()


def test_sigterm_ends_it_within_five_seconds_also_while_redis_hangs(
    durable: RedisServer, tmp_path: Path
) -> None:
    redis = connect(durable.url)
    with fleet(durable.url, tmp_path) as ships:
        process = start_scheduler(ships, redis)
        redis.execute_command("CLIENT", "PAUSE", 20_000)
        time.sleep(1.5)  # until both parts wait for an answer

        process.signal(signal.SIGTERM)

        assert process.wait(5) == 0


def test_a_wrong_setting_is_one_line_and_status_2(ships: Fleet) -> None:
    process = ships.start(SCHEDULER, sweep_interval_s="often")

    assert process.wait(20) == 2
    assert process.output().splitlines() == [
        "scheduler: GENQUEUE_SWEEP_INTERVAL_S: must be a whole number from 1 to 60"
    ]
