"""How is plain RQ's side of a comparison run? `rq worker-pool` on a queue filled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import psutil  # type: ignore[import-untyped]  # it ships none
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from service.stack.redis_server import RedisServer
from tests.bench.fleet import BATCH, Span
from tests.bench.stage import Stage, cpu_s, wait_for

QUEUE = "plain"


def enqueue_all(
    server: RedisServer, function: str, arguments: Mapping[str, str], count: int
) -> list[str]:
    """Put `count` calls of `function` on the queue, JSON all the way; answers the job ids."""
    with Redis.from_url(server.url) as redis:
        queue = Queue(QUEUE, connection=redis, serializer=JSONSerializer)
        return [queue.enqueue(function, kwargs=dict(arguments)).id for _ in range(count)]


def drain_by_pool(
    stage: Stage,
    server: RedisServer,
    ids: Sequence[str],
    *,
    workers: int,
    preload: str = "",
    within_s: float = 120,
) -> Span:
    """Run the queue to its end by `rq worker-pool -n`, from the first start to the last end.

    `preload` is a module that the pool imports before it forks its workers.
    """
    main = f"import {preload or 'rq'}; from rq.cli import main; main()"
    words = ("-c", main, "worker-pool", "-n", str(workers), "-S", "json", "-u", server.url, QUEUE)
    pool = stage.python("rq-pool", words)
    with Redis.from_url(server.url, decode_responses=True) as redis:
        wait_for(lambda: redis.llen(f"rq:queue:{QUEUE}") < len(ids), 60, "rq to start", 0.005)
        pids = [child.pid for child in psutil.Process(pool.pid).children()]
        before_s = cpu_s(pids)
        finished = f"rq:finished:{QUEUE}"
        wait_for(lambda: redis.zcard(finished) == len(ids), within_s, "rq to drain its queue")
        used_s = cpu_s(pids) - before_s
        span_s = _span_s(redis, ids)
    pool.stop()
    return Span(span_s, used_s)


def _span_s(redis: Redis, ids: Sequence[str]) -> float:
    starts, ends = [], []
    for at in range(0, len(ids), BATCH):
        pipe = redis.pipeline(transaction=False)
        for job_id in ids[at : at + BATCH]:
            pipe.hmget(f"rq:job:{job_id}", "started_at", "ended_at")
        for started, ended in pipe.execute():
            starts.append(datetime.fromisoformat(started))
            ends.append(datetime.fromisoformat(ended))
    return (max(ends) - min(starts)).total_seconds()
