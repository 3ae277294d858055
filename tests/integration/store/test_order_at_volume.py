"""Does order hold among thousands of jobs, on the real server? (A4, X9)"""

from __future__ import annotations

import random

import pytest

from jobs.store.queue import Queue
from tests.support.factories import claim, new_job


def submit(queue: Queue, **changes: object) -> str:
    job = new_job(**changes)
    queue.submit(job)
    return job.id


def drain(queue: Queue, count: int) -> list[str]:
    return [attempt.job.id for attempt in claim(queue, count).attempts]


@pytest.mark.req("A4")
def test_order_holds_among_thousands_of_jobs_of_many_priorities(
    queue: Queue,
) -> None:
    rng = random.Random(1)
    jobs = [(rng.randrange(101), submit_at) for submit_at in range(2000)]
    ids = [submit(queue, priority=priority) for priority, _ in jobs]
    expected = [ids[n] for _, n in sorted(jobs)]

    claimed: list[str] = []
    while len(claimed) < len(ids):
        claimed += drain(queue, rng.randrange(1, 200))
    assert claimed == expected


def test_one_claim_takes_a_thousand_at_most(queue: Queue) -> None:
    for _ in range(1010):
        submit(queue, prompt_text="")

    assert len(drain(queue, 10**9)) == 1000
    assert len(drain(queue, 10**9)) == 10


@pytest.mark.req("X9")
def test_a_flood_of_a_thousand_leaves_every_second_turn_to_another(queue: Queue) -> None:
    for _ in range(1000):
        submit(queue, org_id="flood", prompt_text="")
    claim(queue, 20)
    for _ in range(5):
        submit(queue, org_id="quiet")

    served = [claim(queue).attempts[0].job.org_id for _ in range(14)]

    assert served == ["flood", "quiet"] * 5 + ["flood"] * 4
