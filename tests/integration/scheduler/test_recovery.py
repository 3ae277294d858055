"""Is lost work found, and due work begun, in the time that is promised, by the clock alone?"""

from __future__ import annotations

import signal

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.ticks import Ticks
from tests.integration.worker.conftest import Submit
from tests.support.clock import start_scheduler
from tests.support.factories import claim_one, new_job
from tests.support.processes import (
    RQ_CLASSES,
    START_S,
    Fleet,
    rq_command,
    wait_for_states,
)
from tests.support.waiting import wait_until

WINDOW_S = 3
SWEEP_S = 1
LEASE = {"heartbeat_interval_s": 1, "lease_window_s": WINDOW_S, "sweep_interval_s": SWEEP_S}
SLACK_MS = 500
"""A tick takes a moment to come through on a busy machine."""


def moves(redis: Redis, job_id: str) -> list[tuple[str, int, str]]:
    """Verb, instant (ms) and reason of every move that is stored."""
    rows = [row.split("|", 6) for row in redis.lrange(keys.HISTORY(job_id), 0, -1)]
    return [(row[2], int(row[1]), row[6]) for row in rows]


@pytest.mark.req("A8", "A14", "X13")
@pytest.mark.case("RQ-15")
def test_the_job_of_a_killed_worker_is_queued_again_within_window_and_two_sweeps(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    start_scheduler(ships, redis, **LEASE)
    doomed = ships.thread_worker(redis, **LEASE)
    job = submit("[[mock hang]]")
    wait_for_states(redis, [job], State.RUNNING, 10)

    killed_at_ms = Ticks(redis).now_ms()
    doomed.signal_group(signal.SIGKILL)
    wait_for_states(redis, [job], State.QUEUED, 20)

    verb, at_ms, reason = moves(redis, job)[-1]
    assert (verb, reason) == ("reclaim", "worker_crash")
    assert at_ms - killed_at_ms <= 1000 * (WINDOW_S + 2 * SWEEP_S) + SLACK_MS
    view = records.job(job)
    assert view is not None
    assert view.job.attempt == 2
    wait_until(lambda: redis.llen("rq:queue:genqueue") >= 1, 3, "somebody is invited")


@pytest.mark.req("A8", "A12")
@pytest.mark.case("RQ-13")
def test_a_job_that_kills_each_of_its_workers_ends_stuck_by_the_clock_alone(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    # Two clocks: each reclaim is counted once.
    for _ in range(2):
        start_scheduler(ships, redis, **LEASE)
    job = submit("[[mock hang]]", max_attempts=2)
    for attempt in (1, 2):
        doomed = ships.thread_worker(redis, **LEASE)
        wait_for_states(redis, [job], State.RUNNING, 15)
        doomed.signal_group(signal.SIGKILL)
        after = State.QUEUED if attempt == 1 else State.FAILED
        wait_for_states(redis, [job], after, 20)

    view = records.job(job)
    assert view is not None
    assert (view.job.error_kind, view.job.attempt) == ("stuck", 2)
    assert [m.verb for m in view.history].count("reclaim") == 2


@pytest.mark.req("A8")
def test_a_lost_ticket_is_made_up_for_by_the_clock(
    redis: Redis, ships: Fleet, queue: Queue
) -> None:
    job = new_job()
    queue.submit(job)

    start_scheduler(ships, redis)

    wait_until(lambda: redis.llen("rq:queue:genqueue"), 5, "a ticket is issued")


def lateness_ms(redis: Redis, runtime: Runtime, count: int) -> list[int]:
    """How late jobs began that a failed attempt had put off to instants of the next seconds."""
    due: dict[str, int] = {}
    for n in range(count):
        job = new_job()
        runtime.queue.submit(job)
        attempt = claim_one(runtime.queue)
        runtime.queue.retry(
            job.id, attempt.token, ErrorKind.RATE_LIMIT, "slow down", 1500 + 370 * n
        )
        due[job.id] = int(redis.zscore(keys.SCHEDULED(), job.id) or 0)
    wait_for_states(redis, list(due), State.SUCCEEDED, 40)
    begun = {
        job_id: [at_ms for verb, at_ms, _ in moves(redis, job_id) if verb == "claim"][-1]
        for job_id in due
    }
    return [begun[job_id] - due[job_id] for job_id in due]


@pytest.mark.req("A29")
def test_due_work_begins_at_most_a_second_late_with_a_thread_worker(
    redis: Redis, ships: Fleet, runtime: Runtime
) -> None:
    start_scheduler(ships, redis)
    ships.thread_worker(redis)

    late_ms = lateness_ms(redis, runtime, 6)

    assert min(late_ms) >= 0
    assert max(late_ms) <= 1000


@pytest.mark.req("A29")
def test_due_work_begins_at_most_three_seconds_late_with_a_plain_rq_worker(
    redis: Redis, ships: Fleet, runtime: Runtime
) -> None:
    start_scheduler(ships, redis)
    ships.start(rq_command("worker", "genqueue", *RQ_CLASSES))
    wait_until(lambda: redis.scard("rq:workers:genqueue"), START_S, "the worker registers")

    late_ms = lateness_ms(redis, runtime, 4)

    assert min(late_ms) >= 0
    assert max(late_ms) <= 3000
