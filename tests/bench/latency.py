"""How soon does a job start when a worker waits for it?"""

from __future__ import annotations

import time

from tests.bench.figures import Figure, noted, percentile
from tests.bench.fleet import (
    is_drained,
    plain_jobs,
    records_of,
    runtime_for,
    start_workers,
    submit_all,
    wait_registered,
)
from tests.bench.stage import Stage, wait_for

PER_S = 20
SLOTS = 32


def run(stage: Stage) -> list[Figure]:
    """From the submit to the claim, by the clock of Redis, at 20 jobs a second."""
    for_s = stage.amount(10, 3)
    server = stage.redis()
    runtime = runtime_for(server)
    start_workers(stage, server, 1, SLOTS)
    wait_registered(runtime.redis, 1)
    submit_all(runtime, plain_jobs(5))
    wait_for(lambda: is_drained(runtime.redis), 30, "the first jobs to end")
    stage.say(f"{PER_S} jobs/s for {for_s} s to an idle worker")
    ids = []
    begin_s = time.monotonic()
    for number, job in enumerate(plain_jobs(PER_S * for_s)):
        time.sleep(max(0.0, begin_s + number / PER_S - time.monotonic()))
        ids += submit_all(runtime, [job])
    wait_for(lambda: is_drained(runtime.redis), 30, "all jobs to end")
    rows = records_of(runtime.redis, ids, "created_at", "started_at", "finished_at")
    ends_ms = [float(int(row["finished_at"]) - int(row["created_at"])) for row in rows]
    starts_ms = [float(int(row["started_at"]) - int(row["created_at"])) for row in rows]
    note = f"{len(ids)} jobs, {PER_S}/s, one idle worker"
    return [
        noted("submit to start, p50", percentile(starts_ms, 50), "ms", note),
        noted("submit to start, p99", percentile(starts_ms, 99), "ms"),
        noted("submit to end of a no-op job, p50", percentile(ends_ms, 50), "ms"),
    ]
