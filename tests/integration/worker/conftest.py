"""What do the tests of worker processes share?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.worker.handlers.generation import GenerationHandler
from tests.support.factories import new_job
from tests.support.generations import handler_of, registry_of
from tests.support.invariants import problems_of
from tests.support.openai_server import OpenAIServer, openai_server
from tests.support.processes import Fleet, fleet

Submit = Callable[..., str]


@pytest.fixture
def ships(redis_url: str, redis: Redis, tmp_path: Path) -> Iterator[Fleet]:
    """Worker processes for this test; at its end the store must be whole."""
    with fleet(redis_url, tmp_path) as processes:
        yield processes
    assert problems_of(redis) == []


@pytest.fixture
def submit(runtime: Runtime) -> Submit:
    """Submits a prompt as the API does, ticket included; answers the job's id."""

    def submit_one(text: str = "Say hello.", **changes: object) -> str:
        job = new_job(prompt_text=text, **changes)
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()
        return job.id

    return submit_one


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A provider that answers what a test scripts."""
    with openai_server() as running:
        yield running


@pytest.fixture
def handler(server: OpenAIServer) -> GenerationHandler:
    """The handler of generations over that provider."""
    return handler_of(registry_of(server.base_url))
