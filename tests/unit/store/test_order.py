"""In which order are jobs handed out? (A4, X9)"""

from __future__ import annotations

import random

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import Verb
from jobs.store import keys
from jobs.store.queue import Queue
from tests.support.factories import claim, claim_one, new_job
from tests.support.job_states import apply, sweep


def submit(queue: Queue, **changes: object) -> str:
    job = new_job(**changes)
    queue.submit(job)
    return job.id


def drain(queue: Queue, count: int = 1000, **changes: object) -> list[str]:
    return [attempt.job.id for attempt in claim(queue, count, **changes).attempts]


@pytest.mark.req("A4")
def test_lower_priorities_come_first_over_all_their_range(redis: Redis, queue: Queue) -> None:
    order = list(range(101))
    random.Random(4).shuffle(order)
    for priority in order:
        submit(queue, priority=priority)

    claimed = claim(queue, 200).attempts
    assert [attempt.job.priority for attempt in claimed] == list(range(101))


@pytest.mark.req("A4")
@pytest.mark.case("LIM-07")
def test_a_hundred_jobs_of_one_millisecond_leave_in_the_order_they_came(
    redis: Redis, queue: Queue
) -> None:
    # Ids that sort the other way: ties by text would show.
    ids = [submit(queue, id=f"job-{999 - n}") for n in range(100)]

    assert drain(queue) == ids


@pytest.mark.req("A4")
@pytest.mark.case("LIM-07")
def test_order_holds_where_the_numbers_are_as_large_as_they_get(redis: Redis, queue: Queue) -> None:
    redis.set(keys.SEQ(), 2**45)
    ids = [submit(queue, priority=100) for _ in range(50)]
    urgent = [submit(queue, priority=99) for _ in range(50)]

    assert drain(queue) == urgent + ids


@pytest.mark.req("A4")
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.RECLAIM])
def test_a_job_that_comes_back_keeps_its_place(redis: Redis, queue: Queue, verb: Verb) -> None:
    first = submit(queue)
    others = [submit(queue) for _ in range(3)]
    attempt = claim_one(queue, window_ms=0)
    assert attempt.job.id == first

    if verb is Verb.RECLAIM:
        sweep(redis, queue)
    else:
        apply(verb, redis, queue, first, attempt.token)

    assert drain(queue) == [first, *others]


@pytest.mark.req("A4")
def test_a_job_that_waited_out_its_backoff_keeps_its_place(redis: Redis, queue: Queue) -> None:
    first = submit(queue)
    others = [submit(queue) for _ in range(3)]
    attempt = claim_one(queue)
    queue.retry(first, attempt.token, ErrorKind.TIMEOUT, "slow", 60_000)
    assert drain(queue, 1) == others[:1]

    redis.zadd(keys.SCHEDULED(), {first: 1})

    assert drain(queue) == [first, *others[1:]]


@pytest.mark.req("A5")
@pytest.mark.parametrize(("ceiling", "expected"), [(-1, 0), (0, 1), (10, 2), (49, 2), (100, 4)])
def test_a_claim_takes_nothing_above_its_ceiling(
    redis: Redis, queue: Queue, ceiling: int, expected: int
) -> None:
    for priority in (100, 0, 50, 10):
        submit(queue, priority=priority, org_id=f"org-{priority}")

    claimed = claim(queue, 10, ceiling=ceiling)

    assert len(claimed.attempts) == expected
    assert all(attempt.job.priority <= ceiling for attempt in claimed.attempts)


@pytest.mark.req("A5")
@pytest.mark.parametrize(("count", "expected"), [(-1, 0), (0, 0), (1, 1), (7, 7), (50, 10)])
def test_a_claim_takes_as_many_as_asked_for(
    redis: Redis, queue: Queue, count: int, expected: int
) -> None:
    ids = [submit(queue) for _ in range(10)]

    assert drain(queue, count) == ids[:expected]


@pytest.mark.req("X9", "A4")
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_flood_of_one_team_leaves_every_second_turn_to_another(
    redis: Redis, queue: Queue, batch: int
) -> None:
    for _ in range(200):
        submit(queue, org_id="flood", prompt_text="")
    claim(queue, 20)
    for _ in range(5):
        submit(queue, org_id="quiet")

    served: list[str] = []
    while len(served) < 14:
        served += [attempt.job.org_id for attempt in claim(queue, batch).attempts]

    assert served[:10] == ["flood", "quiet"] * 5
    assert set(served[10:]) == {"flood"}


@pytest.mark.req("X9")
def test_a_team_gets_no_more_turns_by_spreading_over_models(redis: Redis, queue: Queue) -> None:
    for n in range(300):
        submit(queue, org_id="wide", target=f"mock:m{n % 10}")
    for _ in range(20):
        submit(queue, org_id="narrow")

    served = [attempt.job.org_id for attempt in claim(queue, 40).attempts]

    assert served.count("narrow") == 20


@pytest.mark.req("X9")
def test_the_lanes_of_one_team_take_turns_too(redis: Redis, queue: Queue) -> None:
    for target in ("mock:a", "mock:b", "mock:c"):
        for _ in range(4):
            submit(queue, target=target)

    served = [attempt.job.target for attempt in claim(queue, 12).attempts]

    assert all(set(served[n : n + 3]) == {"mock:a", "mock:b", "mock:c"} for n in (0, 3, 6, 9))


@pytest.mark.req("A4", "X9")
def test_urgent_work_of_one_team_comes_before_everyones_turn(redis: Redis, queue: Queue) -> None:
    for org in ("a", "b"):
        for _ in range(3):
            submit(queue, org_id=org)
    urgent = [submit(queue, org_id="a", priority=5) for _ in range(3)]

    assert drain(queue, 3) == urgent


@pytest.mark.parametrize("target", ["p:" + "x" * 62, "p:a|b", "p:%s", "p:é", "p:a b\nc", "p:"])
def test_a_lane_may_have_any_name(redis: Redis, queue: Queue, target: str) -> None:
    ids = [submit(queue, target=target) for _ in range(2)]

    assert drain(queue) == ids
    assert redis.exists(keys.TURNS()) == 0


def test_a_lane_that_is_empty_leaves_no_key(redis: Redis, queue: Queue) -> None:
    submit(queue)
    cancelled = submit(queue, org_id="other")
    claim_one(queue)
    queue.cancel(cancelled, "other")

    left = {name for name in redis.scan_iter() if "ready" in name or "lanes" in name}
    assert left == set()
    assert redis.exists(keys.TURNS()) == 0


def test_a_team_may_wait_on_thousands_of_models(redis: Redis, queue: Queue) -> None:
    ids = [f"job-{n}" for n in range(2100)]
    with redis.pipeline(transaction=False) as pipe:
        for n, job_id in enumerate(ids):
            lane = keys.lane("acme", "prompt", f"mock:m{n}")
            pipe.zadd(keys.READY(lane), {job_id: 50 * keys.SCORE_SLOT + n})
            pipe.zadd(keys.TURNS(), {lane: 50 * keys.SCORE_SLOT + n})
            pipe.sadd(keys.TEAM_LANES("acme"), lane)
        pipe.execute()
    urgent = submit(queue, priority=1)
    last = submit(queue, priority=2, target="mock:m0")

    assert drain(queue, 2) == [urgent, last]
    turns = redis.zrange(keys.TURNS(), 0, -1)
    assert turns == [keys.lane("acme", "prompt", f"mock:m{n}") for n in [*range(1, 2100), 0]]
    redis.flushall()
