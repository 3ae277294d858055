"""What do the tests of worker processes share?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.worker.handlers.generation import GenerationHandler
from jobs.worker.turns.executor import TurnExecutor
from tests.support.chains import Stage, make_stage
from tests.support.factories import new_job
from tests.support.generations import handler_of, registry_of
from tests.support.invariants import problems_of
from tests.support.openai_server import OpenAIServer, openai_server
from tests.support.processes import Fleet, fleet
from tests.support.turn_execution import executor_at, formation_of

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


@pytest.fixture
def make(
    make_runtime: Callable[..., Runtime], server: OpenAIServer, tmp_path: Path
) -> Callable[..., Stage]:
    """Makes a stage of chains with that provider, of a formation by keyword."""
    return lambda **formation: make_stage(make_runtime, server, tmp_path, **formation)


@pytest.fixture
def executor(server: OpenAIServer) -> TurnExecutor:
    """Runs turns of the usual formation against that provider."""
    return executor_at(server.base_url)


@pytest.fixture
def planning(server: OpenAIServer) -> TurnExecutor:
    """Likewise, and asks the planner for the first plan as well."""
    return executor_at(server.base_url, formation_of(plans=True, planner_model="planner"))
