"""How is our side of a comparison run? Real worker processes over one Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from jobs.domain.job import NewJob
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from service.stack.redis_server import RedisServer
from tests.bench.stage import Stage, Started, cpu_s, wait_for
from tests.support.factories import new_job

BATCH = 1000


@dataclass(frozen=True)
class Span:
    """From the first start to the last end of a set of jobs, and the CPU seconds of the
    workers in that time."""

    elapsed_s: float
    cpu_s: float


def runtime_for(server: RedisServer, models_file: Path | None = None) -> Runtime:
    """The object graph of this process for `server`."""
    if models_file is None:
        return build(Settings(redis_url=server.url))
    return build(Settings(redis_url=server.url, models_file=models_file))


def start_workers(
    stage: Stage, server: RedisServer, count: int, slots: int, models_file: Path | None = None
) -> list[Started]:
    """`genqueue worker`, `count` times with `slots` each."""
    environment = {"REDIS_URL": server.url}
    if models_file is not None:
        environment["GENQUEUE_MODELS_FILE"] = str(models_file)
    words = ("-m", "service.cli", "worker", "--concurrency", str(slots))
    return [stage.python("worker", words, environment) for _ in range(count)]


def wait_registered(redis: Redis, count: int) -> None:
    """Until so many workers are known to RQ."""
    wait_for(lambda: redis.scard("rq:workers") == count, 30, f"{count} workers to register")


def submit_all(runtime: Runtime, jobs: Iterable[NewJob]) -> list[str]:
    """Submit as the API does, with its tickets; answers the job ids."""
    ids = []
    for job in jobs:
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()
        ids.append(job.id)
    return ids


def plain_jobs(count: int, **changes: object) -> list[NewJob]:
    """`count` jobs for the mock provider, which answers at once."""
    return [new_job(**changes) for _ in range(count)]


def is_drained(redis: Redis) -> bool:
    """Whether nothing waits and nothing runs."""
    return not redis.exists(keys.TURNS(), keys.RUNNING(), keys.SCHEDULED(), keys.GATES())


def drain(redis: Redis, ids: list[str], workers: list[Started], within_s: float) -> Span:
    """Wait until all of `ids` have ended, and say how long it took from the first claim on."""
    pids = [worker.pid for worker in workers]
    wait_for(lambda: redis.exists(keys.CLAIMED_AT()), 60, "the first claim", pause_s=0.005)
    cpu_before_s = cpu_s(pids)
    wait_for(lambda: is_drained(redis), within_s, "the queue to be drained")
    used_s = cpu_s(pids) - cpu_before_s
    rows = records_of(redis, ids, "state", "claimed_at", "finished_at")
    wrong = [row for row in rows if row["state"] != "succeeded"]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(rows)} jobs did not succeed: {wrong[0]}")
    first_ms = min(int(row["claimed_at"]) for row in rows)
    last_ms = max(int(row["finished_at"]) for row in rows)
    return Span((last_ms - first_ms) / 1000, used_s)


def records_of(redis: Redis, ids: list[str], *fields: str) -> list[Mapping[str, str]]:
    """These fields of these jobs, in order; only those that are set."""
    rows: list[Mapping[str, str]] = []
    for at in range(0, len(ids), BATCH):
        pipe = redis.pipeline(transaction=False)
        for job_id in ids[at : at + BATCH]:
            pipe.hmget(keys.JOB(job_id), *fields)
        for values in pipe.execute():
            pairs = zip(fields, values, strict=True)
            rows.append({name: value for name, value in pairs if value is not None})
    return rows


def script_costs(redis: Redis) -> dict[str, tuple[int, float]]:
    """By command: how often it was called, and how many microseconds of the server it cost."""
    found = redis.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): (int(stat["calls"]), float(stat["usec_per_call"]))
        for name, stat in found.items()
    }


def run_from_opening(runtime: Runtime, org: str, submit: Callable[[], list[str]]) -> float:
    """Queue what `submit` submits behind the shut gate of `org`, open it for the processes at
    work; seconds from then to the last end. Raises RuntimeError where one did not succeed."""
    redis = runtime.redis
    redis.hset(keys.QUOTAS(), org, 0)
    ids = submit()
    runtime.tickets.issue()
    tickets = f"rq:queue:{runtime.settings.queue_name}"
    wait_for(lambda: redis.exists(keys.GATES()) and not redis.llen(tickets), 20, "a shut gate")
    redis.hdel(keys.QUOTAS(), org)
    seconds, micros = redis.time()
    opened_s = int(seconds) + int(micros) / 1e6
    runtime.queue.promote()
    for _ in range(redis.scard("rq:workers")):
        runtime.tickets.issue()
    wait_for(lambda: is_drained(redis), 60, "all jobs to end")
    rows = records_of(redis, ids, "state", "finished_at")
    if wrong := [row for row in rows if row["state"] != "succeeded"]:
        raise RuntimeError(f"{len(wrong)} of {len(ids)} jobs did not succeed: {wrong[0]}")
    return max(int(row["finished_at"]) for row in rows) / 1000 - opened_s
