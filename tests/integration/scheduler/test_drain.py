"""Does the clock work off a batch itself where no worker is up, and only there? (A6)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.states import State
from jobs.store.ticks import Ticks
from tests.integration.worker.conftest import Submit
from tests.support.clock import start_scheduler
from tests.support.processes import Fleet, states, wait_for_states
from tests.support.waiting import wait_until


@pytest.mark.req("A6")
def test_without_a_worker_the_clock_drains_where_it_is_asked_to(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    jobs = [submit() for _ in range(12)]

    start_scheduler(ships, redis, drain_interval_s=1)

    wait_for_states(redis, jobs, State.SUCCEEDED, 20)


@pytest.mark.req("A6")
def test_it_leaves_the_work_to_a_worker_that_is_up(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, worker_concurrency=1)
    jobs = [submit("[[mock delay=1.5]]") for _ in range(3)]
    start_scheduler(ships, redis, drain_interval_s=1)

    wait_until(lambda: (t := Ticks(redis).all().get("drain")) and t.runs >= 3, 15, "it looked")
    assert sum(state == State.RUNNING for state in states(redis, jobs)) <= 1


@pytest.mark.req("A6")
def test_unasked_it_does_not(redis: Redis, ships: Fleet, submit: Submit) -> None:
    job = submit()
    start_scheduler(ships, redis)

    wait_until(lambda: (t := Ticks(redis).all().get("promote")) and t.runs >= 4, 15, "it ticks")
    assert states(redis, [job]) == [State.QUEUED]
