"""How fast do two worker processes get through work that costs nothing, and at what CPU?"""

from __future__ import annotations

from tests.bench.figures import Figure, at_least, noted
from tests.bench.fleet import drain, plain_jobs, runtime_for, start_workers, submit_all
from tests.bench.rq_pool import drain_by_pool, enqueue_all
from tests.bench.stage import Stage

WORKERS = 2
SLOTS = 32
TIMES_RQ = 15.0


def run(stage: Stage) -> list[Figure]:
    """Ours and plain RQ's rate on queues that were filled before the workers started."""
    count, rq_count = stage.amount(5000, 1000), stage.amount(1000, 200)
    stage.say(f"{count:,} jobs by two workers of genqueue")
    server = stage.redis()
    runtime = runtime_for(server)
    ids = submit_all(runtime, plain_jobs(count))
    workers = start_workers(stage, server, WORKERS, SLOTS)
    ours = drain(runtime.redis, ids, workers, 120)
    for worker in workers:
        worker.stop()
    stage.say(f"{rq_count:,} jobs by rq worker-pool -n 2")
    rq_server = stage.redis()
    rq_ids = enqueue_all(rq_server, "tests.bench.rq_work.noop", {"text": "Say hello."}, rq_count)
    theirs = drain_by_pool(stage, rq_server, rq_ids, workers=WORKERS)
    rate, rq_rate = count / ours.elapsed_s, rq_count / theirs.elapsed_s
    note = f"rq: {rq_count:,} jobs, by rate"
    return [
        noted("no-op jobs of genqueue, two workers", rate, "jobs/s", f"{count:,} jobs"),
        noted("no-op jobs of rq worker-pool -n 2", rq_rate, "jobs/s", f"{rq_count:,} jobs"),
        at_least("no-op jobs, times as fast as rq", rate / rq_rate, "times", TIMES_RQ, note),
        noted("CPU per attempt, genqueue's workers", 1e6 * ours.cpu_s / count, "µs"),
        noted("CPU per job, rq's workers and horses", 1e6 * theirs.cpu_s / rq_count, "µs"),
    ]
