"""Does a provider that asks for a pause get it from every worker, and from no other? (X15)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from tests.support.factories import new_job
from tests.support.models_file import models_text
from tests.support.openai_server import OpenAIServer, openai_server, status
from tests.support.processes import Fleet, wait_for_states
from tests.support.stored_generations import new_generation, open_to
from tests.support.waiting import wait_until

PAUSE_S = 3


@dataclass(frozen=True)
class Ground:
    """A provider, two workers that call it, and the store."""

    server: OpenAIServer
    redis: Redis
    runtime: Runtime

    def submit(self, model: str, count: int = 1) -> list[str]:
        jobs = [new_job(target=f"local:{model}") for _ in range(count)]
        for job in jobs:
            if self.runtime.queue.submit(job).ticket_wanted:
                self.runtime.tickets.issue()
        return [job.id for job in jobs]

    def calls_of(self, model: str) -> int:
        return [request.json["model"] for request in self.server.requests].count(model)

    def cools(self) -> bool:
        return self.redis.zscore(keys.COOLDOWNS(), "local:busy") is not None


@pytest.fixture
def ground(
    redis: Redis, ships: Fleet, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> Iterator[Ground]:
    with openai_server() as server:
        models = tmp_path / "models.toml"
        models.write_text(models_text(server.base_url, "busy", "idle"), encoding="utf-8")
        for _ in range(2):
            ships.thread_worker(redis, models_file=models, idle_poll_s=1)
        yield Ground(server, redis, make_runtime(models_file=models))


@pytest.mark.req("X15", "A10", "X14")
@pytest.mark.case("LLM-05")
@pytest.mark.parametrize("code", [429, 529])
def test_what_waits_for_a_busy_model_waits_for_all_workers_and_spends_no_attempt(
    ground: Ground, code: int
) -> None:
    pause = (("Retry-After", str(PAUSE_S)),)
    ground.server.answer_next(status(code, error_code="busy", headers=pause))
    (first,) = ground.submit("busy")
    wait_until(ground.cools, 10, "the provider's pause is known")
    asked_at_s = time.monotonic()

    waiting = ground.submit("busy", 6)
    others = ground.submit("idle", 2)

    wait_for_states(ground.redis, others, State.SUCCEEDED, 5)
    found = ground.runtime.records.waiting_on(waiting[0])
    if time.monotonic() - asked_at_s < PAUSE_S - 1:
        assert ground.calls_of("busy") == 1
        assert found is not None
        assert found.reason == "provider_cooldown"
    wait_for_states(ground.redis, waiting, State.SUCCEEDED, PAUSE_S + 8)
    assert time.monotonic() - asked_at_s > PAUSE_S - 1
    views = [ground.runtime.records.job(job_id) for job_id in waiting]
    assert [view.job.attempt for view in views if view] == [1] * 6
    assert not ground.cools()
    retried = ground.runtime.records.job(first)
    assert retried is not None
    assert retried.job.attempt == 2


@pytest.mark.req("X15", "B6")
def test_the_generation_that_met_the_429_ends_and_others_go_on_afterwards(ground: Ground) -> None:
    open_to(ground.redis, "acme")
    pause = (("Retry-After", "1"),)
    ground.server.answer_next(status(429, error_code="busy", headers=pause))

    def submit() -> str:
        new = new_generation(target="local:busy")
        if ground.runtime.generations.submit(new).ticket_wanted:
            ground.runtime.tickets.issue()
        return new.id

    def status_of(generation_id: str) -> str:
        return ground.runtime.generations.get(generation_id, "1").status

    first = submit()
    wait_until(lambda: status_of(first) == "failed", 10, "the first one ends")
    assert ground.runtime.generations.get(first, "1").code == "gateway_unavailable"
    second = submit()
    wait_until(lambda: status_of(second) == "succeeded", 10, "the second one is done")
    assert ground.calls_of("busy") == 2
