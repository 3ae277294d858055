"""What does one of many racing processes do? Submit its share, wait for the others, claim.

Run in processes of their own (spawn): imports nothing that holds a connection.
"""

from __future__ import annotations

import random
from multiprocessing.synchronize import Barrier
from typing import Any

from redis import Redis

from jobs.store.answers import ClaimRequest
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.support.factories import new_job

BATCH_MAX = 50
SENT_AT_ONCE = 200
READY_WITHIN_S = 90


class Pipelined:
    """As much of a client as a submit needs: sends many scripts at once, looks at no reply."""

    def __init__(self, redis: Redis) -> None:
        self._pipe = redis.pipeline(transaction=False)

    def evalsha(self, *arguments: Any) -> list[Any]:
        self._pipe.evalsha(*arguments)
        if len(self._pipe) >= SENT_AT_ONCE:
            self.send()
        return ["OK", 0]

    def send(self) -> None:
        self._pipe.execute()


def race(url: str, racer: int, share: int, start: Barrier) -> list[str]:
    """Submit `share` jobs, then claim in batches of random size until nothing is left. Answers
    the ids in the order in which this process got them."""
    rng = random.Random(racer)
    redis = connect(url)
    queue = Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=1)
    many = Pipelined(redis)
    bulk = Queue(Scripts(many, queue_name="genqueue"), ticket_cap=1)  # type: ignore[arg-type]
    for n in range(share):
        job = new_job(
            id=f"{racer}-{n}",
            prompt_id=f"p-{racer}-{n}",
            org_id=f"org-{n % 5}",
            prompt_text="",
            priority=rng.randrange(101),
        )
        (bulk if n else queue).submit(job)
    many.send()
    start.wait(READY_WITHIN_S)
    claimed: list[str] = []
    for n in range(share * 100):
        request = ClaimRequest(f"{racer}.{n}", rng.randrange(1, BATCH_MAX + 1), 600_000)
        attempts = queue.claim(request).attempts
        if not attempts:
            break
        claimed += [attempt.job.id for attempt in attempts]
    redis.close()
    return claimed
