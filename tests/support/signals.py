"""How does a test have generations and steps end, and what is posted about it?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.delivery.pool import DeliveryPool
from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.deliveries import DeliveryView
from tests.integration.service.step_caller import worker_and_matcher
from tests.support.factories import claim_one
from tests.support.webhook_receiver import Received

TICKETS = "rq:queue:genqueue-deliveries"


def fail(runtime: Runtime) -> None:
    attempt = claim_one(runtime.queue)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "in vain")


def lose(runtime: Runtime, generation_id: str) -> None:
    """Its worker dies."""
    claim_one(runtime.queue)
    runtime.queue.reclaim(window_ms=90_000, interval_ms=1, ceiling_ms=1_000)
    runtime.redis.zadd(keys.RUNNING(), {generation_id: 1})
    runtime.queue.reclaim(window_ms=90_000, interval_ms=1, ceiling_ms=1_000)


def found(runtime: Runtime, delivery_id: str) -> DeliveryView:
    view = runtime.deliveries.find(delivery_id)
    assert view is not None
    return view


def assert_unsigned(got: Received) -> None:
    names = {name for name in got.headers if "signature" in name or name.startswith("x-muxi")}
    assert names == set()
    assert got.headers["webhook-timestamp"].isdigit()


@contextmanager
def stack_at_work(runtime: Runtime, pool: DeliveryPool) -> Iterator[None]:
    """A crew, a matcher, and `pool`, which looks once a worker signals it."""
    over = threading.Event()

    def nudge_at_tickets() -> None:
        while not over.wait(0.02):
            if runtime.redis.llen(TICKETS):
                runtime.redis.delete(TICKETS)
                pool.nudge()

    signals = threading.Thread(target=nudge_at_tickets, daemon=True)
    signals.start()
    try:
        with worker_and_matcher(runtime):
            yield
    finally:
        over.set()
        signals.join(5)
