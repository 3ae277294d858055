"""Does one worker process run many attempts at once, and does RQ stay RQ? (X8, decision 10)"""

from __future__ import annotations

import json
import signal
import time
from itertools import pairwise

import pytest
from redis import Redis
from rq import Queue as RqQueue
from rq import Worker
from rq.command import send_stop_job_command
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer
from rq.suspension import resume, suspend

from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.records import Records
from tests.integration.worker.conftest import Submit
from tests.support.processes import Fleet, states, wait_for_states
from tests.support.waiting import wait_until


@pytest.mark.req("X8")
def test_one_process_runs_as_many_attempts_at_once_as_it_has_slots(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, worker_concurrency=10)

    jobs = [submit("[[mock delay=1]]") for _ in range(10)]

    wait_until(lambda: redis.zcard(keys.RUNNING()) == 10, 5, "ten attempts run at once")
    wait_for_states(redis, jobs, State.SUCCEEDED, 5)


@pytest.mark.req("X8")
def test_a_process_never_runs_more_than_its_slots(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, worker_concurrency=3)

    jobs = [submit("[[mock delay=0.2]]") for _ in range(12)]

    most = 0
    while set(states(redis, jobs)) != {State.SUCCEEDED}:
        most = max(most, redis.zcard(keys.RUNNING()))
    assert most == 3


def test_a_single_ticket_is_enough_for_a_backlog(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    jobs = [submit() for _ in range(200)]
    redis.delete("rq:queue:genqueue")
    runtime.tickets.issue()

    ships.thread_worker(redis, worker_concurrency=8, idle_poll_s=60)

    wait_for_states(redis, jobs, State.SUCCEEDED, 10)


@pytest.mark.case("RQ-11")
def test_a_job_whose_ticket_was_lost_is_found_by_the_idle_poll(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, idle_poll_s=1)
    suspend(redis)
    job = submit()
    redis.delete("rq:queue:genqueue")
    resume(redis)

    wait_for_states(redis, [job], State.SUCCEEDED, 10)


def test_running_attempts_are_named_by_their_ticket(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    ships.thread_worker(redis)
    job = submit("[[mock delay=2]]")
    wait_for_states(redis, [job], State.RUNNING, 5)

    queue = RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)
    described = [
        RqJob.fetch(ticket, connection=runtime.rq_redis, serializer=JSONSerializer).description
        for ticket in queue.started_job_registry.get_job_ids(cleanup=False)
    ]

    assert any(job in text for text in described), described
    wait_for_states(redis, [job], State.SUCCEEDED, 5)


def test_a_ticket_leaves_nothing_behind(redis: Redis, ships: Fleet, submit: Submit) -> None:
    ships.thread_worker(redis)
    wait_for_states(redis, [submit() for _ in range(20)], State.SUCCEEDED, 10)

    wait_until(
        lambda: not list(redis.scan_iter(match="rq:job:*")), 10, "the tickets' hashes are gone"
    )
    left = {name for name in redis.scan_iter(match="rq:*") if redis.ttl(name) < 0}
    assert left <= {"rq:queues", "rq:workers", "rq:workers:genqueue"}


@pytest.mark.req("A7")
def test_the_heartbeat_goes_on_while_the_provider_call_blocks(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime, records: Records
) -> None:
    ships.thread_worker(redis, heartbeat_interval_s=1, lease_window_s=3)
    job = submit("[[mock delay=6]]")
    wait_for_states(redis, [job], State.RUNNING, 5)

    beats = set()
    while states(redis, [job]) == [State.RUNNING]:
        beats.add(redis.hget(keys.JOB(job), "running_heartbeat_at"))
        runtime.queue.reclaim(window_ms=3000, interval_ms=15_000, ceiling_ms=900_000)
        time.sleep(0.05)

    beats.discard(None)
    gaps = [later - earlier for earlier, later in pairwise(sorted(int(b) for b in beats if b))]
    assert len(beats) >= 4
    assert max(gaps) < 2500
    view = records.job(job)
    assert view is not None
    assert [move.verb for move in view.history] == ["submit", "claim", "succeed"]


@pytest.mark.req("A11")
def test_a_call_that_never_ends_is_ended_at_its_budget(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    ships.thread_worker(redis, call_budget_s=1)
    job = submit("[[mock hang]]", max_attempts=1)

    wait_for_states(redis, [job], State.FAILED, 6)
    view = records.job(job)
    assert view is not None
    assert view.job.error_kind == "timeout"


@pytest.mark.req("A10")
def test_an_idle_worker_runs_a_retry_when_it_is_due(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    ships.thread_worker(redis, idle_poll_s=60)
    job = submit("[[mock error=rate_limit retry_after=1 times=1]]")

    wait_for_states(redis, [job], State.SUCCEEDED, 8)
    view = records.job(job)
    assert view is not None
    assert [move.verb for move in view.history] == ["submit", "claim", "retry", "claim", "succeed"]
    retried, claimed = view.history[2], view.history[3]
    assert 1000 <= claimed.at_ms - retried.at_ms < 3000


@pytest.mark.req("A9")
def test_what_no_retry_helps_fails_at_once_with_its_kind(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    ships.thread_worker(redis)
    job = submit("[[mock error=auth]]")

    wait_for_states(redis, [job], State.FAILED, 5)
    view = records.job(job)
    assert view is not None
    assert (view.job.error_kind, view.job.attempt) == ("auth", 1)


def test_nothing_is_claimed_while_rq_is_suspended(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, idle_poll_s=1)
    wait_for_states(redis, [submit()], State.SUCCEEDED, 5)
    suspend(redis)
    job = submit()

    with pytest.raises(AssertionError, match="not within"):
        wait_for_states(redis, [job], State.SUCCEEDED, 2.5)
    assert states(redis, [job]) == [State.QUEUED]

    resume(redis)
    wait_for_states(redis, [job], State.SUCCEEDED, 5)


@pytest.mark.case("RQ-09")
def test_the_stop_command_cancels_what_runs_under_the_ticket(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    worker = ships.thread_worker(redis)
    job = submit("[[mock hang]]")
    wait_for_states(redis, [job], State.RUNNING, 5)
    queue = RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)
    (ticket,) = queue.started_job_registry.get_job_ids(cleanup=False)

    send_stop_job_command(runtime.rq_redis, ticket, serializer=JSONSerializer)

    wait_for_states(redis, [job], State.CANCELLED, 5)
    wait_until(
        lambda: not queue.started_job_registry.get_job_ids(cleanup=False), 5, "the ticket closes"
    )
    assert worker.is_running
    wait_for_states(redis, [submit()], State.SUCCEEDED, 5)


def test_rqs_shutdown_command_is_a_warm_stop(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    process = ships.thread_worker(redis)
    job = submit("[[mock delay=1]]")
    wait_for_states(redis, [job], State.RUNNING, 5)
    (worker,) = Worker.all(connection=runtime.rq_redis)

    redis.publish(f"rq:pubsub:{worker.name}", json.dumps({"command": "shutdown"}))

    assert process.wait(10) == 0
    assert states(redis, [job]) == [State.SUCCEEDED]


@pytest.mark.case("K8S-05")
def test_sigterm_lets_what_runs_finish_within_the_grace_time(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    worker = ships.thread_worker(redis, shutdown_grace_s=10)
    running = submit("[[mock delay=1.5]]")
    wait_for_states(redis, [running], State.RUNNING, 5)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in worker.output() or not worker.is_running, 5, "it stops")
    later = submit()

    assert worker.wait(10) == 0
    assert states(redis, [running, later]) == [State.SUCCEEDED, State.QUEUED]
    assert redis.scard("rq:workers") == 0


@pytest.mark.case("K8S-01", "LEASE-21")
def test_sigterm_hands_back_uncharged_what_cannot_finish(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    worker = ships.thread_worker(redis, shutdown_grace_s=1)
    job = submit("[[mock delay=8]]", max_attempts=1)
    wait_for_states(redis, [job], State.RUNNING, 5)

    worker.signal(signal.SIGTERM)

    assert worker.wait(6) == 0
    assert states(redis, [job]) == [State.QUEUED]
    ships.thread_worker(redis)
    wait_for_states(redis, [job], State.SUCCEEDED, 15)
    view = records.job(job)
    assert view is not None
    assert view.job.attempt == 1
    moves = [(move.verb, move.reason) for move in view.history]
    assert ("snooze", "worker_shutdown") in moves


@pytest.mark.case("K8S-03")
def test_a_signal_that_arrives_twice_is_no_cold_stop(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    worker = ships.thread_worker(redis, shutdown_grace_s=10)
    job = submit("[[mock delay=2]]")
    wait_for_states(redis, [job], State.RUNNING, 5)

    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert states(redis, [job]) == [State.SUCCEEDED]


def test_a_second_signal_a_while_later_hands_back_at_once(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    worker = ships.thread_worker(redis, shutdown_grace_s=60)
    job = submit("[[mock hang]]")
    wait_for_states(redis, [job], State.RUNNING, 5)

    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in worker.output(), 5, "the worker heard the first")
    time.sleep(1.1)  # the worker tells a second request from a double delivery by time
    worker.signal(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert states(redis, [job]) == [State.QUEUED]


@pytest.mark.req("A34")
def test_bulk_work_leaves_the_slots_alone_that_are_kept_for_urgent_work(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, worker_concurrency=4, urgent_slots=1)
    bulk = [submit("[[mock hang]]", priority=80) for _ in range(8)]
    wait_until(lambda: redis.zcard(keys.RUNNING()) == 3, 5, "bulk work fills its slots")

    urgent = [submit("[[mock delay=0.2]]", priority=10) for _ in range(3)]

    wait_for_states(redis, urgent, State.SUCCEEDED, 6)
    assert sorted(filter(None, states(redis, bulk))) == ["queued"] * 5 + ["running"] * 3
