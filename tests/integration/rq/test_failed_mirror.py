"""Is the mirror of failed jobs bounded, and whole after whatever came between? (X7)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from rq.job import JobStatus
from rq.queue import Queue as RqQueue
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer

from jobs import maintenance
from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.tickets import TicketJob
from tests.support.factories import claim_one, new_job

pytestmark = pytest.mark.req("X7")

Fail = Callable[..., str]


@pytest.fixture
def fail(runtime: Runtime) -> Fail:
    """Makes a job that failed for good; answers its id. `message` is what the provider said."""

    def fail_one(message: str = "the key is wrong", **changes: Any) -> str:
        job = new_job(**changes)
        runtime.queue.submit(job)
        attempt = claim_one(runtime.queue)
        runtime.queue.fail(job.id, attempt.token, ErrorKind.AUTH, message)
        return job.id

    return fail_one


@pytest.fixture
def registry(runtime: Runtime) -> FailedJobRegistry:
    """RQ's failed registry of the queue of tickets."""
    return FailedJobRegistry("genqueue", connection=runtime.rq_redis, job_class=TicketJob)


def mirror_all(runtime: Runtime) -> None:
    """Run the tick until it finds nothing more to do."""
    while maintenance.mirror(runtime):
        pass


def shown(registry: FailedJobRegistry) -> set[str]:
    return set(registry.get_job_ids(cleanup=False))


def test_the_list_shows_one_bounded_line_and_the_job_its_whole_message(
    fail: Fail, runtime: Runtime
) -> None:
    message = "401: no\nsuch key " + "x" * 500
    job_id = fail(message, org_id="globex")

    mirror_all(runtime)

    ticket = TicketJob.fetch(job_id, connection=runtime.rq_redis)
    line = str(ticket.description)
    assert line.startswith(f"prompt {job_id} of globex: auth: 401: no such key xxx")
    assert (len(line), line[-1]) == (200, "…")
    result = ticket.latest_result()
    assert result is not None
    assert result.exc_string == f"auth: {message}"


def test_the_queue_is_listed_also_where_no_ticket_was_ever_issued(
    fail: Fail, runtime: Runtime
) -> None:
    fail()

    mirror_all(runtime)

    assert [queue.name for queue in RqQueue.all(connection=runtime.rq_redis)] == ["genqueue"]


def test_mirroring_twice_changes_nothing(fail: Fail, runtime: Runtime, redis: Redis) -> None:
    job_id = fail()
    mirror_all(runtime)
    names = ("rq:failed:genqueue", f"rq:job:{job_id}")
    before = [runtime.rq_redis.dump(name) for name in names]

    redis.lpush(keys.MIRROR(), job_id, job_id)
    mirror_all(runtime)

    assert [runtime.rq_redis.dump(name) for name in names] == before
    assert redis.xlen(f"rq:results:{job_id}") == 1


def test_an_id_stays_on_the_list_until_its_mirror_is_written(
    fail: Fail, runtime: Runtime, redis: Redis, registry: FailedJobRegistry
) -> None:
    job_id = fail()
    redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailableError):
            maintenance.mirror(runtime)
    finally:
        redis.config_set("maxmemory", "0")
    assert shown(registry) == set()

    mirror_all(runtime)

    assert shown(registry) == {job_id}
    assert redis.llen(keys.MIRROR()) == 0


def test_a_job_that_changes_while_it_is_mirrored_is_looked_at_again(
    fail: Fail, runtime: Runtime, redis: Redis
) -> None:
    job_id = fail()
    redis.lpush(keys.MIRROR(), job_id)  # as a retry in the meantime does

    assert runtime.failed_tickets.mirror(limit=1) == 1

    assert redis.lrange(keys.MIRROR(), 0, -1) == [job_id]


def add_foreign(runtime: Runtime, registry: FailedJobRegistry) -> str:
    """An RQ job of somebody else that failed on our queue; answers its id."""
    queue = RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)
    foreign = queue.create_job("os.getpid", status=JobStatus.FAILED)
    foreign.save()
    registry.add(foreign, ttl=86_400)
    return foreign.id


def test_only_the_newest_thousand_are_shown_and_kept(
    fail: Fail, runtime: Runtime, redis: Redis, registry: FailedJobRegistry
) -> None:
    first = [fail() for _ in range(20)]
    mirror_all(runtime)
    for job_id in first:  # scores are whole seconds: these shall be older than all others
        redis.zincrby(registry.key, -10, job_id)
    second = [fail() for _ in range(990)]
    foreign = add_foreign(runtime, registry)

    mirror_all(runtime)

    assert shown(registry) >= {*second, foreign}
    assert len(shown(registry) - {foreign}) == 1_000
    assert len(list(redis.scan_iter(match="rq:job:*", count=5_000))) == 1_001


def test_entries_that_name_nothing_go_and_foreign_ones_stay(
    fail: Fail, runtime: Runtime, redis: Redis, registry: FailedJobRegistry
) -> None:
    kept, dangling, unheard_of = fail(), fail(), fail()
    mirror_all(runtime)
    redis.delete(f"rq:job:{dangling}")
    redis.hset(keys.JOB(unheard_of), "state", "superseded")  # and the list was lost
    foreign = add_foreign(runtime, registry)

    mirror_all(runtime)

    assert shown(registry) == {kept, foreign}


def test_a_record_that_cant_be_read_does_not_hide_the_others(
    fail: Fail, runtime: Runtime, redis: Redis, registry: FailedJobRegistry
) -> None:
    broken, whole = fail(), fail()
    redis.hset(keys.JOB(broken), "error_kind", "a kind of tomorrow")

    mirror_all(runtime)

    assert shown(registry) == {whole}


def test_each_call_is_bounded(fail: Fail, runtime: Runtime, redis: Redis) -> None:
    for _ in range(5):
        fail()

    assert runtime.failed_tickets.mirror(limit=2) == 2
    assert redis.llen(keys.MIRROR()) == 3
