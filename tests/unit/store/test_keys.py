"""Is every key spelled once, of the type it says, and gone when it should be?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis

from jobs.domain.delivery import DeliveryState, Verdict
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Delivery,
    Failure,
    NextAttempt,
)
from jobs.domain.outcome import Cooldown
from jobs.domain.states import State
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan, Task
from jobs.store import keys
from jobs.store.credentials import Credentials
from jobs.store.deliveries import Deliveries
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from jobs.store.steps import LogLine, StepNote, StepResult, Steps
from jobs.store.teams import Teams
from jobs.store.tokens import Tokens
from jobs.store.turns import Turns
from jobs.store.upkeep import Upkeep
from tests.support.chains import new_turn
from tests.support.factories import claim, claim_one, new_id, new_job, response_for
from tests.support.invariants import family_of
from tests.support.job_states import reach, sweep
from tests.support.stored_generations import (
    ENVELOPE,
    billed,
    call_of,
    generations_of,
    new_generation,
    open_to,
)
from tests.support.stored_steps import new_step

LUA = Path(__file__).resolve().parents[3] / "jobs" / "store" / "lua"
LATER = {"scheduler", "scheduler_due", "ticks", "mode", "scratch", "wakes_at"}
"""Families that no verb of a job fills."""


def run_every_verb(redis: Redis, queue: Queue) -> None:
    """Leave at least one key of every family behind."""
    run_generations(redis, queue)
    run_steps(redis, queue)
    run_turns(redis, queue)
    for state in reversed(State):
        reach(queue, state, metadata={"a": 1}, execution_options={"b": 2}, idempotency_key=new_id())
    redis.hset(keys.QUOTAS(), "capped", 0)
    queue.submit(new_job(org_id="capped"))
    for _ in range(6):
        queue.submit(new_job())
    first, second, third, fourth, fifth = claim(queue, 5, window_ms=0).attempts
    queue.succeed(first.job.id, first.token, response_for(first))
    queue.retry(second.job.id, second.token, ErrorKind.TIMEOUT, "slow", 60_000)
    queue.snooze(third.job.id, third.token, "busy", 60_000)
    queue.fail(fourth.job.id, fourth.token, ErrorKind.PARSE, "unreadable")
    queue.renew({fifth.job.id: fifth.token}, window_ms=0)
    sweep(redis, queue)
    reach(queue, State.QUEUED, priority=100)
    claim(queue, 1)
    queue.promote()
    reach(queue, State.QUEUED, depends_on=fifth.job.id)
    gone = reach(queue, State.FAILED, priority=0)
    queue.book(fifth.job.id, 1, response_for(fifth))
    upkeep = Upkeep(Scripts(redis, queue_name="genqueue"), ticket_cap=16)
    upkeep.archive([gone.job_id])
    upkeep.repair(window_ms=0, limit=1)
    ended = reach(queue, State.RUNNING, priority=0)
    for _ in range(30):
        reach(queue, State.QUEUED, depends_on=ended.job_id)
    queue.cancel(ended.job_id, "acme")
    Credentials(redis).create("acme", "ada")


def run_generations(redis: Redis, queue: Queue) -> None:
    """One that ended and woke somebody, one that runs, one that waits and has a waiter."""
    open_to(redis, "gens")
    Teams(redis).create("1", "gens")
    generations = generations_of(redis)
    changes = {"org_id": "gens", "target": "p:busy", "second_target": "p:" + "m" * 62}
    for _ in range(3):
        generations.submit(new_generation(**changes, wake_token="token-of-a-step"))
    first, second = claim(queue, 2).attempts
    bill = billed(first.job, call_of(), is_captured=True)
    queue.succeed_generation(first.job.id, first.token, ENVELOPE, bill)
    cooldown = Cooldown("p:busy", 60_000)
    queue.fail(second.job.id, second.token, ErrorKind.RATE_LIMIT, "busy", cooldown=cooldown)
    generations.submit(new_generation(org_id="gens", target="p:other"))
    assert len(claim(queue, 5).attempts) == 1


def run_steps(redis: Redis, queue: Queue) -> None:
    """One that ended with a log and a result."""
    steps = Steps(redis, Scripts(redis, queue_name="genqueue"), queue, ticket_cap=16)
    new = new_step()
    steps.submit(new)
    attempt = claim_one(queue)
    note = StepNote(token=f"{new.id}.secret", log=[LogLine(1, "a")], result=StepResult({}))
    steps.note(new.id, attempt.token, note)
    queue.complete(new.id, attempt.token)


def run_turns(redis: Redis, queue: Queue) -> None:
    """One that was given up and is to be posted, by a try that failed; one that runs and speaks."""
    scripts = Scripts(redis, queue_name="genqueue")
    turns, tokens = Turns(redis, scripts, queue), Tokens(redis, scripts)
    plan = Plan((Task("writer", "Do it."),))
    entry = AttemptEntry(1, plan, Failure(ErrorKind.PARSE, "unreadable"))
    for delivery in (Delivery.WEBHOOK, Delivery.POLLING):
        turns.submit(new_turn(delivery=delivery, target_url="https://example.com/hook"))
        first = claim_one(queue)
        left = TurnLeft(entry=entry, next=NextAttempt(0), policy=ChainPolicy(1, 1.0, 60.0))
        queue.fail(first.job.id, first.token, ErrorKind.PARSE, "unreadable", turn=left)
        attempt = claim_one(queue)
        turns.note(attempt, plan, 2)
        tokens.say(attempt, 1, 1, [("text", "Hi")])
        if delivery is Delivery.WEBHOOK:
            end = TurnLeft(entry=entry, end=ChainEnd(ChainState.STUCK, "stuck"))
            queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "unreadable", turn=end)
    run_deliveries(Deliveries(redis, scripts))


def run_deliveries(deliveries: Deliveries) -> None:
    """A try that failed, one that is under way."""
    (taken,) = deliveries.take("t", 5).deliveries
    verdict = Verdict(DeliveryState.PENDING, after_ms=0, pause_ms=60_000)
    deliveries.settle(taken, verdict, "500", 3, b"{}")
    deliveries.replay(taken.id, taken.owner, taken.user)
    assert len(deliveries.take("u", 5).deliveries) == 1


def test_every_family_has_its_type_and_nothing_else_is_there(redis: Redis, queue: Queue) -> None:
    run_every_verb(redis, queue)

    seen = set()
    for name in redis.scan_iter():
        family = family_of(name)
        assert family is not None, name
        assert redis.type(name) == family.type, name
        seen.add(family.name)
    assert seen == {key.name for key in keys.ALL} - LATER


def test_ends_are_what_the_table_says(redis: Redis, queue: Queue) -> None:
    run_every_verb(redis, queue)

    ending = {family_of(name).name for name in redis.scan_iter() if redis.pttl(name) > 0}  # type: ignore[union-attr]
    assert ending == {
        *("claim", "events", "idempotency", "tombstone", "booked"),
        *("generation", "generation_of", "wakes", "text", "options"),
        *("step", "step_inputs", "step_log", "step_result"),
        *("slots", "team_slots", "cooldowns", "submits"),
        *("tokens", "captains_log", "delivery", "delivery_body", "delivery_log"),
        *("deliveries", "all_deliveries", "health", "posting"),
    }
    for name in redis.scan_iter(match=keys.EVENTS("*")):
        assert 0 < redis.pttl(name) <= keys.EVENTS_TTL_MS
    for name in redis.scan_iter(match=keys.CLAIM("*")):
        assert 0 < redis.pttl(name) <= keys.CLAIM_TTL_MS


def test_every_key_is_in_one_slot_of_a_cluster(redis: Redis, queue: Queue) -> None:
    run_every_verb(redis, queue)

    assert {name[: len("{gq}:")] for name in redis.scan_iter()} == {"{gq}:"}


@pytest.mark.req("A3")
def test_the_fields_of_a_record_are_short_enough_for_a_listpack(redis: Redis, queue: Queue) -> None:
    run_every_verb(redis, queue)
    queue.submit(
        new_job(
            org_id="o" * 32,
            created_by="u" * 32,
            target="p:" + "m" * 62,
            idempotency_key="k" * 255,
            metadata={"long": "x" * 500},
            prompt_text="x" * 500,
        )
    )
    for family in (keys.JOB, keys.PROMPT):
        for name in redis.scan_iter(match=family("*")):
            if family_of(name) is family:
                assert max(len(v.encode()) for v in redis.hgetall(name).values()) <= 64


def test_no_two_families_share_a_name_or_a_spelling() -> None:
    assert len({key.name for key in keys.ALL}) == len(keys.ALL)
    assert len({key.spelling for key in keys.ALL}) == len(keys.ALL)


def test_every_key_that_a_script_uses_is_in_the_table_with_its_arity() -> None:
    text = "".join(path.read_text() for path in LUA.glob("**/*.lua"))
    calls = set(re.findall(r"\bK\.([a-z_]+)\((\)?)", text))
    table = {key.name: key for key in keys.ALL}
    assert {name for name, _ in calls} <= table.keys()
    for name, empty in calls:
        assert ("%s" in table[name].spelling) != bool(empty), name


@pytest.mark.parametrize("part", ["a", "%s", "100%", "a:b", "'", "é"])
def test_python_and_lua_spell_a_key_alike(redis: Redis, part: str) -> None:
    for key in keys.ALL:
        has_part = "%s" in key.spelling
        script = keys.lua_table({key.name}) + f"return K.{key.name}(ARGV[1])"
        spelled = redis.eval(script, 0, part)
        assert spelled == (key(part) if has_part else key())


def test_the_lua_table_holds_only_what_is_asked_for() -> None:
    assert re.findall(r"function K\.(\w+)", keys.lua_table({"job", "turns"})) == ["job", "turns"]


def test_python_and_lua_name_a_lane_alike(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job(org_id="o", target="p:m"))

    assert redis.zrange(keys.TURNS(), 0, -1) == [keys.lane("o", "prompt", "p:m")]
    redis.delete(keys.TURNS())
    open_to(redis, "o")
    generations_of(redis).submit(
        new_generation(org_id="o", team_id="7", target="p:m", second_target="q:n")
    )
    assert redis.zrange(keys.TURNS(), 0, -1) == [
        keys.lane("o", "generation", "p:m", "7", second_target="q:n")
    ]
    redis.flushall()
