"""Does each verb move exactly the jobs that the table allows, and nothing else? (A3)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.states import MOVES, TERMINAL, Answer, State, Verb, accepts
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.job_states import NO_TOKEN, apply, reach
from tests.support.snapshot import SWEEP_STAMPS, snapshot

VERBS = tuple(verb for verb in Verb if verb is not Verb.SUBMIT)
TOKEN_VERBS = tuple(verb for verb in VERBS if any(m.verb is verb and m.needs_token for m in MOVES))
ALLOWED = [(state, verb) for state in State for verb in VERBS if accepts(state, verb)]
REFUSED = [(state, verb) for state in State for verb in VERBS if not accepts(state, verb)]
OVER = {Verb.RECLAIM: 0}
"""Lease in ms that a verb needs; a sweep takes what is over, all others what runs."""


def events_of(redis: Redis, job_id: str) -> list[dict[str, str]]:
    return [event for _, event in redis.xrange(keys.EVENTS("acme")) if event["job_id"] == job_id]


def test_the_table_has_a_pair_for_every_state_and_verb() -> None:
    assert len(ALLOWED) + len(REFUSED) == len(State) * 9
    assert {verb for _, verb in ALLOWED} == set(VERBS)


@pytest.mark.req("A3")
@pytest.mark.parametrize(("state", "verb"), ALLOWED)
def test_an_allowed_verb_moves_the_job_and_says_so_once(
    redis: Redis, queue: Queue, records: Records, state: State, verb: Verb
) -> None:
    job = reach(queue, state, window_ms=OVER.get(verb, 60_000))
    before = records.job(job.job_id)
    told = len(events_of(redis, job.job_id))
    assert before is not None

    answer = apply(verb, redis, queue, job.job_id, job.token)

    after = records.job(job.job_id)
    assert after is not None
    moves = [move for move in MOVES if move.verb is verb]
    path = [State.QUEUED, State.RUNNING, State.FAILED] if verb is Verb.EXPIRE else None
    fresh = after.history[len(before.history) :]
    assert answer in (Answer.OK, None)
    assert [(row.source, row.target) for row in fresh] in (
        [[(path[0], path[1]), (path[1], path[2])]]
        if path
        else [[(move.source, move.target)] for move in moves if move.source is state]
    )
    assert {row.verb for row in fresh} == {verb}
    assert after.job.state is fresh[-1].target
    (move,) = [m for m in moves if (m.source, m.target) == (fresh[-1].source, fresh[-1].target)]
    assert after.job.attempt == before.job.attempt + move.counts_attempt
    events = events_of(redis, job.job_id)[told:]
    assert [
        (event["from"], event["state"], event["verb"], int(event["at"])) for event in events
    ] == [(row.source, row.target, row.verb, row.at_ms) for row in fresh]
    assert after.job.updated_at_ms == fresh[-1].at_ms
    assert (after.job.finished_at_ms is not None) == (after.job.state in TERMINAL)


@pytest.mark.req("A3")
@pytest.mark.parametrize(("state", "verb"), REFUSED)
def test_a_verb_that_the_state_does_not_allow_changes_no_byte(
    redis: Redis, queue: Queue, state: State, verb: Verb
) -> None:
    job = reach(queue, state)
    ignored = SWEEP_STAMPS if verb in (Verb.CLAIM, Verb.RECLAIM) else ()
    before = snapshot(redis, ignore=ignored)

    # A token that this job never had: the holder's own repeat is another test.
    answer = apply(verb, redis, queue, job.job_id, NO_TOKEN)

    repeated_cancel = (state, verb) == (State.CANCELLED, Verb.CANCEL)
    looks_only = verb in (Verb.CLAIM, Verb.RECLAIM)
    assert answer is (None if looks_only else Answer.OK if repeated_cancel else Answer.WRONG_STATE)
    assert snapshot(redis, ignore=ignored) == before


@pytest.mark.req("A3", "A14")
@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("verb", TOKEN_VERBS)
def test_the_token_of_the_last_attempt_opens_no_finished_job(
    redis: Redis, queue: Queue, state: State, verb: Verb
) -> None:
    job = reach(queue, state)
    ended_by = {State.SUCCEEDED: Verb.SUCCEED, State.FAILED: Verb.FAIL, State.SUPERSEDED: Verb.FAIL}
    before = snapshot(redis)

    answer = apply(verb, redis, queue, job.job_id, job.token)

    assert answer is (Answer.OK if ended_by.get(state) is verb else Answer.WRONG_STATE)
    assert snapshot(redis) == before


@pytest.mark.req("A14")
@pytest.mark.parametrize("token", [NO_TOKEN, "", "stale"])
@pytest.mark.parametrize("verb", TOKEN_VERBS)
def test_a_running_attempt_is_ended_by_its_own_token_only(
    redis: Redis, queue: Queue, verb: Verb, token: str
) -> None:
    job = reach(queue, State.RUNNING)
    if token == "stale":
        queue.snooze(job.job_id, job.token, "busy", 0)
        apply(Verb.CLAIM, redis, queue, job.job_id, "")
        token = job.token
    before = snapshot(redis)

    answer = apply(verb, redis, queue, job.job_id, token)

    # The stale token did end its attempt by snooze, and repeating that is told so.
    repeats = token == job.token and verb is Verb.SNOOZE
    assert answer is (Answer.OK if repeats else Answer.LEASE_LOST)
    assert snapshot(redis) == before


@pytest.mark.parametrize("job_id", ["unknown", "", "a\x00b", "*", "x" * 10_000])
@pytest.mark.parametrize("verb", [v for v in VERBS if v not in (Verb.CLAIM, Verb.RECLAIM)])
def test_a_job_that_is_not_there_is_missing_and_nothing_is_made_of_it(
    redis: Redis, queue: Queue, verb: Verb, job_id: str
) -> None:
    reach(queue, State.RUNNING)
    before = snapshot(redis)

    assert apply(verb, redis, queue, job_id, "t.1") is Answer.MISSING
    assert snapshot(redis) == before


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.SUPERSEDE])
@pytest.mark.parametrize("state", State)
def test_another_organisation_cannot_tell_the_job_from_none(
    redis: Redis, queue: Queue, verb: Verb, state: State
) -> None:
    job = reach(queue, state)
    before = snapshot(redis)

    answer = apply(verb, redis, queue, job.job_id, "", org_id="other")

    assert answer is Answer.MISSING
    assert snapshot(redis) == before


@pytest.mark.req("A3")
def test_work_that_may_never_run_takes_two_moves_and_no_attempt(
    redis: Redis, queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, "timeout", "slow", 60_000)  # type: ignore[arg-type]

    assert apply(Verb.EXPIRE, redis, queue, job.job_id, "") is Answer.OK

    view = records.job(job.job_id)
    assert view is not None
    assert [(row.source, row.target) for row in view.history[-2:]] == [
        (State.QUEUED, State.RUNNING),
        (State.RUNNING, State.FAILED),
    ]
    assert view.job.attempt == 2
    assert view.job.error_kind == "blocked"
    assert view.job.run_at_ms is None
    assert redis.zcard(keys.SCHEDULED()) == 0
