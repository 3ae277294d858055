"""On which Redis do the store's tests run? On both: fakeredis for speed, the server for truth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakeredis import FakeRedis
from redis import Redis

from jobs.store.connection import connect
from jobs.store.generations import Generations
from tests.support.invariants import keys_without_end, problems_of
from tests.support.stored_generations import generations_of, open_to

BACKENDS = ("fakeredis", "server")


@pytest.fixture(params=BACKENDS)
def redis(request: pytest.FixtureRequest) -> Iterator[Redis]:
    """An empty Redis; at the end of the test every invariant of the store must hold."""
    if request.param == "server":
        client = connect(request.getfixturevalue("redis_url"))
    else:
        client = FakeRedis(decode_responses=True, version=(7,))
    yield client
    problems = problems_of(client) + sorted(keys_without_end(client))
    client.close()
    assert problems == []


@pytest.fixture
def generations(redis: Redis) -> Generations:
    """The generations of an organisation that has the flag and credits."""
    open_to(redis, "acme")
    return generations_of(redis)
