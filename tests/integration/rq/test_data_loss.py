"""Does an idle worker come back in full after Redis lost everything? (RQ-17)"""

from __future__ import annotations

from pathlib import Path

import pytest
from rq import Worker
from rq.command import send_shutdown_command

from jobs.domain.states import State
from jobs.runtime import build
from jobs.settings import Settings
from jobs.store.connection import connect
from jobs.tickets import connect_rq
from tests.support.factories import new_job
from tests.support.processes import fleet, wait_for_states
from tests.support.redis_server import redis_server
from tests.support.waiting import wait_until


@pytest.mark.req("X7")
@pytest.mark.case("RQ-17")
@pytest.mark.parametrize("when", ["it has registered", "it waits for work"])
def test_an_idle_worker_registers_again_and_says_that_data_was_lost(
    tmp_path: Path, when: str
) -> None:
    with redis_server(tmp_path / "redis") as server, fleet(server.url, tmp_path) as ships:
        redis, rq_redis = connect(server.url), connect_rq(server.url)
        worker = ships.thread_worker(redis)
        (before,) = Worker.all(connection=rq_redis)
        if when == "it waits for work":
            wait_until(lambda: redis.hget(before.key, "state") == "idle", 10, when)

        server.kill()
        server.start()
        assert redis.dbsize() == 0

        (after,) = wait_until(lambda: Worker.all(connection=rq_redis), 20, "it is registered")
        assert (after.name, after.pid, after.hostname) == (before.name, worker.pid, before.hostname)
        assert (after.queue_names(), after.version) == (["genqueue"], before.version)
        assert after.birth_date is not None
        assert after.last_heartbeat is not None
        assert redis.ttl(after.key) > 0
        # Where Redis went while the worker was still starting, it just starts again.
        told = ("Redis lost data",) if when == "it waits for work" else ("Redis lost data", "away")
        wait_until(lambda: any(w in worker.output() for w in told), 5, "the loss is logged")

        runtime = build(Settings(redis_url=server.url))
        job = new_job()
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()
        wait_for_states(redis, [job.id], State.SUCCEEDED, 10)

        send_shutdown_command(rq_redis, after.name)
        assert worker.wait(15) == 0
        for client in (redis, rq_redis, runtime.redis, runtime.rq_redis):
            client.close()
