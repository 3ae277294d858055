"""What does the end of an attempt write, all at once or not at all? (A15, A19, A16)"""

from __future__ import annotations

import json

import pytest
from redis import Redis

from jobs.domain.entities import Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer, State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import PromptView, Records
from tests.support.factories import claim_one, new_id, new_job, records_of, response_for
from tests.support.job_states import reach


def prompt_of(records: Records, prompt_id: str) -> PromptView:
    view = records.prompt(prompt_id)
    assert view is not None
    return view


@pytest.mark.req("A19")
def test_success_stores_response_edge_ledger_audit_and_state_together(
    queue: Queue, records: Records
) -> None:
    job = new_job()
    queue.submit(job)
    attempt = claim_one(queue)
    response = response_for(attempt, text="Hallo\x00 é", source_refs=(job.prompt_id, "e-2"))

    assert queue.succeed(job.id, attempt.token, response).answer is Answer.OK

    view = prompt_of(records, job.prompt_id)
    assert view.response == response
    (edge,), (ledger,), (audit,), (stored,) = view.edges, view.ledger, view.audit, view.jobs
    assert (edge.source_id, edge.type, edge.target_id) == (job.prompt_id, "flows-to", response.id)
    assert (ledger.job_id, ledger.attempt) == (job.id, 1)
    assert ledger.usage == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cost_usd_micros": 7,
        "provider": "mock",
        "model": "mock-1",
        "provider_request_id": response.provider_request_id,
    }
    assert (audit.verb, audit.job_id, audit.detail) == ("succeed", job.id, response.id)
    assert (stored.state, stored.response_id) == (State.SUCCEEDED, response.id)
    assert ledger.at_ms == audit.at_ms == stored.finished_at_ms == view.response_created_at_ms


@pytest.mark.req("A19")
def test_what_the_provider_did_not_say_stays_unsaid(queue: Queue, records: Records) -> None:
    job = new_job()
    queue.submit(job)
    attempt = claim_one(queue)
    response = response_for(
        attempt, usage=Usage(None, 0), cost_usd_micros=None, provider_request_id=None, text=""
    )
    queue.succeed(job.id, attempt.token, response)

    view = prompt_of(records, job.prompt_id)
    assert view.response == response
    assert view.ledger[0].usage["cost_usd_micros"] is None


@pytest.mark.req("A15")
def test_an_answer_that_comes_twice_is_stored_and_booked_once(
    redis: Redis, queue: Queue, records: Records
) -> None:
    """The provider saw the same request twice, for example after a proxy's own retry."""
    job = new_job()
    queue.submit(job)
    attempt = claim_one(queue)
    response = response_for(attempt)
    queue.succeed(job.id, attempt.token, response)
    queue.supersede(job.id, new_id(), "acme", "ada")
    second = claim_one(queue)

    again = response_for(second, id=response.id, text="Other words.")
    assert queue.succeed(second.job.id, second.token, again).answer is Answer.OK

    view = prompt_of(records, job.prompt_id)
    assert view.response == response
    assert (len(view.edges), len(view.ledger)) == (1, 1)
    assert [j.state for j in view.jobs] == [State.SUPERSEDED, State.SUCCEEDED]
    assert {j.response_id for j in view.jobs} == {response.id}


@pytest.mark.req("A19", "A14")
def test_a_success_that_came_too_late_leaves_no_trace(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.RUNNING)
    attempt_job = records_of(redis).job(job.job_id)
    assert attempt_job is not None
    queue.cancel(job.job_id, "acme")
    late = response_for(
        type("A", (), {"job": attempt_job.job})()  # what a worker still holds
    )

    assert queue.succeed(job.job_id, job.token, late).answer is Answer.WRONG_STATE

    view = prompt_of(records_of(redis), job.prompt_id)
    assert (view.response, view.edges, view.ledger) == (None, (), ())
    assert redis.exists(keys.TEXT(late.id), keys.RESPONSE(late.id)) == 0


def test_success_clears_the_error_of_the_attempt_before(queue: Queue, records: Records) -> None:
    job = reach(queue, State.RUNNING)
    queue.retry(job.job_id, job.token, ErrorKind.TIMEOUT, "slow", 0)
    waiting = records.job(job.job_id)
    assert waiting is not None
    assert (waiting.job.error_kind, waiting.job.error_message) == (ErrorKind.TIMEOUT, "slow")
    attempt = claim_one(queue)

    queue.succeed(job.job_id, attempt.token, response_for(attempt))

    view = records.job(job.job_id)
    assert view is not None
    assert (view.job.error_kind, view.job.error_message) == (None, None)


@pytest.mark.req("A16", "X16", "A3")
@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_a_superseded_job_keeps_its_outcome_and_its_successor_starts_anew(
    redis: Redis, queue: Queue, records: Records, state: State
) -> None:
    job = reach(queue, state, priority=20, max_attempts=4, execution_options={"temperature": 1})
    before = records.job(job.job_id)
    new = new_id()

    superseded = queue.supersede(job.job_id, new, "acme", "bob")

    old, successor = records.job(job.job_id), records.job(new)
    assert before is not None
    assert old is not None
    assert successor is not None
    assert (superseded.superseded_by, superseded.ticket_wanted) == (new, True)
    kept = ("error_kind", "error_message", "response_id", "finished_at_ms", "attempt")
    assert [getattr(old.job, n) for n in kept] == [getattr(before.job, n) for n in kept]
    assert (old.job.superseded_by, successor.job.supersedes) == (new, job.job_id)
    assert redis.hget(keys.JOB(job.job_id), "outcome") == state
    assert (successor.job.attempt, successor.job.max_attempts) == (1, 4)
    assert (successor.job.priority, successor.job.created_by) == (20, "bob")
    assert successor.job.execution_options == {"temperature": 1}
    assert [row.reason for row in successor.history] == ["supersede"]
    assert [j.id for j in prompt_of(records, job.prompt_id).jobs] == [job.job_id, new]
    assert claim_one(queue).prompt_text == "Say hello."


@pytest.mark.req("X16")
def test_a_chain_of_successors_has_one_current_job(queue: Queue, records: Records) -> None:
    job = reach(queue, State.CANCELLED)
    chain = [job.job_id]
    for _ in range(4):
        new = new_id()
        queue.supersede(chain[-1], new, "acme", "ada")
        queue.cancel(new, "acme")
        chain.append(new)

    view = prompt_of(records, job.prompt_id)
    assert [j.id for j in view.jobs] == chain
    assert [j.id for j in view.jobs if j.state is not State.SUPERSEDED] == chain[-1:]


def test_the_event_of_each_move_carries_all_that_a_watcher_needs(
    redis: Redis, queue: Queue
) -> None:
    job = reach(queue, State.FAILED)

    events = redis.xrange(keys.EVENTS("acme"))
    assert [(e["from"], e["state"], e["verb"], e["reason"]) for _, e in events] == [
        ("", "queued", "submit", ""),
        ("queued", "running", "claim", ""),
        ("running", "failed", "fail", "parse"),
    ]
    assert {(e["job_id"], e["prompt_id"], e["user"], e["attempt"]) for _, e in events} == {
        (job.job_id, job.prompt_id, "ada", "1")
    }
    numbers = [int(event_id.split("-")[0]) for event_id, _ in events]
    assert numbers == sorted(set(numbers))
    assert redis.zrange(keys.CHANGED("acme"), 0, -1, withscores=True) == [(job.job_id, numbers[-1])]


def test_each_organisation_has_its_own_stream(redis: Redis, queue: Queue) -> None:
    reach(queue, State.FAILED)
    other = reach(queue, State.CANCELLED, org_id="other")

    assert {e["job_id"] for _, e in redis.xrange(keys.EVENTS("other"))} == {other.job_id}
    assert json.dumps(redis.xrange(keys.EVENTS("acme"))).count(other.job_id) == 0
