"""What does a chain cost beside its model calls, and does it come through kills? (C16, C17, C20)"""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from jobs.domain.escalation import Delivery
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.turns import NewTurn
from service.stack.redis_server import RedisServer
from tests.bench.chain_trips import round_trips
from tests.bench.figures import Figure, at_least, at_most, noted, percentile
from tests.bench.fleet import records_of, wait_registered
from tests.bench.open_loop import Post, at_rate
from tests.bench.stage import Stage, Started, wait_for
from tests.bench.web_server import serve
from tests.support.chain_chaos import (
    Start,
    Victims,
    are_delivered,
    broken_promises,
    have_ended,
    submit_chains,
)
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.factories import new_id
from tests.support.webhook_receiver import Handler, hang, status, webhook_receiver

WORKERS = 2
OVERHEAD_MS = 300
CHAINS = 50
GIVES_UP = "Chart the Q3 numbers [[mock sticky error=provider_4xx]]"
WORKER = ("-m", "service.cli", "worker")
SCHEDULER = ("-m", "scheduler")

KILLED_CHAINS = 200
CALL_S = 2.0
KILL_EVERY_S = 10.0
CHAOS = {
    "GENQUEUE_HEARTBEAT_INTERVAL_S": "2",
    "GENQUEUE_LEASE_WINDOW_S": "6",
    "GENQUEUE_SWEEP_INTERVAL_S": "2",
    "GENQUEUE_WORKER_CONCURRENCY": "8",
}

EACH_RECEIVER = 50
GOOD_RECEIVER_MS = 1_000
CHATS_PER_S = (5.0, 50.0)


@dataclass(frozen=True)
class Spans:
    """Where the time of a chain of two background attempts went, in ms by Redis's clock: from the
    submit to the escalation, from there to the end, and, of both attempts, until they were
    claimed and until they ended."""

    turn_ms: float
    chain_ms: float
    waiting_ms: float
    running_ms: float


def run(stage: Stage) -> list[Figure]:
    """One chain at a time; many while processes die; a receiver that hangs; a chat; round trips."""
    return [
        *_overhead(stage),
        *_kills(stage),
        *_slow_receiver(stage),
        *_chat(stage),
        *round_trips(stage.redis()),
    ]


def _runtime(server: RedisServer) -> Runtime:
    networks = (ipaddress.ip_network("127.0.0.0/8"),)
    settings = Settings(redis_url=server.url, formation_keys=(KEY,), webhook_networks=networks)
    return build(settings)


def _environment(server: RedisServer) -> Mapping[str, str]:
    return {
        "REDIS_URL": server.url,
        "GENQUEUE_FORMATION_KEYS": KEY,
        "GENQUEUE_WEBHOOK_NETWORKS": "127.0.0.0/8",
    }


def _overhead(stage: Stage) -> Iterator[Figure]:
    """Chains one after another whose calls fail at once, so that all their time is ours."""
    count = stage.amount(CHAINS, 10)
    server = stage.redis()
    runtime, environment = _runtime(server), _environment(server)
    for _ in range(WORKERS):
        stage.python("worker", WORKER, environment)
    wait_registered(runtime.redis, WORKERS)
    stage.python("scheduler", SCHEDULER, environment)
    wait_for(lambda: runtime.redis.exists(keys.TICKS()), 20, "the clock")
    stage.say(f"{count} chains of two background attempts, one after another")
    for _ in range(3):
        _chain(runtime)
    spans = [_chain(runtime) for _ in range(count)]
    chain_ms = [each.chain_ms for each in spans]
    note = f"both background attempts of {count} chains, from escalation to end"
    yield at_most("overhead of a chain, p50", percentile(chain_ms, 50), "ms", OVERHEAD_MS, note)
    yield noted("overhead of a chain, p99", percentile(chain_ms, 99), "ms")
    waiting_ms = [each.waiting_ms for each in spans]
    yield noted("of it until a worker has them, p50", percentile(waiting_ms, 50), "ms")
    running_ms = [each.running_ms for each in spans]
    yield noted("of it in the worker, p50", percentile(running_ms, 50), "ms")
    turn_ms = [each.turn_ms for each in spans]
    yield noted("submit of a turn to its escalation, p50", percentile(turn_ms, 50), "ms")


def _chain(runtime: Runtime) -> Spans:
    """One chain from its submit to its end."""
    redis = runtime.redis
    new = NewTurn(
        new_id(), new_id(), CLIENT, USER, runtime.formation.id, GIVES_UP, Delivery.POLLING
    )
    if runtime.turns.submit(new).ticket_wanted:
        runtime.tickets.issue()
    wait_for(
        lambda: redis.hexists(keys.REQUEST(new.id), "ended_at"), 30, "a chain's end", pause_s=0.01
    )
    stamps: Any = redis.hgetall(keys.REQUEST(new.id))
    replaced: Any = redis.lrange(keys.REPLACED(new.prompt_id), 0, -1)
    if stamps["state"] != "budget_exhausted" or len(replaced) != 2:
        raise RuntimeError(f"the chain ended {stamps['state']}")
    rows = records_of(
        redis, [replaced[1], stamps["job"]], "created_at", "claimed_at", "finished_at"
    )
    return Spans(
        turn_ms=int(stamps["escalated_at"]) - int(stamps["created_at"]),
        chain_ms=int(stamps["ended_at"]) - int(stamps["escalated_at"]),
        waiting_ms=sum(int(row["claimed_at"]) - int(row["created_at"]) for row in rows),
        running_ms=sum(int(row["finished_at"]) - int(row["claimed_at"]) for row in rows),
    )


def _kills(stage: Stage) -> Iterator[Figure]:
    """Many chains, while any of two workers and two schedulers is killed and started again."""
    count = stage.amount(KILLED_CHAINS, 40)
    server = stage.redis()
    runtime, environment = _runtime(server), {**_environment(server), **CHAOS}
    redis = runtime.redis

    def starts(name: str, words: tuple[str, ...]) -> Start:
        def start() -> Callable[[], None]:
            started = stage.python(name, words, environment)
            return lambda: _kill(started)

        return start

    with webhook_receiver() as receiver:
        receiver.answer_all(_slow)
        parts = [("worker", WORKER), ("scheduler", SCHEDULER)] * 2
        victims = Victims([(name, starts(name, words)) for name, words in parts], seed=1)
        began_s = time.monotonic()
        stage.say(f"{count} chains, calls of {CALL_S:g} s, kill -9 every {KILL_EVERY_S:g} s")
        sent = submit_chains(runtime, count, receiver.url(), CALL_S)
        if not victims.strike_until(lambda: have_ended(redis, sent), KILL_EVERY_S, for_s=600):
            raise TimeoutError("the chains did not end")
        took_s = time.monotonic() - began_s
        # Whoever was killed while it posted holds its lease for a minute.
        wait_for(lambda: are_delivered(redis, sent), 150, "all outcomes to be delivered")
        problems = broken_promises(runtime, sent, receiver.received)
        posts = len(receiver.received)
        ids = {got.headers["webhook-id"] for got in receiver.received}
    for problem in problems:
        stage.say(problem)
    killed = ", ".join(f"{n} x {name}" for name, n in sorted(victims.killed.items()))
    reruns = _reruns(redis)
    note = f"kill -9 of {killed} in {took_s:.0f} s; {reruns} attempts ran again"
    ended = sum(bool(redis.hget(keys.REQUEST(one.id), "state")) for one in sent)
    yield at_least("chains that end under kill -9", ended, "", count, note)
    yield at_most(
        "broken promises of theirs", len(problems), "", 0, "states, reports, posts, store"
    )
    note = f"{posts} posts, {posts - len(ids)} of them again"
    yield at_least("outcomes delivered once by webhook-id", len(ids), "", count, note)


def _kill(started: Started) -> None:
    os.killpg(started.pid, signal.SIGKILL)
    started.process.wait()


def _slow(handler: Handler) -> None:
    """An answer that takes a moment, so that some are killed in the middle of a post."""
    handler.pause(0.2)
    status(200)(handler)


def _reruns(redis: Redis) -> int:
    """How many attempts a sweep took from workers that were gone."""
    count = 0
    for name in redis.scan_iter(match=keys.HISTORY("*"), count=1_000):
        rows: Any = redis.lrange(name, 0, -1)
        count += sum(row.split("|")[2] == "reclaim" for row in rows)
    return count


def _slow_receiver(stage: Stage) -> Iterator[Figure]:
    """Chains whose outcomes go in turns to a receiver that hangs and to one that answers."""
    count = stage.amount(EACH_RECEIVER, 20)
    server = stage.redis()
    runtime = _runtime(server)
    redis = runtime.redis
    stage.python("scheduler", SCHEDULER, _environment(server))
    wait_for(lambda: redis.exists(keys.TICKS()), 20, "the clock")
    stage.say(f"{count} deliveries to a receiver that hangs, {count} to one that answers")
    with webhook_receiver() as slow, webhook_receiver() as good:
        slow.answer_all(hang)
        ids = []
        for _ in range(count):
            for receiver in (slow, good):
                ids.append(end_chain(runtime.turns, runtime.queue, receiver.url()))
                runtime.delivery_tickets.issue()
        wait_for(lambda: _delivered_ms(redis, ids[1::2]), 60, "the good receiver's deliveries")
        took_ms = _delivered_ms(redis, ids[1::2])
        hung = len(slow.received)
    note = f"{count} outcomes beside {count} for one that hangs, {hung} posts of those so far"
    yield noted("end of a chain to delivered, p50", percentile(took_ms, 50), "ms", note)
    p99_ms = percentile(took_ms, 99)
    yield at_most("end of a chain to delivered, p99", p99_ms, "ms", GOOD_RECEIVER_MS)


def _delivered_ms(redis: Redis, ids: list[str]) -> list[float]:
    """From the end of each chain to that of its delivery; empty until all are delivered."""
    pipe = redis.pipeline(transaction=False)
    for delivery_id in ids:
        pipe.hmget(keys.DELIVERY(delivery_id), "created_at", "ended_at")
    rows = pipe.execute()
    if not all(ended for _, ended in rows):
        return []
    return [float(ended) - float(created) for created, ended in rows]


def _chat(stage: Stage) -> Iterator[Figure]:
    """Messages to one web process and one worker, at a fixed rate."""
    for_s = stage.amount(15, 4)
    server = stage.redis()
    runtime, environment = _runtime(server), _environment(server)
    stage.python("worker", WORKER, environment)
    wait_registered(runtime.redis, 1)
    port = serve(stage, environment, processes=1).port
    headers = {
        "Content-Type": "application/json",
        "X-Muxi-Client-Key": KEY,
        "X-Muxi-User-Id": USER,
    }
    post = Post(port, "/v1/chat", json.dumps({"message": "Hello."}).encode(), headers)
    at_rate(post, per_s=20, for_s=1)
    for per_s in CHATS_PER_S:
        stage.say(f"{per_s:g} messages/s for {for_s} s")
        before = runtime.redis.zcard(keys.ENDED())
        load = at_rate(post, per_s=per_s, for_s=for_s)
        if load.statuses.keys() != {"200"}:
            raise RuntimeError(f"not every message was answered: {dict(load.statuses)}")
        p50_ms, p99_ms = (percentile(load.latencies_s, percent) * 1000 for percent in (50, 99))
        note = f"{len(load.latencies_s)} messages, the mock answers at once"
        name = f"POST /v1/chat to its answer, {per_s:g}/s"
        yield noted(f"{name}, p50", p50_ms, "ms", note)
        yield noted(f"{name}, p99", p99_ms, "ms")
        ids: Any = runtime.redis.zrange(keys.ENDED(), before, -1)
        rows = records_of(runtime.redis, ids, "created_at", "claimed_at", "finished_at")
        waiting_ms = [float(row["claimed_at"]) - float(row["created_at"]) for row in rows]
        yield noted("of it until a worker has the turn, p50", percentile(waiting_ms, 50), "ms")
        running_ms = [float(row["finished_at"]) - float(row["claimed_at"]) for row in rows]
        yield noted("of it in the worker, p50", percentile(running_ms, 50), "ms")
