"""Do chains, their reports and their deliveries survive what is killed or stands still? (C20, X13)

All of it in processes as they are run, on a Redis of the test's own that keeps what it is given.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.domain.states import State
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from tests.support.chain_chaos import (
    Sent,
    Start,
    Victims,
    are_delivered,
    broken_promises,
    end_leases_of_deliveries,
    have_ended,
    submit_chains,
)
from tests.support.clock import SCHEDULER, start_scheduler
from tests.support.ended_chains import KEY
from tests.support.processes import THREAD_WORKER, Fleet, fleet
from tests.support.redis_server import RedisServer, start_redis
from tests.support.waiting import wait_until
from tests.support.webhook_receiver import Handler, WebhookReceiver, status, webhook_receiver

pytestmark = pytest.mark.req("C20", "C16", "C17", "X13", "C13")

FORMATION = """\
agents: [{id: assistant}]
overlord: {workflow: {retry: {max_attempts: 1}}}
"""
CHAINS = 12
CALL_S = 0.8
KILL_EVERY_S = 1.5
KILL_FOR_S = 8.0


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis with an append-only file, to be killed."""
    server = start_redis(tmp_path / "redis", aof=True, extra=("--appendfsync", "always"))
    yield server
    server.stop()


@pytest.fixture
def ships(durable: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(durable.url, tmp_path) as running:
        yield running


@pytest.fixture
def lively(tmp_path: Path) -> dict[str, object]:
    """Settings under which what died is missed within 3 s."""
    formation = tmp_path / "formation.yaml"
    formation.write_text(FORMATION)
    return {
        "heartbeat_interval_s": 1,
        "lease_window_s": 2,
        "sweep_interval_s": 1,
        "idle_poll_s": 1,
        "worker_concurrency": 4,
        "formation_file": formation,
        "formation_keys": KEY,
        "webhook_networks": "127.0.0.0/8",
    }


@pytest.fixture
def runtime(durable: RedisServer, lively: dict[str, object]) -> Iterator[Runtime]:
    formation_file = lively["formation_file"]
    assert isinstance(formation_file, Path)
    made = build(Settings(redis_url=durable.url, formation_file=formation_file))
    yield made
    made.redis.close()
    made.rq_redis.close()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    """One that takes its time, so that some are killed in the middle of a post."""

    def slow(handler: Handler) -> None:
        handler.pause(0.1)
        status(200)(handler)

    with webhook_receiver() as running:
        running.answer_all(slow)
        yield running


@pytest.fixture
def stack(ships: Fleet, lively: dict[str, object]) -> list[tuple[str, Start]]:
    """How two workers and two schedulers are started."""

    def starts(command: tuple[str, ...]) -> Start:
        return lambda: ships.start(command, **lively).end

    return [
        *(("worker", starts(THREAD_WORKER)) for _ in range(2)),
        *(("scheduler", starts(SCHEDULER)) for _ in range(2)),
    ]


def delivered(runtime: Runtime, sent: list[Sent]) -> bool:
    """Whether all is; nobody is killed any more, so who still holds a lease may lose it."""
    end_leases_of_deliveries(runtime.redis)
    return are_delivered(runtime.redis, sent)


def test_kill_9_of_workers_and_schedulers_loses_and_doubles_no_chain(
    runtime: Runtime, receiver: WebhookReceiver, stack: list[tuple[str, Start]]
) -> None:
    victims = Victims(stack, seed=20)
    sent = submit_chains(runtime, CHAINS, receiver.url(), CALL_S)

    victims.strike_until(
        lambda: have_ended(runtime.redis, sent), every_s=KILL_EVERY_S, for_s=KILL_FOR_S
    )

    assert victims.killed.total() >= 3
    wait_until(lambda: have_ended(runtime.redis, sent), 40, "all chains end")
    wait_until(lambda: delivered(runtime, sent), 20, "all are delivered")
    assert broken_promises(runtime, sent, receiver.received) == []


def test_a_redis_that_is_killed_and_comes_back_loses_and_doubles_no_chain(
    runtime: Runtime,
    durable: RedisServer,
    receiver: WebhookReceiver,
    stack: list[tuple[str, Start]],
) -> None:
    def start_again() -> Callable[[], None]:
        durable.start()
        return durable.kill

    victims = Victims([("redis", start_again), *stack], seed=13)
    sent = submit_chains(runtime, CHAINS, receiver.url(), CALL_S)

    for name in ("redis", "worker", "redis"):
        wait_until(lambda: runtime.redis.zcard(keys.RUNNING()) > 2, 20, "chains are under way")
        victims.strike(name)

    wait_until(lambda: have_ended(runtime.redis, sent), 40, "all chains end")
    wait_until(lambda: delivered(runtime, sent), 20, "all are delivered")
    assert victims.killed == {"redis": 2, "worker": 1}
    assert broken_promises(runtime, sent, receiver.received) == []


def test_a_worker_that_stood_still_past_its_lease_comes_back_to_a_chain_that_has_ended(
    runtime: Runtime, ships: Fleet, receiver: WebhookReceiver, lively: dict[str, object]
) -> None:
    redis = runtime.redis
    start_scheduler(ships, redis, **lively)
    stale = ships.thread_worker(redis, **lively)
    (chain,) = submit_chains(runtime, 1, receiver.url(), CALL_S)
    task = wait_until(lambda: background_task(runtime, chain), 20, "the task of attempt 2 runs")
    stale.signal_group(signal.SIGSTOP)
    ships.thread_worker(redis, **lively)
    wait_until(lambda: have_ended(redis, [chain]), 20, "another worker ends the chain")
    wait_until(lambda: delivered(runtime, [chain]), 10, "it is delivered")
    before = runtime.turns.read(chain.id)

    stale.signal_group(signal.SIGCONT)

    # The first noted its plan, so the second made only the call for the task.
    wait_until(lambda: len(calls_of(runtime, chain, task)) == 3, 10, "all calls are booked")
    assert sorted(calls_of(runtime, chain, task)) == ["plan", "task", "task"]
    assert runtime.turns.read(chain.id) == before
    assert len(receiver.received) == 1
    assert broken_promises(runtime, [chain], receiver.received) == []


def test_a_worker_that_comes_back_while_another_has_its_attempt_gives_it_up_and_is_booked(
    runtime: Runtime, ships: Fleet, receiver: WebhookReceiver, lively: dict[str, object]
) -> None:
    redis = runtime.redis
    # No lease ends by itself, that of the worker which stands still when the test says so.
    patient = {**lively, "heartbeat_interval_s": 30, "lease_window_s": 90}
    start_scheduler(ships, redis, **lively)
    stale = ships.thread_worker(redis, **patient)
    (chain,) = submit_chains(runtime, 1, receiver.url(), CALL_S)
    task = wait_until(lambda: background_task(runtime, chain), 20, "the task of attempt 2 runs")
    lease = redis.hget(keys.JOB(task), "worker_claim")
    stale.signal_group(signal.SIGSTOP)
    redis.zadd(keys.RUNNING(), {task: 1}, xx=True)  # the lease ends
    other = ships.thread_worker(redis, **patient)
    wait_until(
        lambda: redis.hget(keys.JOB(task), "worker_claim") not in {None, lease},
        20,
        "another worker takes it",
    )
    other.signal_group(signal.SIGSTOP)

    stale.signal_group(signal.SIGCONT)
    wait_until(lambda: calls_of(runtime, chain, task), 10, "its calls are booked")

    assert calls_of(runtime, chain, task) == ["plan", "task"]
    # Its heartbeat hears of it first, unless its answer is faster.
    assert any(word in stale.output() for word in ("the lease is lost", "LEASE_LOST"))
    assert redis.hget(keys.JOB(task), "state") == State.RUNNING
    other.signal_group(signal.SIGCONT)
    wait_until(lambda: have_ended(redis, [chain]), 10, "the other worker ends it")
    wait_until(lambda: delivered(runtime, [chain]), 10, "it is delivered")
    assert calls_of(runtime, chain, task) == ["plan", "task", "task"]
    assert len(receiver.received) == 1
    assert broken_promises(runtime, [chain], receiver.received) == []


def background_task(runtime: Runtime, chain: Sent) -> str:
    """The job of a background attempt that carries its plan out; "" while there is none."""
    request: Any = runtime.redis.hgetall(keys.REQUEST(chain.id))
    is_begun = runtime.redis.exists(keys.REQUEST_PLAN(chain.id))
    return str(request["job"]) if "escalated_at" in request and is_begun else ""


def calls_of(runtime: Runtime, chain: Sent, job_id: str) -> list[str]:
    """What each call was for that is booked on a job."""
    prompt = runtime.records.prompt(chain.prompt_id)
    assert prompt is not None
    return [row.usage["purpose"] for row in prompt.ledger if row.job_id == job_id]


@pytest.mark.case("WH-07")
def test_kill_9_right_after_the_end_leaves_the_outcome_for_a_scheduler_that_comes_later(
    runtime: Runtime, ships: Fleet, receiver: WebhookReceiver, lively: dict[str, object]
) -> None:
    worker = ships.thread_worker(runtime.redis, **lively)
    sent = submit_chains(runtime, 4, receiver.url(), 0.1)

    wait_until(lambda: have_ended(runtime.redis, sent), 30, "the chains end")
    worker.signal_group(signal.SIGKILL)
    runtime.redis.delete("rq:queue:genqueue-deliveries")  # signals, which may get lost
    assert receiver.received == []
    start_scheduler(ships, runtime.redis, **lively)

    wait_until(lambda: are_delivered(runtime.redis, sent), 15, "the outbox is posted")
    assert len(receiver.received) == len(sent)
    assert broken_promises(runtime, sent, receiver.received) == []
