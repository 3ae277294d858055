"""Do failed jobs show in RQ by name, and is requeueing one there a retry? (X7)"""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from rq import Queue as RqQueue
from rq.serializers import JSONSerializer

from jobs import maintenance
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.tickets import TicketJob
from tests.integration.worker.conftest import Submit
from tests.support.factories import new_id
from tests.support.job_states import reach
from tests.support.processes import RQ_CLASSES, Fleet, rq_command, states, wait_for_states
from tests.support.waiting import wait_until

RQ_FLAGS = (*RQ_CLASSES,)


def failed_registry(runtime: Runtime) -> Any:
    queue = RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)
    return queue.failed_job_registry


def shown(runtime: Runtime) -> list[str]:
    return list(failed_registry(runtime).get_job_ids(cleanup=False))


@pytest.mark.req("X7")
def test_a_job_that_failed_for_good_is_shown_as_a_failed_rq_job_that_retries_it(
    redis: Redis, runtime: Runtime
) -> None:
    failed = reach(runtime.queue, State.FAILED)
    reach(runtime.queue, State.SUCCEEDED)
    maintenance.mirror(runtime)
    maintenance.mirror(runtime)

    assert shown(runtime) == [failed.job_id]
    job = TicketJob.fetch(failed.job_id, connection=runtime.rq_redis)
    assert (job.func_name, job.args) == ("jobs.entrypoints.retry_job", [failed.job_id])
    assert failed.job_id in str(job.description)
    assert "parse" in str(job.description)
    entry_ends_s = runtime.rq_redis.zscore(failed_registry(runtime).key, failed.job_id)
    hash_ends_s = runtime.rq_redis.expiretime(job.key)
    assert entry_ends_s is not None
    assert hash_ends_s > entry_ends_s  # type: ignore[operator]


@pytest.mark.req("X7")
@pytest.mark.parametrize("how", ["supersede", "archive"])
def test_what_is_not_failed_any_more_leaves_no_trace_there(
    redis: Redis, runtime: Runtime, how: str
) -> None:
    failed = reach(runtime.queue, State.FAILED)
    maintenance.mirror(runtime)
    assert shown(runtime) == [failed.job_id]

    if how == "supersede":
        runtime.queue.supersede(failed.job_id, new_id(), "acme", "ada")
    else:
        runtime.upkeep.archive([failed.job_id])
    maintenance.mirror(runtime)

    assert shown(runtime) == []
    assert list(redis.scan_iter(match=f"rq:*{failed.job_id}*")) == []


@pytest.mark.req("X7")
def test_requeueing_all_in_rq_retries_each_job_once_also_past_a_dangling_id(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    failed = [reach(runtime.queue, State.FAILED) for _ in range(5)]
    maintenance.mirror(runtime)
    runtime.rq_redis.zadd(failed_registry(runtime).key, {"dangling": 9e9})
    maintenance.mirror(runtime)
    assert sorted(shown(runtime)) == sorted(item.job_id for item in failed)

    words = ("requeue", "--queue", "genqueue", "--all", *RQ_FLAGS)
    for _ in range(2):
        assert ships.start(rq_command(*words)).wait(20) == 0
    ships.thread_worker(redis)

    wait_for_states(redis, [item.job_id for item in failed], State.SUPERSEDED, 20)
    for item in failed:
        view = wait_until(lambda item=item: runtime.records.prompt(item.prompt_id), 5, "prompt")
        assert len(view.jobs) == 2
        wait_for_states(redis, [view.jobs[1].id], State.SUCCEEDED, 10)


@pytest.mark.req("X7")
def test_the_rq_commands_do_the_live_work_no_harm(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    ships.thread_worker(redis, worker_concurrency=2, idle_poll_s=1)
    jobs = [submit("[[mock delay=0.3]]") for _ in range(12)]

    for words in (
        ("info",),
        ("info", "--raw"),
        ("suspend",),
        ("empty", "genqueue", *RQ_FLAGS),
        ("info", "--by-queue"),
        ("resume",),
    ):
        command = ships.start(rq_command(*words))
        assert command.wait(20) == 0, (words, command.output())

    wait_for_states(redis, jobs, State.SUCCEEDED, 25)


@pytest.mark.req("A17")
def test_a_cancelled_call_gives_its_slot_back_within_two_seconds(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime
) -> None:
    ships.thread_worker(redis, worker_concurrency=1)
    hanging = submit("[[mock hang]]")
    wait_for_states(redis, [hanging], State.RUNNING, 5)
    behind = submit()

    runtime.queue.cancel(hanging, "acme")
    assert states(redis, [hanging]) == [State.CANCELLED]

    wait_for_states(redis, [behind], State.SUCCEEDED, 3)
    assert redis.zcard(keys.RUNNING()) == 0
