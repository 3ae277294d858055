"""What do a claim and its end cost in round trips, and a waiting job in memory?"""

from __future__ import annotations

from collections.abc import Iterator

from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.bench.counting_proxy import CountingProxy, proxied
from tests.bench.figures import Figure, at_most, noted
from tests.bench.fleet import plain_jobs, runtime_for, script_costs
from tests.bench.rq_pool import enqueue_all
from tests.bench.stage import Stage
from tests.support.factories import claim, claim_one, new_job, response_for

TICKET_CAP = 16
BATCH = 20
PROMPT = ("Describe the sea at night in two sentences. " * 5)[:200]
PEERS = "SAQ 726, BullMQ 813 elsewhere"


def run(stage: Stage) -> list[Figure]:
    """Round trips by a counting proxy; server time by Redis' own count; memory by its growth."""
    return [*_round_trips(stage), *_server_times(stage), *_memory(stage)]


def _round_trips(stage: Stage) -> list[Figure]:
    server = stage.redis()
    with proxied(server.port) as proxy, Redis.from_url(proxy.url, decode_responses=True) as redis:
        queue = Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=TICKET_CAP)
        # The first call of each script loads it, which is a round trip of its own.
        _trips_of_one(queue, proxy)
        counts = _trips_of_one(queue, proxy)
    return [
        at_most(f"round trips of {verb}", trips, "", 1)
        for verb, trips in counts.items()
        if verb != "submit"
    ]


def _trips_of_one(queue: Queue, proxy: CountingProxy) -> dict[str, int]:
    """Round trips by verb, over the life of a job that succeeds at its second attempt and of one
    that fails."""
    counts: dict[str, int] = {}

    def note(verb: str) -> None:
        counts[verb] = proxy.round_trips
        proxy.reset()

    proxy.reset()
    queue.submit(new_job())
    note("submit")
    attempt = claim_one(queue)
    note("claim")
    queue.retry(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "too slow", 0)
    note("retry")
    attempt = claim_one(queue)
    proxy.reset()
    queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
    note("succeed")
    queue.submit(new_job())
    attempt = claim_one(queue)
    proxy.reset()
    queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "unreadable")
    note("fail")
    return counts


def _server_times(stage: Stage) -> Iterator[Figure]:
    """Mean microseconds of the server in each script, jobs taken one by one."""
    count = stage.amount(1_000, 200)
    runtime = runtime_for(stage.redis())
    redis, queue = runtime.redis, runtime.queue
    _one_life(queue)

    def server_us() -> float:
        cost_us = script_costs(redis)["evalsha"][1]
        redis.config_resetstat()
        return cost_us

    redis.config_resetstat()
    for job in plain_jobs(count):
        queue.submit(job)
    yield noted("server time of a submit", server_us(), "µs", f"mean of {count:,}")
    attempts = [claim_one(queue) for _ in range(count)]
    yield noted("server time of a claim of one", server_us(), "µs")
    for attempt in attempts:
        queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
    yield noted("server time of a succeed", server_us(), "µs")
    for job in plain_jobs(count):
        queue.submit(job)
    redis.config_resetstat()
    for _ in range(count // BATCH):
        claim(queue, BATCH)
    yield noted(f"server time of a claim of {BATCH}, a job", server_us() / BATCH, "µs")


def _one_life(queue: Queue) -> None:
    """Load the scripts."""
    queue.submit(new_job())
    attempt = claim_one(queue)
    queue.succeed(attempt.job.id, attempt.token, response_for(attempt))


def _memory(stage: Stage) -> list[Figure]:
    count = stage.amount(10_000, 2_000)
    stage.say(f"memory of {count:,} queued jobs")
    server = stage.redis()
    runtime = runtime_for(server)
    before = _used_bytes(runtime.redis)
    for job in plain_jobs(count, prompt_text=PROMPT):
        runtime.queue.submit(job)
    ours = (_used_bytes(runtime.redis) - before) / count
    rq_server = stage.redis()
    with Redis.from_url(rq_server.url) as redis:
        before = _used_bytes(redis)
        enqueue_all(rq_server, "tests.bench.rq_work.noop", {"text": PROMPT}, count)
        theirs = (_used_bytes(redis) - before) / count
    note = f"{count:,} jobs with 200 bytes of prompt; {PEERS}"
    return [
        noted("memory of a queued job in plain rq", theirs, "B"),
        at_most("memory of a queued job in genqueue", ours, "B", round(theirs), note),
    ]


def _used_bytes(redis: Redis) -> int:
    return int(redis.info("memory")["used_memory"])
