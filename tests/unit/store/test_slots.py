"""How many generations run at once, in whose turn, and what frees a slot? (B18, X15)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.outcome import Cooldown
from jobs.store import keys
from jobs.store.generations import Generations
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts, SlotCaps
from tests.support.factories import claim, claim_one, new_job
from tests.support.invariants import problems_of
from tests.support.job_states import now_ms, sweep
from tests.support.snapshot import SWEEP_STAMPS, snapshot
from tests.support.stored_generations import ENVELOPE, new_generation

CAPS = SlotCaps(team=2, all=5)
FIGURES = "{gq}:generation_stats"
Free = Callable[[Queue, str, str], object]


@pytest.fixture
def capped(redis: Redis) -> Queue:
    """A queue whose claims run 2 generations of a team, 5 in all."""
    return Queue(Scripts(redis, queue_name="genqueue", slots=CAPS), ticket_cap=16)


def submit(generations: Generations, team_id: str, count: int = 1, **changes: object) -> list[str]:
    new = [new_generation(team_id=team_id, **changes) for _ in range(count)]
    for one in new:
        generations.submit(one)
    return [one.id for one in new]


def waits_for(records: Records, job_id: str) -> str | None:
    waiting = records.waiting_on(job_id)
    return waiting.reason if waiting else None


@pytest.mark.req("B18")
@pytest.mark.parametrize("batch", [1, 3, 50])
def test_a_claim_never_goes_over_either_cap(
    redis: Redis, capped: Queue, generations: Generations, batch: int
) -> None:
    for team in "123456":
        submit(generations, team, 4)

    served: Counter[str | None] = Counter()
    while got := claim(capped, batch).attempts:
        served.update(attempt.job.team_id for attempt in got)

    assert sum(served.values()) == 5
    assert max(served.values()) <= 2
    assert redis.zcard(keys.SLOTS()) == 5
    assert problems_of(redis) == []


@pytest.mark.req("B18", "X9")
def test_teams_take_turns_also_where_a_freed_slot_admits_one_at_a_time(
    redis: Redis, capped: Queue, generations: Generations
) -> None:
    submit(generations, "flood", 12)
    for team in "abcd":
        submit(generations, team, 3)
    running = list(claim(capped, 50).attempts)
    served = [attempt.job.team_id for attempt in running]
    while running:
        ended = running.pop(0)
        capped.succeed_generation(ended.job.id, ended.token, ENVELOPE, "")
        got = claim(capped, 50).attempts
        served += [attempt.job.team_id for attempt in got]
        running += got

    assert Counter(served) == {"flood": 12} | dict.fromkeys("abcd", 3)
    first = served[: 4 * 3 + 3]
    assert {team: first.count(team) for team in "abcd"} == dict.fromkeys("abcd", 3)
    assert problems_of(redis) == []


@pytest.mark.req("B18", "X14")
def test_what_waits_for_a_slot_says_which_and_spends_nothing(
    redis: Redis, capped: Queue, generations: Generations, records: Records
) -> None:
    own = submit(generations, "1", 3)
    others = [submit(generations, team, 2) for team in "234"]
    claim(capped, 50)
    told = redis.xlen(keys.EVENTS("acme"))
    before = snapshot(redis, ignore=SWEEP_STAMPS)

    assert claim(capped, 50).attempts == ()

    assert snapshot(redis, ignore=SWEEP_STAMPS) == before
    assert redis.xlen(keys.EVENTS("acme")) == told
    assert waits_for(records, own[2]) == "team_slots"
    waiting = [waits_for(records, ids[1]) for ids in others]
    assert waiting == ["global_slots"] * 3


@pytest.mark.req("B18")
@pytest.mark.parametrize(
    "free",
    [
        lambda q, i, t: q.succeed_generation(i, t, ENVELOPE, ""),
        lambda q, i, t: q.fail(i, t, ErrorKind.PARSE, "no"),
        lambda q, i, t: q.snooze(i, t, "leaving", 60_000),
    ],
    ids=["succeed", "fail", "snooze"],
)
def test_the_holder_frees_its_slot_and_the_next_goes_on_at_once(
    redis: Redis, capped: Queue, generations: Generations, free: Free
) -> None:
    submit(generations, "1", 3)
    attempts = claim(capped, 50).attempts
    assert len(attempts) == 2

    free(capped, attempts[0].job.id, attempts[0].token)

    assert len(claim(capped, 50).attempts) == 1
    assert redis.zcard(keys.TEAM_SLOTS("1")) == 2


@pytest.mark.req("B18")
@pytest.mark.case("LIM-01")
@pytest.mark.parametrize("take_away", ["cancel", "reclaim"])
def test_a_call_that_was_taken_away_counts_until_it_is_over(
    redis: Redis, capped: Queue, generations: Generations, take_away: str
) -> None:
    ids = submit(generations, "1", 4)
    attempts = claim(capped, 2, window_ms=-1).attempts
    if take_away == "cancel":
        for job_id in ids[:2]:
            capped.cancel(job_id, "acme")
    else:
        sweep(redis, capped)
    assert claim(capped, 50).attempts == ()
    assert redis.zcard(keys.TEAM_SLOTS("1")) == 2

    capped.book_generation(attempts[0].job.id, "1", attempts[0].token, "")
    assert len(claim(capped, 50).attempts) == 1

    # The other one's worker is gone: its slot ends by itself.
    redis.zadd(keys.SLOTS(), {attempts[1].token: now_ms(redis) - 1})
    redis.zadd(keys.TEAM_SLOTS("1"), {attempts[1].token: now_ms(redis) - 1})
    capped.promote()
    assert len(claim(capped, 50).attempts) == 1


@pytest.mark.req("B18")
@pytest.mark.case("LIM-03")
def test_slots_end_by_themselves_after_120_s(
    redis: Redis, capped: Queue, generations: Generations
) -> None:
    submit(generations, "1")
    attempt = claim_one(capped)
    for key in (keys.SLOTS(), keys.TEAM_SLOTS("1")):
        left_ms = redis.zscore(key, attempt.token) - now_ms(redis)
        assert 118_000 < left_ms <= 120_000
        assert 118 <= redis.ttl(key) <= 120


@pytest.mark.req("X9", "A5")
def test_prompts_go_on_while_generations_wait_for_slots(
    capped: Queue, generations: Generations
) -> None:
    submit(generations, "1", 5)
    claim(capped, 50)
    job = new_job(org_id="acme")
    capped.submit(job)
    assert claim_one(capped).job.id == job.id


@pytest.mark.req("A31")
def test_the_quota_of_the_organisation_holds_for_its_teams_as_well(
    redis: Redis, queue: Queue, generations: Generations, records: Records
) -> None:
    redis.hset(keys.QUOTAS(), "acme", "1")
    submit(generations, "1")
    (second,) = submit(generations, "2")
    claim_one(queue)
    assert claim(queue, 5).attempts == ()
    assert waits_for(records, second) == "org_quota"


@pytest.mark.req("X15", "X14")
@pytest.mark.parametrize("verb", ["retry", "fail"])
def test_a_cool_down_holds_its_target_alone_and_spends_nothing(
    redis: Redis, queue: Queue, records: Records, verb: str
) -> None:
    first, second, other = (new_job(target=t) for t in ("p:busy", "p:busy", "p:idle"))
    for job in (first, second, other):
        queue.submit(job)
    attempt = claim_one(queue)
    cooldown = Cooldown("p:busy", 30_000)
    if verb == "retry":
        queue.retry(first.id, attempt.token, ErrorKind.RATE_LIMIT, "busy", 60_000, cooldown)
    else:
        queue.fail(first.id, attempt.token, ErrorKind.RATE_LIMIT, "busy", cooldown=cooldown)
    until = redis.zscore(keys.COOLDOWNS(), "p:busy")

    assert [a.job.id for a in claim(queue, 5).attempts] == [other.id]

    waiting = records.waiting_on(second.id)
    assert waiting is not None
    assert (waiting.reason, waiting.until_ms) == ("provider_cooldown", until)
    view = records.job(second.id)
    assert view is not None
    assert (view.job.attempt, len(view.history)) == (1, 1)
    assert 29 <= redis.ttl(keys.COOLDOWNS()) <= 30
    assert problems_of(redis) == []


@pytest.mark.req("X15")
def test_the_end_of_a_cool_down_is_announced_and_lets_its_lanes_through(
    redis: Redis, queue: Queue
) -> None:
    first, second = new_job(target="p:busy"), new_job(target="p:busy")
    queue.submit(first)
    queue.submit(second)
    attempt = claim_one(queue)
    cooldown = Cooldown("p:busy", 30_000)
    queue.fail(first.id, attempt.token, ErrorKind.RATE_LIMIT, "busy", cooldown=cooldown)
    due_in_ms = claim(queue).due_in_ms
    assert due_in_ms is not None
    assert 29_000 < due_in_ms <= 30_000

    redis.zadd(keys.COOLDOWNS(), {"p:busy": now_ms(redis) - 1})
    done = queue.promote()

    assert (done.reopened, done.ticket_wanted, done.due_in_ms) == (1, True, None)
    assert claim_one(queue).job.id == second.id
    assert redis.exists(keys.COOLDOWNS(), keys.GATES()) == 0


@pytest.mark.req("X15")
def test_a_shorter_pause_never_undercuts_a_longer_one(redis: Redis, queue: Queue) -> None:
    for for_ms in (30_000, 1_000):
        job = new_job(target=f"p:{for_ms}")
        queue.submit(job)
        attempt = claim_one(queue)
        cooldown = Cooldown("p:busy", for_ms)
        queue.fail(job.id, attempt.token, ErrorKind.RATE_LIMIT, "busy", cooldown=cooldown)
    assert redis.zscore(keys.COOLDOWNS(), "p:busy") - now_ms(redis) > 28_000


@pytest.mark.req("X15")
def test_a_generation_waits_for_the_model_of_either_pass(
    redis: Redis, queue: Queue, generations: Generations, records: Records
) -> None:
    redis.zadd(keys.COOLDOWNS(), {"p:extract": now_ms(redis) + 30_000})
    redis.expire(keys.COOLDOWNS(), 30)
    (both,) = submit(generations, "1", second_target="p:extract")
    (one,) = submit(generations, "1")
    assert [a.job.id for a in claim(queue, 5).attempts] == [one]
    assert waits_for(records, both) == "provider_cooldown"


def test_a_lane_that_leaves_a_gate_goes_behind_the_next_one_that_is_shut(
    redis: Redis, capped: Queue, generations: Generations, records: Records
) -> None:
    """A freed place is not lost on a lane that may not use it."""
    lane = keys.lane("acme", "generation", "p:a", "1")
    submit(generations, "1", 2)
    submit(generations, "2", 2)
    submit(generations, "3", 1)
    running = claim(capped, 50).attempts
    (third,) = submit(generations, "1", target="p:a")
    (waiting,) = submit(generations, "4")
    claim(capped, 50)
    assert waits_for(records, waiting) == "global_slots"
    # As where the slots of team 1 were taken while this lane stood behind the other gate.
    redis.zrem(keys.SHUT("team_slots:1"), lane)
    redis.zadd(keys.SHUT("global_slots"), {lane: 50 * keys.SCORE_SLOT})
    redis.hset(keys.SHUT_BY(), lane, "global_slots")

    freed = next(attempt for attempt in running if attempt.job.team_id == "3")
    capped.succeed_generation(freed.job.id, freed.token, ENVELOPE, "")

    assert [attempt.job.id for attempt in claim(capped, 50).attempts] == [waiting]
    assert waits_for(records, third) == "team_slots"
