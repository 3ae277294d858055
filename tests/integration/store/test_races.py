"""Two clients, one job, one instant: does exactly one of them win? (A14, A17)"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer, State, Verb
from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts
from tests.support.factories import claim, claim_one, new_job
from tests.support.invariants import problems_of
from tests.support.job_states import apply, now_ms

FINALISERS = 500
CANCELS = 300


class Duel:
    """Two threads with a connection each that act at the same instant, again and again."""

    def __init__(self, url: str) -> None:
        self._clients = [connect(url), connect(url)]
        self.queues = [
            Queue(Scripts(c, queue_name="genqueue"), ticket_cap=16) for c in self._clients
        ]
        self._start = threading.Barrier(2)

    def fight(self, first: Callable[[Queue], Any], second: Callable[[Queue], Any]) -> list[Any]:
        """What both answered."""
        answers: list[Any] = [None, None]

        def run(side: int, act: Callable[[Queue], Any]) -> None:
            self._start.wait(10)
            answers[side] = act(self.queues[side])

        threads = [
            threading.Thread(target=run, args=(side, act))
            for side, act in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def duel(redis_url: str) -> Iterator[Duel]:
    duel = Duel(redis_url)
    yield duel
    duel.close()


def history_of(redis: Redis, job_id: str) -> list[str]:
    """The verbs that moved the job after its submit."""
    return [row.split("|")[2] for row in redis.lrange(keys.HISTORY(job_id), 0, -1)]


def act(redis: Redis, verb: Verb, job_id: str, token: str) -> Callable[[Queue], Any]:
    return lambda queue: apply(verb, redis, queue, job_id, token)


@pytest.mark.req("A14")
def test_of_two_that_end_an_attempt_one_wins_and_the_other_is_told(
    redis: Redis, queue: Queue, duel: Duel
) -> None:
    winners: Counter[str] = Counter()
    for n in range(FINALISERS):
        job = new_job()
        queue.submit(job)
        token = claim_one(queue).token
        other = (Verb.FAIL, Verb.RETRY, Verb.SNOOZE)[n % 3]

        answers = duel.fight(
            act(redis, Verb.SUCCEED, job.id, token), act(redis, other, job.id, token)
        )

        assert sorted(answers) == sorted([Answer.OK, Answer.WRONG_STATE])
        won = Verb.SUCCEED if answers[0] is Answer.OK else other
        winners[won] += 1
        assert history_of(redis, job.id)[1:] == [won]
        queue.cancel(job.id, "acme")
    assert len(winners) >= 2
    assert problems_of(redis) == []


@pytest.mark.req("A14", "A17")
@pytest.mark.case("CAN-01")
@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.SNOOZE])
def test_cancel_against_the_end_of_an_attempt_has_one_consistent_end(
    redis: Redis, queue: Queue, records: Records, duel: Duel, verb: Verb
) -> None:
    for _ in range(CANCELS):
        job = new_job()
        queue.submit(job)
        token = claim_one(queue).token

        cancelled, settled = duel.fight(
            act(redis, Verb.CANCEL, job.id, ""), act(redis, verb, job.id, token)
        )

        moves = history_of(redis, job.id)[1:]
        view = records.job(job.id)
        assert view is not None
        if settled is Answer.WRONG_STATE:
            assert (cancelled, moves) == (Answer.OK, [Verb.CANCEL])
        elif verb in (Verb.SUCCEED, Verb.FAIL):
            assert (cancelled, settled, moves) == (Answer.WRONG_STATE, Answer.OK, [verb])
        else:  # back in the queue, and cancelled there: no retry after a cancel
            assert (cancelled, settled, moves) == (Answer.OK, Answer.OK, [verb, Verb.CANCEL])
        cancel_won = cancelled is Answer.OK
        assert (view.job.state is State.CANCELLED) == cancel_won
    assert claim(queue).attempts == ()
    assert problems_of(redis) == []


@pytest.mark.req("A17", "A5")
@pytest.mark.case("CAN-01")
def test_cancel_against_claim_never_leaves_a_cancelled_job_running(
    redis: Redis, queue: Queue, records: Records, duel: Duel
) -> None:
    claimed_first = 0
    for _ in range(CANCELS):
        job = new_job()
        queue.submit(job)

        cancelled, got = duel.fight(act(redis, Verb.CANCEL, job.id, ""), claim)

        moves = history_of(redis, job.id)
        view = records.job(job.id)
        assert view is not None
        assert cancelled is Answer.OK
        assert view.job.state is State.CANCELLED
        assert moves == ([Verb.CLAIM, Verb.CANCEL] if got.attempts else [Verb.CANCEL])
        for attempt in got.attempts:
            claimed_first += 1
            assert queue.check({job.id: attempt.token}) == {job.id: "cancelled"}
    assert redis.zcard(keys.RUNNING()) == 0
    assert problems_of(redis) == []
    assert claimed_first < CANCELS


@pytest.mark.req("A8")
@pytest.mark.case("RQ-13", "LEASE-07")
def test_two_sweeps_at_one_instant_reclaim_each_attempt_once(
    redis: Redis, queue: Queue, duel: Duel
) -> None:
    for _ in range(100):
        job = new_job()
        queue.submit(job)
        claim(queue, window_ms=0)
        redis.set(keys.SWEPT_AT(), now_ms(redis) - 15_000)

        swept = duel.fight(
            *[lambda q: q.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000)] * 2
        )

        assert sum(one.requeued for one in swept) == 1
        assert redis.hget(keys.JOB(job.id), "attempt") == "2"
        queue.cancel(job.id, "acme")
    assert problems_of(redis) == []


@pytest.mark.req("A8", "A14")
def test_a_sweep_against_the_end_of_the_attempt_gives_it_to_one_of_them(
    redis: Redis, queue: Queue, duel: Duel
) -> None:
    for _ in range(100):
        job = new_job()
        queue.submit(job)
        token = claim_one(queue, window_ms=0).token
        redis.set(keys.SWEPT_AT(), now_ms(redis) - 15_000)

        swept, answer = duel.fight(
            lambda q: q.reclaim(window_ms=90_000, interval_ms=15_000, ceiling_ms=900_000),
            lambda q: q.fail(job.id, token, ErrorKind.PARSE, "").answer,  # noqa: B023 - joined
        )

        assert (swept.requeued, answer) in {(1, Answer.WRONG_STATE), (0, Answer.OK)}
        queue.cancel(job.id, "acme")
    assert problems_of(redis) == []
