"""What stays of a job that another one replaced? (A16, X16)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.job import Attempt
from jobs.domain.states import Answer, State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim_one, new_id, response_for
from tests.support.job_states import reach
from tests.support.snapshot import snapshot


@pytest.mark.req("A16")
def test_the_replaced_response_is_set_aside_by_the_claim_and_not_before(
    queue: Queue, records: Records
) -> None:
    old = reach(queue, State.SUCCEEDED)
    queue.supersede(old.job_id, new_id(), "acme", "ada")
    before = records.prompt(old.prompt_id)
    assert before is not None
    assert before.response is not None

    attempt = claim_one(queue)
    during = records.prompt(old.prompt_id)
    assert during is not None
    assert during.response is None
    queue.succeed(attempt.job.id, attempt.token, response_for(attempt, text="Better."))

    after = records.prompt(old.prompt_id)
    assert after is not None
    assert after.response is not None
    assert after.response.text == "Better."
    assert [job.state for job in after.jobs] == [State.SUPERSEDED, State.SUCCEEDED]
    assert after.jobs[0].response_id == before.response.id
    assert after.jobs[0].outcome is State.SUCCEEDED


@pytest.mark.req("X16")
def test_a_chain_of_replacements_has_one_root_and_one_current_job(
    queue: Queue, records: Records
) -> None:
    first = reach(queue, State.FAILED)
    chain = [first.job_id]
    for _ in range(3):
        chain.append(new_id())
        assert queue.supersede(chain[-2], chain[-1], "acme", "ada").answer is Answer.OK
        queue.cancel(chain[-1], "acme")

    view = records.prompt(first.prompt_id)
    assert view is not None
    assert [job.id for job in view.jobs] == chain
    assert {job.root_id for job in view.jobs} == {first.job_id}
    assert [job.superseded_by for job in view.jobs] == [*chain[1:], None]
    assert [job.supersedes for job in view.jobs] == [None, *chain[:-1]]
    assert sum(job.state is not State.SUPERSEDED for job in view.jobs) == 1


@pytest.mark.req("X16")
def test_of_a_late_answer_the_usage_is_booked_once_and_nothing_else_changes(
    redis: Redis, queue: Queue, records: Records
) -> None:
    running = reach(queue, State.RUNNING)
    attempt_view = records.job(running.job_id)
    assert attempt_view is not None
    queue.cancel(running.job_id, "acme")
    before = snapshot(redis)

    late = response_for(Attempt(attempt_view.job, running.token, "Say hello."))
    assert queue.succeed(running.job_id, running.token, late).answer is Answer.WRONG_STATE
    assert snapshot(redis) == before
    for _ in range(2):
        assert queue.book(running.job_id, 1, late).answer is Answer.OK

    view = records.prompt(running.prompt_id)
    assert view is not None
    assert view.response is None
    assert [row.usage["completion_tokens"] for row in view.ledger] == [2]
    assert redis.exists(keys.TEXT(late.id)) == 0
