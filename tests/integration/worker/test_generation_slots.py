"""Are there ever more generations at the provider than the caps say, whatever dies? (B18)"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from redis import Redis

from jobs import maintenance
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.generations import GenerationView
from tests.support.models_file import models_text
from tests.support.openai_server import Fault, OpenAIServer, Reply, Request, fault, openai_server
from tests.support.processes import Fleet, Process
from tests.support.stored_generations import new_generation, open_to
from tests.support.waiting import wait_until

LEASE = {"heartbeat_interval_s": 1, "lease_window_s": 2}
TEAMS = [f"team-{n:02}" for n in range(20)]
EACH = 15


@dataclass(frozen=True)
class Ground:
    """A provider that counts, workers that call it, and what a caller of the API would do."""

    server: OpenAIServer
    redis: Redis
    runtime: Runtime
    start_worker: Callable[..., Process]

    def submit(self, team_id: str, count: int = 1) -> list[str]:
        """Submit as the API does, the ticket included; answers the ids."""
        ids = []
        for _ in range(count):
            new = new_generation(team_id=team_id, prompt_text=team_id, target="local:writer")
            if self.runtime.generations.submit(new).ticket_wanted:
                self.runtime.tickets.issue()
            ids.append(new.id)
        return ids

    def views(self, ids: list[str], team_id: str) -> list[GenerationView]:
        return [self.runtime.generations.get(one, team_id) for one in ids]

    def count(self, ids: list[str], team_id: str, status: str) -> int:
        return [view.status for view in self.views(ids, team_id)].count(status)

    def sweep_until_failed(self, count: int) -> None:
        """Sweep until the leases of so many attempts have ended."""
        failed = [0]

        def swept() -> bool:
            failed[0] += self.sweep()
            return failed[0] == count

        wait_until(swept, 10, "the leases end")

    def sweep(self) -> int:
        """A reclaim sweep with the lease window of the workers; answers how many jobs failed."""
        settings = replace(self.runtime.settings, **LEASE)
        return maintenance.reclaim(replace(self.runtime, settings=settings)).failed


def team_of(request: Request) -> str:
    team: str = request.json["messages"][-1]["content"]
    return team


@pytest.fixture
def ground(
    redis: Redis, ships: Fleet, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> Iterator[Ground]:
    open_to(redis, "acme")
    with openai_server() as server:
        server.group_of = team_of
        models = tmp_path / "models.toml"
        models.write_text(models_text(server.base_url, "writer"), encoding="utf-8")

        def start_worker(**settings: object) -> Process:
            return ships.thread_worker(redis, models_file=models, **LEASE, **settings)

        yield Ground(server, redis, make_runtime(models_file=models), start_worker)


@pytest.mark.req("B18", "X9")
def test_twenty_teams_share_thirty_slots_in_turns_and_five_is_the_most_of_one(
    ground: Ground,
) -> None:
    ground.server.default = Reply(delay_s=0.2)
    ids = {team: ground.submit(team, EACH) for team in TEAMS}
    for _ in range(2):
        ground.start_worker()

    wait_until(
        lambda: all(ground.count(ids[team], team, "succeeded") == EACH for team in TEAMS),
        40,
        "all generations are done",
    )

    assert ground.server.request_count == len(TEAMS) * EACH
    assert 25 <= ground.server.concurrent_max <= 30
    assert max(ground.server.group_max.values()) <= 5
    order = [team_of(request) for request in ground.server.requests]
    # In turns: when half of the calls are made, nobody is far from half of his own.
    half = Counter(order[: len(order) // 2])
    assert min(half[team] for team in TEAMS) >= EACH // 2 - 2
    assert max(half.values()) <= EACH // 2 + 3
    assert ground.redis.exists(keys.SLOTS(), keys.SHUT_BY(), keys.GATES()) == 0


@pytest.mark.req("B18", "B19", "A8")
@pytest.mark.case("LIM-01", "LIM-03")
def test_a_killed_worker_keeps_no_slot_for_ever_and_frees_none_that_may_be_live(
    ground: Ground,
) -> None:
    ground.server.default = fault(Fault.HANG)
    ground.sweep()
    doomed = ground.start_worker()
    lost = ground.submit("1", 5)
    wait_until(lambda: ground.server.concurrent_max == 5, 10, "five calls are at the provider")
    doomed.signal_group(signal.SIGKILL)
    ground.server.default = Reply()
    ground.sweep_until_failed(5)
    assert {str(view.code) for view in ground.views(lost, "1")} == {"deadline_exceeded"}

    # The provider may still be working on those five calls: nobody else of the team goes on.
    ground.start_worker()
    (waiting,) = ground.submit("1")
    (other,) = ground.submit("2")
    wait_until(lambda: ground.count([other], "2", "succeeded") == 1, 10, "another team goes on")
    assert ground.count([waiting], "1", "pending") == 1
    assert ground.redis.zcard(keys.TEAM_SLOTS("1")) == 5
    gone = dict.fromkeys(ground.redis.zrange(keys.SLOTS(), 0, -1), 1)
    ground.redis.zadd(keys.SLOTS(), gone, xx=True)
    ground.redis.zadd(keys.TEAM_SLOTS("1"), gone, xx=True)
    if maintenance.promote(ground.runtime).reopened == 0:
        pytest.fail("the gate did not open when the slots had ended")
    wait_until(lambda: ground.count([waiting], "1", "succeeded") == 1, 10, "the next goes on")


@pytest.mark.req("B18", "A14", "X16")
def test_a_stopped_worker_holds_its_slots_until_it_says_that_its_calls_are_over(
    ground: Ground,
) -> None:
    ground.server.default = fault(Fault.HANG)
    ground.sweep()
    stale = ground.start_worker()
    ids = ground.submit("1", 2)
    wait_until(lambda: ground.server.concurrent_max == 2, 10, "two calls are at the provider")
    stale.signal_group(signal.SIGSTOP)
    ground.sweep_until_failed(2)
    assert ground.redis.zcard(keys.SLOTS()) == 2
    unsettled = ground.runtime.credits.of_org("acme").unsettled_usd_micros
    assert unsettled == 2_000

    stale.signal_group(signal.SIGCONT)

    wait_until(lambda: ground.redis.zcard(keys.SLOTS()) == 0, 10, "the calls are over")
    assert {str(view.code) for view in ground.views(ids, "1")} == {"deadline_exceeded"}
    # What those calls used nobody knows: it stays visible, as the estimate of the calls made.
    assert ground.runtime.credits.of_org("acme").unsettled_usd_micros > 0
    assert all(request.left.wait(5) for request in ground.server.requests)


@pytest.mark.req("B18", "A17", "B17")
def test_a_cancelled_call_counts_until_it_has_left_the_wire(ground: Ground) -> None:
    ground.server.default = fault(Fault.HANG)
    ground.start_worker()
    ids = ground.submit("1", 5)
    wait_until(lambda: ground.server.concurrent_max == 5, 10, "five calls are at the provider")
    (waiting,) = ground.submit("1")
    ground.server.default = Reply()

    ground.runtime.queue.cancel(ids[0], "acme")

    assert ground.runtime.generations.get(ids[0], "1").status == "failed"
    wait_until(lambda: ground.count([waiting], "1", "succeeded") == 1, 10, "the next goes on")
    assert ground.server.requests[0].left.wait(5) or ground.server.group_max["1"] <= 5
    assert ground.server.group_max["1"] == 5
    for one in ids[1:]:
        ground.runtime.queue.cancel(one, "acme")
    wait_until(lambda: ground.redis.zcard(keys.SLOTS()) == 0, 10, "all slots are free")
    balance = ground.runtime.credits.of_org("acme")
    assert balance.reserved_usd_micros == 0
    assert balance.unsettled_usd_micros > 0
