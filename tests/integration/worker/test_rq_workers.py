"""Do plain `rq worker` and `rq worker-pool` run the same attempts, and only them? (X7, X12)"""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import psutil
import pytest
from redis import Redis
from rq import Queue as RqQueue
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer

from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store.records import Records
from tests.integration.worker.conftest import Submit
from tests.support.processes import RQ_CLASSES, Fleet, rq_command, wait_for_states
from tests.support.waiting import wait_until


def test_a_plain_rq_worker_runs_attempts(redis: Redis, ships: Fleet, submit: Submit) -> None:
    jobs = [submit() for _ in range(5)]

    worker = ships.start(rq_command("worker", "genqueue", *RQ_CLASSES, "--burst"))

    wait_for_states(redis, jobs, State.SUCCEEDED, 20)
    assert worker.wait(20) == 0


def test_an_rq_worker_pool_runs_attempts(redis: Redis, ships: Fleet, submit: Submit) -> None:
    jobs = [submit("[[mock delay=0.2]]") for _ in range(8)]

    pool = ships.start(rq_command("worker-pool", "genqueue", "-n", "2", *RQ_CLASSES))

    wait_for_states(redis, jobs, State.SUCCEEDED, 30)
    pool.signal(signal.SIGTERM)
    pool.wait(20)


def test_the_rq_command_line_can_run_the_thread_worker(
    redis: Redis, ships: Fleet, submit: Submit
) -> None:
    jobs = [submit("[[mock delay=0.5]]") for _ in range(8)]
    words = ("worker", "genqueue", "--worker-class", "jobs.worker.thread_worker.ThreadWorker")

    worker = ships.start(rq_command(*words, "--burst"), worker_concurrency=8)

    wait_for_states(redis, jobs, State.SUCCEEDED, 20)
    assert worker.wait(20) == 0


@pytest.mark.req("A14")
@pytest.mark.case("RQ-01")
def test_a_horse_whose_parent_was_killed_ends_its_attempt_and_takes_no_more(
    redis: Redis, ships: Fleet, submit: Submit, records: Records
) -> None:
    worker = ships.start(rq_command("worker", "genqueue", *RQ_CLASSES))
    running = submit("[[mock delay=2]]")
    wait_for_states(redis, [running], State.RUNNING, 20)
    (horse,) = psutil.Process(worker.pid).children()
    waiting = submit()

    os.kill(worker.pid, signal.SIGKILL)

    wait_for_states(redis, [running], State.SUCCEEDED, 10)
    wait_until(lambda: not horse.is_running(), 15, "the horse is gone")
    view = records.job(waiting)
    assert view is not None
    assert view.job.state is State.QUEUED


@pytest.mark.req("X12")
@pytest.mark.case("SEC-01")
@pytest.mark.parametrize("worker", ["thread", "rq"])
def test_a_queued_call_of_anything_else_is_not_run(
    redis: Redis, ships: Fleet, submit: Submit, runtime: Runtime, tmp_path: Path, worker: str
) -> None:
    queue = RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)
    evil = [
        queue.enqueue("os.system", f"touch {tmp_path}/called"),
        queue.enqueue("builtins.exec", f"open('{tmp_path}/exec', 'w')"),
        queue.enqueue("jobs.entrypoints.build"),
    ]
    pickled = RqJob.create("jobs.entrypoints.take_work", connection=runtime.rq_redis)
    pickled.origin = "genqueue"
    pickled.save()
    redis_bytes = runtime.rq_redis
    redis_bytes.hset(
        pickled.key, "data", pickle.dumps(("os.system", None, (f"touch {tmp_path}/p",), {}))
    )
    redis_bytes.rpush("rq:queue:genqueue", pickled.id)
    callback = queue.enqueue("jobs.entrypoints.take_work")
    redis_bytes.hset(callback.key, "success_callback_name", "os.getpid")
    redis_bytes.hset(callback.key, "failure_callback_name", "os.getpid")
    job = submit()

    if worker == "thread":
        process = ships.thread_worker(redis)
    else:
        process = ships.start(rq_command("worker", "genqueue", *RQ_CLASSES))

    wait_for_states(redis, [job], State.SUCCEEDED, 20)
    failed = queue.failed_job_registry
    wait_until(
        lambda: {item.id for item in evil} <= set(failed.get_job_ids(cleanup=False)),
        10,
        "the calls are refused",
    )
    assert [item.name for item in tmp_path.iterdir() if item.suffix != ".log"] == []
    assert process.is_running
    text = process.output()
    assert "EntryPointForbidden" in text
