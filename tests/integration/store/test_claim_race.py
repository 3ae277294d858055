"""Is a job ever claimed twice, or by nobody, where many processes claim at once? (A5)"""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest
from redis import Redis

from jobs.store import keys
from tests.support.claim_race import race

PROCESSES = 8
JOBS = 100_000


@pytest.mark.req("A5")
@pytest.mark.timeout(300)
def test_eight_processes_claim_a_hundred_thousand_jobs_each_of_them_once(
    redis_url: str, redis: Redis
) -> None:
    # The ticket list is full, so that submits spend no time on counting work.
    redis.lpush("rq:queue:genqueue", "t1")
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(PROCESSES) as pool:
        start = manager.Barrier(PROCESSES)
        share = JOBS // PROCESSES
        results = pool.starmap(race, [(redis_url, n, share, start) for n in range(PROCESSES)])

    counts = Counter(job_id for claimed in results for job_id in claimed)
    assert [job_id for job_id, times in counts.items() if times > 1] == []
    assert len(counts) == redis.zcard(keys.RUNNING()) == JOBS
    assert sum(map(int, redis.hvals(keys.RUNNING_BY_ORG()))) == JOBS
    assert redis.exists(keys.TURNS()) == 0
    assert all(claimed for claimed in results)
    redis.flushall()
