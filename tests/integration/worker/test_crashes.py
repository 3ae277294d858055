"""Is anything accepted lost, or finished twice, when processes die? (A14, X13's core)"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from jobs import maintenance
from jobs.domain.errors import StoreUnavailableError
from jobs.domain.job import NewJob
from jobs.domain.states import TERMINAL, State
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.answers import Reclaimed
from jobs.store.connection import connect
from jobs.store.records import JobView, Records
from tests.integration.worker.conftest import Submit
from tests.support.factories import new_job, records_of
from tests.support.invariants import problems_of
from tests.support.processes import Fleet, fleet, states, wait_for_states
from tests.support.redis_server import RedisServer, start_redis
from tests.support.waiting import wait_until

LEASE = {"heartbeat_interval_s": 1, "lease_window_s": 2}


def sweep(runtime: Runtime) -> Reclaimed:
    settings = replace(runtime.settings, **LEASE)
    return maintenance.reclaim(replace(runtime, settings=settings))


def view_of(records: Records, job_id: str) -> JobView:
    view = records.job(job_id)
    assert view is not None
    return view


def verbs(view: JobView) -> list[str]:
    return [move.verb for move in view.history]


@pytest.mark.req("A14")
@pytest.mark.case("RQ-01", "LEASE-05", "LEASE-09")
def test_a_job_whose_worker_was_killed_runs_again_and_its_neighbours_do_not(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime, records: Records
) -> None:
    sweep(runtime)
    doomed = ships.thread_worker(redis, **LEASE, worker_concurrency=1)
    lost = submit("[[mock delay=4]]")
    wait_for_states(redis, [lost], State.RUNNING, 5)
    ships.thread_worker(redis, **LEASE, worker_concurrency=4)
    kept = submit("[[mock delay=5]]")
    wait_for_states(redis, [kept], State.RUNNING, 5)

    doomed.signal_group(signal.SIGKILL)

    wait_until(lambda: sweep(runtime).requeued, 5, "the lost job is taken back")
    wait_for_states(redis, [lost, kept], State.SUCCEEDED, 12)
    again = view_of(records, lost)
    assert verbs(again) == ["submit", "claim", "reclaim", "claim", "succeed"]
    assert again.job.attempt == 2
    assert again.history[2].reason == "worker_crash"
    assert verbs(view_of(records, kept)) == ["submit", "claim", "succeed"]


@pytest.mark.req("A14")
def test_a_stopped_worker_that_comes_back_after_its_lease_changes_nothing(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime, records: Records
) -> None:
    sweep(runtime)
    stale = ships.thread_worker(redis, **LEASE, worker_concurrency=1)
    job = submit("[[mock delay=1]]")
    wait_for_states(redis, [job], State.RUNNING, 5)
    stale.signal_group(signal.SIGSTOP)
    wait_until(lambda: sweep(runtime).requeued, 5, "the lease ends")
    ships.thread_worker(redis, **LEASE)
    wait_for_states(redis, [job], State.SUCCEEDED, 10)
    before = view_of(records, job)

    stale.signal_group(signal.SIGCONT)

    wait_until(lambda: "LEASE_LOST" in stale.output() or "WRONG_STATE" in stale.output()
               or "NOT_WRITTEN" in stale.output(), 8, "the stale worker was refused")  # fmt: skip
    assert view_of(records, job) == before
    prompt = records.prompt(before.job.prompt_id)
    assert prompt is not None
    assert len(prompt.edges) == 1
    # Its call was paid for all the same, where it got that far (X16).
    assert [row.attempt for row in prompt.ledger] in ([2], [2, 1])


@pytest.mark.case("LEASE-13")
def test_a_job_that_kills_each_of_its_workers_ends_stuck_with_every_crash_told(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime, records: Records
) -> None:
    sweep(runtime)
    job = submit("[[mock hang]]", max_attempts=2)
    for _ in range(2):
        worker = ships.thread_worker(redis, **LEASE)
        wait_for_states(redis, [job], State.RUNNING, 10)
        worker.signal_group(signal.SIGKILL)
        wait_until(
            lambda: (done := sweep(runtime)).requeued or done.failed, 6, "the sweep takes it"
        )

    view = view_of(records, job)
    assert (view.job.state, view.job.error_kind) == (State.FAILED, "stuck")
    reclaims = [move.reason for move in view.history if move.verb == "reclaim"]
    assert reclaims == ["worker_crash", "worker_crash"]


def test_while_no_scheduler_sweeps_an_idle_worker_does(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    quick = {**LEASE, "sweep_interval_s": 1, "idle_poll_s": 1}
    doomed = ships.thread_worker(redis, **quick)
    job = submit("[[mock delay=1.5]]")
    wait_for_states(redis, [job], State.RUNNING, 5)
    doomed.signal_group(signal.SIGKILL)
    ships.thread_worker(redis, **quick)

    wait_for_states(redis, [job], State.SUCCEEDED, 20)
    assert view_of(records, job).job.attempt == 2


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of this test's own, with an append-only file, to be killed."""
    server = start_redis(tmp_path / "redis", aof=True, extra=("--appendfsync", "always"))
    yield server
    server.stop()


def test_an_answer_survives_a_redis_that_is_away_when_it_arrives(
    durable: RedisServer, tmp_path: Path
) -> None:
    runtime = build(Settings(redis_url=durable.url))
    redis = connect(durable.url)
    with fleet(durable.url, tmp_path) as ships:
        ships.thread_worker(redis)
        job = new_job(prompt_text="[[mock delay=1]]")
        runtime.queue.submit(job)
        runtime.tickets.issue()
        wait_for_states(redis, [job.id], State.RUNNING, 5)

        durable.kill()
        time.sleep(2.5)  # the outage: the call ends while Redis is away
        durable.start()

        wait_for_states(redis, [job.id], State.SUCCEEDED, 15)
        view = view_of(records_of(redis), job.id)
        assert verbs(view) == ["submit", "claim", "succeed"]
        assert problems_of(redis) == []


def test_killing_redis_and_workers_under_load_loses_and_doubles_nothing(
    durable: RedisServer, tmp_path: Path
) -> None:
    runtime = build(Settings(redis_url=durable.url))
    redis = connect(durable.url)
    accepted: list[NewJob] = []
    stop = threading.Event()

    def submit_on_and_on() -> None:
        while not stop.is_set() and len(accepted) < 400:
            job = new_job(prompt_text=f"[[mock delay=0.05]] {len(accepted)}")
            while not stop.is_set():
                try:
                    runtime.queue.submit(job)
                except StoreUnavailableError:
                    stop.wait(0.1)
                else:
                    accepted.append(job)
                    break
            stop.wait(0.01)

    with fleet(durable.url, tmp_path) as ships:
        sweep(runtime)
        lively = {**LEASE, "worker_concurrency": 8, "idle_poll_s": 1}
        first = ships.thread_worker(redis, **lively)
        ships.thread_worker(redis, **lively)
        submitter = threading.Thread(target=submit_on_and_on)
        submitter.start()
        try:
            wait_until(lambda: len(accepted) > 60, 20, "load")
            durable.kill()
            time.sleep(0.5)  # the outage
            durable.start()
            wait_until(lambda: len(accepted) > 150, 20, "load after the restart")
            first.signal_group(signal.SIGKILL)
            submitter.join(30)
        finally:
            stop.set()
            submitter.join(5)
        ids = [job.id for job in accepted]

        def all_ended() -> bool:
            sweep(runtime)
            return set(states(redis, ids)) <= TERMINAL

        wait_until(all_ended, 40, "every accepted job ends")
        assert set(states(redis, ids)) == {State.SUCCEEDED}
        assert problems_of(redis) == []
        for job in accepted:
            assert redis.llen(keys.LEDGER(job.prompt_id)) == 1
            assert redis.llen(keys.EDGES(job.prompt_id)) == 1
