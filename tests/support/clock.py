"""How does a test run the clock, as a process or step by step?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from redis import Redis

from jobs.store.scripts import Scripts
from jobs.store.ticks import TickLog, Ticks, TickStatus
from jobs.tickets import connect_rq
from scheduler.clock import TickScheduler
from scheduler.schedule import Tick
from scheduler.tick_worker import TickWorker
from tests.support.processes import Fleet, Process
from tests.support.waiting import wait_until

SCHEDULER = (sys.executable, "-m", "scheduler")
TICK_QUEUE = "genqueue-ticks"
TICK_LIST = f"rq:queue:{TICK_QUEUE}"
START_S = 20.0


def status(redis: Redis, name: str = "promote") -> TickStatus:
    """What is written down of a tick; all zero where it never ran."""
    return Ticks(redis).all().get(name, TickStatus(name, 0))


def start_scheduler(fleet: Fleet, redis: Redis, **settings: object) -> Process:
    """`python -m scheduler`, once it has run a tick."""
    process = fleet.start(SCHEDULER, **settings)
    wait_for_ticks(redis, within_s=START_S, process=process)
    return process


def wait_for_ticks(
    redis: Redis, *, within_s: float, more: int = 1, process: Process | None = None
) -> None:
    """Wait until promotion ran `more` times more."""
    before = status(redis).runs
    wait_until(
        lambda: (
            status(redis).runs >= before + more or (process is not None and not process.is_running)
        ),
        within_s,
        f"{more} more ticks",
    )
    assert process is None or process.is_running, process.output()


def tick_log(redis: Redis) -> TickLog:
    """The write side on this Redis."""
    return TickLog(Scripts(redis, queue_name="genqueue"))


def make_clock(redis: Redis, url: str, table: Sequence[Tick]) -> TickScheduler:
    """A clock in this process, to be stepped by hand."""
    return TickScheduler(table, connect_rq(url), TICK_QUEUE, tick_log(redis), Ticks(redis))


def make_tick_worker(redis: Redis, url: str) -> TickWorker:
    """A worker of ticks in this process, to be stepped by hand."""
    return TickWorker(TICK_QUEUE, connect_rq(url), tick_log(redis))
