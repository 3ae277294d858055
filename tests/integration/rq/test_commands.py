"""Does RQ's command line retry failed jobs exactly once, whatever else its registry holds? (X7)"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis import Redis
from rq import Queue as RqQueue
from rq.serializers import JSONSerializer

from jobs import maintenance
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.tickets import RETRY_JOB
from tests.support.factories import new_id, new_job
from tests.support.job_states import Reached, reach
from tests.support.processes import RQ_CLASSES, Fleet, rq_command, states, wait_for_states
from tests.support.waiting import wait_until

REQUEUE = ("requeue", "--queue", "genqueue", *RQ_CLASSES)


def successors(runtime: Runtime, failed: Reached) -> list[str]:
    view = runtime.records.prompt(failed.prompt_id)
    assert view is not None
    return [job.id for job in view.jobs if job.id != failed.job_id]


def wait_for_retries(redis: Redis, runtime: Runtime, failed: Sequence[Reached]) -> None:
    """Wait until each job was replaced by one that succeeded."""
    wait_for_states(redis, [item.job_id for item in failed], State.SUPERSEDED, 20)
    new_ids = [new_id for item in failed for new_id in successors(runtime, item)]
    assert len(new_ids) == len(failed)
    wait_for_states(redis, new_ids, State.SUCCEEDED, 20)


@pytest.fixture
def tickets(runtime: Runtime) -> RqQueue:
    """The queue of tickets, as RQ sees it."""
    return RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)


@pytest.mark.req("X7")
def test_requeueing_all_passes_over_an_entry_that_names_nothing(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    failed = [reach(runtime.queue, State.FAILED) for _ in range(4)]
    maintenance.mirror(runtime)
    # Before all others: had it ended the command, none would have been requeued.
    first = runtime.rq_redis.time()[0] + 120  # type: ignore[index]
    runtime.rq_redis.zadd(tickets.failed_job_registry.key, {"dangling": first})

    command = ships.start(rq_command(*REQUEUE, "--all"))

    assert command.wait(20) == 0, command.output()
    assert "Unable to requeue 1 jobs" in command.output()
    assert sorted(tickets.job_ids) == sorted(item.job_id for item in failed)
    ships.thread_worker(redis)
    wait_for_retries(redis, runtime, failed)


@pytest.mark.req("X7")
def test_requeueing_again_after_the_retry_retries_nothing(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    failed = [reach(runtime.queue, State.FAILED) for _ in range(2)]
    maintenance.mirror(runtime)
    ships.thread_worker(redis)
    assert ships.start(rq_command(*REQUEUE, "--all")).wait(20) == 0
    wait_for_retries(redis, runtime, failed)

    again = ships.start(rq_command(*REQUEUE, "--all"))
    assert again.wait(20) == 0
    assert "Nothing to do" in again.output()
    # What a copy of the requeue that comes late would have run.
    late = [tickets.enqueue_call(RETRY_JOB, args=(failed[0].job_id,), timeout=-1) for _ in "ab"]
    wait_until(lambda: all(job.get_status().value == "finished" for job in late), 15, "they ran")

    assert [len(successors(runtime, item)) for item in failed] == [1, 1]


@pytest.mark.req("X7")
def test_one_job_is_requeued_by_its_id_and_the_others_stay_failed(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    chosen, other = (reach(runtime.queue, State.FAILED) for _ in range(2))
    maintenance.mirror(runtime)
    ships.thread_worker(redis)

    assert ships.start(rq_command(*REQUEUE, chosen.job_id)).wait(20) == 0
    wait_for_retries(redis, runtime, [chosen])
    maintenance.mirror(runtime)

    assert states(redis, [other.job_id]) == [State.FAILED]
    assert tickets.failed_job_registry.get_job_ids(cleanup=False) == [other.job_id]


@pytest.mark.req("X7")
def test_a_failed_job_that_a_requeue_has_in_hand_is_not_taken_away_by_the_mirror(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    failed = reach(runtime.queue, State.FAILED)
    maintenance.mirror(runtime)
    assert ships.start(rq_command(*REQUEUE, "--all")).wait(20) == 0
    # An id may be on the list twice.
    redis.lpush(keys.MIRROR(), failed.job_id)

    maintenance.mirror(runtime)

    assert tickets.job_ids == [failed.job_id]
    assert tickets.failed_job_registry.get_job_ids(cleanup=False) == []
    ships.thread_worker(redis)
    wait_for_retries(redis, runtime, [failed])


@pytest.mark.req("X7")
def test_a_requeue_of_a_job_that_is_gone_does_no_harm(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    failed = reach(runtime.queue, State.FAILED)
    runtime.upkeep.archive([failed.job_id])
    done = reach(runtime.queue, State.SUCCEEDED)
    ships.thread_worker(redis)

    called = [
        tickets.enqueue_call(RETRY_JOB, args=(job_id,), timeout=-1)
        for job_id in (failed.job_id, done.job_id, new_id())
    ]
    wait_until(lambda: all(job.get_status().value == "finished" for job in called), 15, "they ran")

    assert states(redis, [done.job_id]) == [State.SUCCEEDED]
    assert successors(runtime, done) == []


@pytest.mark.req("X7")
def test_a_suspended_worker_goes_on_after_the_queue_was_emptied_under_it(
    redis: Redis, ships: Fleet, runtime: Runtime, tickets: RqQueue
) -> None:
    assert ships.start(rq_command("suspend")).wait(20) == 0
    ships.thread_worker(redis, worker_concurrency=2, idle_poll_s=1)
    jobs = [new_job() for _ in range(6)]
    for job in jobs:
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()

    assert ships.start(rq_command("empty", "genqueue", *RQ_CLASSES)).wait(20) == 0
    assert tickets.job_ids == []
    assert ships.start(rq_command("resume")).wait(20) == 0

    wait_for_states(redis, [job.id for job in jobs], State.SUCCEEDED, 25)
