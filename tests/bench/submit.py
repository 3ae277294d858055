"""What does `POST /v1/prompt` cost, in Redis round trips and in time under load?"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.runtime import Runtime
from jobs.store import keys
from tests.bench.counting_proxy import CountingProxy, proxied
from tests.bench.figures import Figure, at_most, noted, percentile
from tests.bench.fleet import runtime_for, start_workers, wait_registered
from tests.bench.open_loop import Connection, Load, Post, at_rate
from tests.bench.stage import Stage
from tests.bench.web_server import serve

BARE_APP = "tests.bench.bare_flask:create_app()"
BUSY_SLOTS = 8
PER_S = 100.0
P99_MS = 100.0
COUNTED = 60
LOOKUP = "HGETALL"
BUSY_PROMPT = "[[mock delay=0.2]] Describe the sea at night in two sentences."


@dataclass(frozen=True)
class Cost:
    """What one submit took of Redis; `lookups` are reads of the API key."""

    round_trips: int
    commands: Counter[str]

    @property
    def lookups(self) -> int:
        """Reads of the API key."""
        return self.commands[LOOKUP]

    @property
    def has_ticket(self) -> bool:
        """Whether a ticket was issued: RQ pushes its id on a list."""
        return bool(self.commands["RPUSH"] or self.commands["LPUSH"])


def run(stage: Stage) -> list[Figure]:
    """Round trips by a counting proxy, then times at 100 requests/s, open loop."""
    return [*_round_trips(stage), *_times(stage)]


def _round_trips(stage: Stage) -> Iterator[Figure]:
    server = stage.redis()
    with proxied(server.port) as proxy:
        post = _post(runtime_for(server), serve(stage, {"REDIS_URL": proxy.url}).port)
        connection = Connection(post)
        for _ in range(3):
            _cost_of_one(connection, proxy)
        started_s = time.monotonic()
        costs = [_cost_of_one(connection, proxy) for _ in range(COUNTED)]
        elapsed_s = time.monotonic() - started_s
        connection.close()
    plain = [cost.round_trips - cost.lookups for cost in costs if not cost.has_ticket]
    ticket = [cost.round_trips - cost.lookups for cost in costs if cost.has_ticket]
    commands = max(sum(cost.commands.values()) for cost in costs if cost.has_ticket)
    note = f"{len(plain)} of {COUNTED} submits, into a backlog"
    yield at_most("round trips of a submit", max(plain), "", 1, note)
    note = f"{len(ticket)} submits, up to {commands} commands"
    yield at_most("round trips of a submit with a ticket", max(ticket), "", 3, note)
    lookups = sum(cost.lookups for cost in costs)
    allowed = 1 + int(elapsed_s / 5)
    yield at_most(f"API key look-ups in {COUNTED} submits", lookups, "", allowed)


def _times(stage: Stage) -> Iterator[Figure]:
    for_s = stage.amount(20, 5)
    server = stage.redis()
    runtime = runtime_for(server)
    start_workers(stage, server, 1, BUSY_SLOTS)
    wait_registered(runtime.redis, 1)
    post = _post(runtime, serve(stage, {"REDIS_URL": server.url}).port)
    stage.say(f"100 submits/s for {for_s} s, {BUSY_SLOTS} worker threads busy")
    ours = at_rate(post, per_s=PER_S, for_s=for_s)
    # The backlog that this left keeps the worker as busy for the bare route.
    bare_web = serve(stage, {"REDIS_URL": server.url}, app=BARE_APP)
    bare_post = Post(bare_web.port, post.path, post.body, post.headers)
    stage.say(f"100 requests/s for {for_s} s on a bare Flask route")
    bare = at_rate(bare_post, per_s=PER_S, for_s=for_s)
    busy = runtime.redis.zcard(keys.RUNNING())
    for load in (ours, bare):
        if load.statuses.keys() != {"202"}:
            raise RuntimeError(f"not every request was accepted: {dict(load.statuses)}")
    yield noted("POST /v1/prompt, p50", _ms(ours, 50), "ms", "open loop, 100 requests/s")
    note = f"{len(ours.latencies_s):,} requests, {busy} attempts still running at the end"
    yield at_most("POST /v1/prompt, p99", _ms(ours, 99), "ms", P99_MS, note)
    yield noted("bare Flask route, p50", _ms(bare, 50), "ms", "same gunicorn, same load")
    yield noted("bare Flask route, p99", _ms(bare, 99), "ms")
    for percent in (50, 99):
        ratio = _ms(ours, percent) / _ms(bare, percent)
        yield noted(f"POST /v1/prompt over a bare route, p{percent}", ratio, "times")


def _ms(load: Load, percent: int) -> float:
    return percentile(load.latencies_s, percent) * 1000


def _post(runtime: Runtime, port: int) -> Post:
    _, key = runtime.credentials.create("acme", "ada")
    body = json.dumps({"prompt": BUSY_PROMPT}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    return Post(port, "/v1/prompt", body, headers)


def _cost_of_one(connection: Connection, proxy: CountingProxy) -> Cost:
    proxy.reset()
    status = connection.send()
    if status != "202":
        raise RuntimeError(f"the submit was answered by {status}")
    return Cost(proxy.round_trips, Counter(proxy.commands))
