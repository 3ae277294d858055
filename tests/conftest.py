"""What do all tests share? One real Redis server, emptied for each test, checked for leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts
from tests.support.factories import records_of
from tests.support.invariants import keys_without_end
from tests.support.redis_server import RedisServer, start_redis

QUEUE_NAME = "genqueue"
TICKET_CAP = 16


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The session's server; a test that kills a server starts its own."""
    folder: Path = tmp_path_factory.mktemp("redis")
    server = start_redis(folder, extra=("--enable-debug-command", "local"))
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    """The address of an empty Redis; a test that leaves a key without an end behind fails."""
    redis = connect(redis_server.url)
    redis.flushall()
    yield redis_server.url
    leaked = keys_without_end(redis)
    redis.flushall()
    redis.close()
    assert not leaked, f"keys without a TTL and without an owner: {sorted(leaked)}"


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A client as the store uses it."""
    client = connect(redis_url)
    yield client
    client.close()


@pytest.fixture
def queue(redis: Redis) -> Queue:
    """The write side of the store."""
    return Queue(Scripts(redis, queue_name=QUEUE_NAME), ticket_cap=TICKET_CAP)


@pytest.fixture
def records(redis: Redis) -> Records:
    """The read side of the store."""
    return records_of(redis)


@pytest.fixture
def make_runtime(redis_url: str) -> Iterator[Callable[..., Runtime]]:
    """Builds the object graph for this test's Redis; settings by keyword."""
    made: list[Runtime] = []

    def make(**settings: object) -> Runtime:
        runtime = build(Settings(**{"redis_url": redis_url, **settings}))  # type: ignore[arg-type]
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.redis.close()
        runtime.rq_redis.close()


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """The object graph with the shipped defaults."""
    return make_runtime()
