"""Does the work end where operators use RQ's tools on a running stack? (X7)"""

from __future__ import annotations

import pytest
from redis import Redis
from rq import Queue as RqQueue
from rq import Worker
from rq.command import send_shutdown_command
from rq.serializers import JSONSerializer

from jobs import maintenance
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from tests.integration.worker.conftest import Submit
from tests.support.job_states import reach
from tests.support.processes import RQ_CLASSES, Fleet, rq_command, states, wait_for_states
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("X7")


def run(ships: Fleet, *words: str) -> str:
    """Run an rq command to its end; answers what it printed."""
    command = ships.start(rq_command(*words))
    assert command.wait(30) == 0, (words, command.output())
    return command.output()


@pytest.fixture
def tickets(runtime: Runtime) -> RqQueue:
    """The queue of tickets, as RQ sees it."""
    return RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)


@pytest.mark.parametrize(("count", "flags"), [(20, ()), (250, RQ_CLASSES)])
def test_all_failed_jobs_are_requeued_past_a_dangling_id_and_each_is_retried_once(
    *,
    redis: Redis,
    ships: Fleet,
    runtime: Runtime,
    tickets: RqQueue,
    count: int,
    flags: tuple[str, ...],
) -> None:
    failed = [reach(runtime.queue, State.FAILED) for _ in range(count)]
    while redis.llen(keys.MIRROR()):
        maintenance.mirror(runtime)
    dangling = failed[count // 2].job_id
    redis.delete(f"rq:job:{dangling}")
    if not flags:
        # Stock classes end at the dangling id, so the tick has to be faster.
        maintenance.mirror(runtime)
    rest = [item for item in failed if item.job_id != dangling]

    run(ships, "requeue", "--queue", "genqueue", "--all", *flags)

    assert sorted(tickets.job_ids) == sorted(item.job_id for item in rest)
    ships.thread_worker(redis)
    wait_for_states(redis, [item.job_id for item in rest], State.SUPERSEDED, 60)
    assert states(redis, [dangling]) == [State.FAILED]
    views = [runtime.records.prompt(item.prompt_id) for item in rest]
    retries = [[job.id for job in view.jobs[1:]] for view in views if view is not None]
    assert [len(ids) for ids in retries] == [1] * len(rest)
    wait_for_states(redis, [ids[0] for ids in retries], State.SUCCEEDED, 30)


def test_a_pool_of_forking_workers_retries_what_was_requeued(
    redis: Redis, ships: Fleet, runtime: Runtime
) -> None:
    failed = [reach(runtime.queue, State.FAILED) for _ in range(3)]
    maintenance.mirror(runtime)
    ships.start(rq_command("worker-pool", "genqueue", "-n", "2", *RQ_CLASSES))

    run(ships, "requeue", "--queue", "genqueue", "--all", *RQ_CLASSES)

    wait_for_states(redis, [item.job_id for item in failed], State.SUPERSEDED, 30)
    views = [runtime.records.prompt(item.prompt_id) for item in failed]
    retries = [view.jobs[1].id for view in views if view is not None]
    wait_for_states(redis, retries, State.SUCCEEDED, 20)


def test_a_suspension_with_a_duration_ends_by_itself(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, idle_poll_s=1)

    run(ships, "suspend", "--duration", "3")
    job = submit()
    assert states(redis, [job]) == [State.QUEUED]

    wait_for_states(redis, [job], State.SUCCEEDED, 12)
    assert redis.exists("rq:suspended") == 0


def test_what_runs_under_a_suspension_ends_and_is_kept(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis)
    job = submit("[[mock delay=4]]")
    wait_for_states(redis, [job], State.RUNNING, 5)

    run(ships, "suspend")

    wait_for_states(redis, [job], State.SUCCEEDED, 12)


def test_a_worker_that_is_told_to_shut_down_leaves_the_rest_to_others(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    leaving = ships.thread_worker(redis, worker_concurrency=2)
    (registered,) = Worker.all(connection=runtime.rq_redis)
    jobs = [submit("[[mock delay=0.5]]") for _ in range(8)]
    wait_until(lambda: redis.zcard(keys.RUNNING()) == 2, 5, "two run")

    send_shutdown_command(runtime.rq_redis, registered.name)

    assert leaving.wait(15) == 0
    assert State.QUEUED in states(redis, jobs)
    ships.thread_worker(redis, idle_poll_s=1)
    wait_for_states(redis, jobs, State.SUCCEEDED, 15)


def test_info_names_queue_and_worker_also_with_our_own_queue_class(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis)
    wait_for_states(redis, [submit()], State.SUCCEEDED, 5)
    ours = ("--queue-class", "jobs.tickets.TicketQueue")

    for words in (("info", "genqueue"), ("info", "genqueue", *ours, *RQ_CLASSES)):
        text = run(ships, *words)
        assert "genqueue" in text
        assert "1 workers" in text


def test_a_worker_started_without_our_flags_fails_tickets_and_loses_no_work(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    wrong = ships.start(rq_command("worker", "genqueue"))
    wait_until(lambda: redis.scard("rq:workers") == 1 or not wrong.is_running, 20, "it registers")
    jobs = [submit() for _ in range(3)]
    wait_until(lambda: redis.llen("rq:queue:genqueue") == 0, 20, "it took the tickets")
    assert set(states(redis, jobs)) == {State.QUEUED}

    ships.thread_worker(redis, idle_poll_s=1)

    wait_for_states(redis, jobs, State.SUCCEEDED, 20)
