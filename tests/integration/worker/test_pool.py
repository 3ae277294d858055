"""Does a pool that has to stop claim nothing more, and give back all that it holds? (K8S-01)"""

from __future__ import annotations

import threading

import pytest
from redis import Redis

from jobs.domain import abort
from jobs.domain.job import Attempt, Kind
from jobs.domain.outcome import Succeeded
from jobs.domain.states import State
from jobs.store.answers import Claimed, ClaimRequest
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts
from jobs.worker.attempt import AttemptRunner, Handler
from jobs.worker.heartbeat import Heartbeat
from jobs.worker.pool import WorkPool
from tests.conftest import QUEUE_NAME, TICKET_CAP
from tests.support.factories import new_job, response_for
from tests.support.invariants import problems_of
from tests.support.processes import states
from tests.support.waiting import wait_until


class SlowAnswers:
    """A handler that answers when it is told to, or ends with its scope."""

    budget_s = 30.0

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, attempt: Attempt) -> Succeeded:
        scope = abort.current()
        assert scope is not None
        while not self.go.is_set():
            scope.wait(0.01)
        return Succeeded(response_for(attempt))


def pool_over(queue: Queue, handler: Handler) -> WorkPool:
    heartbeat = Heartbeat(queue, interval_s=30, window_s=90)
    runner = AttemptRunner(
        queue,
        {Kind.PROMPT: handler},
        heartbeat,
        patience_s=5,
        jitter=lambda _spread_s: 0.0,
        issue_ticket=lambda: None,
    )
    return WorkPool(
        queue,
        runner,
        concurrency=1,
        window_s=90,
        claiming_s=30,
        sweep_interval_s=15,
        issue_ticket=lambda: None,
    )


def submitted(queue: Queue, count: int) -> list[str]:
    jobs = [new_job() for _ in range(count)]
    for job in jobs:
        queue.submit(job)
    return [job.id for job in jobs]


@pytest.mark.case("K8S-01")
@pytest.mark.parametrize("end", ["it finishes", "it is handed back"])
def test_a_slot_that_comes_free_after_the_stop_is_not_used_again(
    redis: Redis, queue: Queue, records: Records, end: str
) -> None:
    first, second = submitted(queue, 2)
    answers = SlowAnswers()
    pool = pool_over(queue, answers)
    drain = threading.Thread(target=pool.drain, daemon=True)
    drain.start()
    wait_until(lambda: states(redis, [first]) == [State.RUNNING], 5, "the first job runs")

    pool.stop_claiming()
    if end == "it finishes":
        answers.go.set()
    else:
        # None where the lease is written and its attempt has not begun: it goes back as well.
        assert pool.hand_back() <= 1
    drain.join(5)

    assert not drain.is_alive()
    assert pool.is_idle
    left = State.SUCCEEDED if end == "it finishes" else State.QUEUED
    assert states(redis, [first, second]) == [left, State.QUEUED]
    view = records.job(first)
    assert view is not None
    assert [move.verb for move in view.history].count("claim") == 1
    assert problems_of(redis) == []


class InterruptedQueue(Queue):
    """A store whose claim is answered just after the pool was told to hand everything back."""

    pool: WorkPool

    def claim(self, request: ClaimRequest) -> Claimed:
        claimed = super().claim(request)
        self.pool.hand_back()
        return claimed


@pytest.mark.case("K8S-01", "LEASE-21")
def test_what_was_leased_while_all_was_handed_back_goes_back_uncharged_too(
    redis: Redis, records: Records
) -> None:
    queue = InterruptedQueue(Scripts(redis, queue_name=QUEUE_NAME), ticket_cap=TICKET_CAP)
    (job_id,) = submitted(queue, 1)
    queue.pool = pool_over(queue, SlowAnswers())

    drain = threading.Thread(target=queue.pool.drain, daemon=True)
    drain.start()
    drain.join(5)

    assert not drain.is_alive()
    view = records.job(job_id)
    assert view is not None
    assert (view.job.state, view.job.attempt) == (State.QUEUED, 1)
    assert [move.verb for move in view.history] == ["submit", "claim", "snooze"]
    assert problems_of(redis) == []
