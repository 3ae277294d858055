"""What does the store say and leave behind while Redis is slow, refusing or gone?"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from jobs.domain.errors import StoreUnavailableError
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.support.factories import claim, new_job, records_of
from tests.support.invariants import problems_of
from tests.support.redis_server import redis_server
from tests.support.snapshot import snapshot
from tests.support.waiting import wait_until


def queue_at(url: str, **options: float) -> tuple[Redis, Queue]:
    client = connect(url, **options)
    return client, Queue(Scripts(client, queue_name="genqueue"), ticket_cap=16)


@pytest.mark.case("RED-07")
def test_a_submit_that_redis_was_too_slow_to_answer_is_one_job(
    redis_url: str, redis: Redis, queue: Queue
) -> None:
    queue.submit(new_job())
    hasty, hasty_queue = queue_at(redis_url, socket_timeout_s=0.3)
    hasty.ping()
    job = new_job(org_id="slow")
    stalled = threading.Thread(target=lambda: redis.execute_command("DEBUG", "SLEEP", "0.8"))
    stalled.start()
    wait_until(lambda: is_stalled(redis_url), 5, "the server stalls")

    try:
        hasty_queue.submit(job)
    except StoreUnavailableError:
        hasty.close()
    stalled.join()

    wait_until(lambda: redis.exists(keys.JOB(job.id)), 5, "a late submit is stored")
    assert redis.xlen(keys.EVENTS("slow")) == 1
    assert problems_of(redis) == []
    hasty.close()


def is_stalled(url: str) -> bool:
    probe = Redis.from_url(url, socket_timeout=0.05, retry=None)
    try:
        return not probe.ping()
    except RedisError:
        return True
    finally:
        probe.close()


def test_a_redis_without_its_replicas_refuses_and_nothing_is_half_done(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        client, queue = queue_at(server.url)
        queue.submit(new_job())
        before = snapshot(client)
        client.config_set("min-replicas-to-write", 1)

        for act in (lambda: queue.submit(new_job()), lambda: claim(queue)):
            with pytest.raises(StoreUnavailableError):
                act()

        assert snapshot(client) == before
        client.config_set("min-replicas-to-write", 0)
        assert len(claim(queue).attempts) == 1
        client.close()


@pytest.mark.req("X13")
def test_a_redis_that_comes_back_is_used_again_with_all_it_had(tmp_path: Path) -> None:
    with redis_server(tmp_path, aof=True, extra=("--appendfsync", "always")) as server:
        client, queue = queue_at(server.url)
        jobs = [new_job() for _ in range(20)]
        for job in jobs:
            queue.submit(job)
        (running,) = claim(queue, token="held").attempts
        server.kill()
        with pytest.raises(StoreUnavailableError):
            queue.submit(new_job())
        with pytest.raises(StoreUnavailableError):
            records_of(client).job(jobs[0].id)

        server.start()

        assert claim(queue, token="held").attempts == (running,)
        assert queue.renew({running.job.id: running.token}, window_ms=60_000) == {}
        assert [a.job.id for a in claim(queue, 50).attempts] == [job.id for job in jobs[1:]]
        assert problems_of(client) == []
        client.close()
