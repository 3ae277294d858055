"""What is kept of a step, and who may wake it, when and how often? (B26, B27, PARK-01 to 05)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind, IdempotencyKeyReusedError
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Attempt, Kind
from jobs.domain.states import Answer
from jobs.domain.step import OnError
from jobs.domain.step_variables import VariableRow
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from jobs.store.steps import LogLine, StepInputs, StepNote, StepResult, Steps, Woken, token_hash
from tests.support.factories import claim, claim_one, new_id
from tests.support.job_states import now_ms, sweep
from tests.support.stored_steps import new_step

MINUTE_MS = 60_000


@pytest.fixture
def steps(redis: Redis, queue: Queue) -> Steps:
    return Steps(redis, Scripts(redis, queue_name="genqueue"), queue, ticket_cap=16)


def token_of(step_id: str) -> str:
    return f"{step_id}.secret-of-this-step"


def park(queue: Queue, steps: Steps, attempt: Attempt, after_ms: int = MINUTE_MS) -> None:
    """As the handler does: note the token, then the generation, then leave."""
    steps.note(attempt.job.id, attempt.token, StepNote(token=token_of(attempt.job.id)))
    note = StepNote(generation_id="g-1", accepted_at_ms=5, forget_token=True)
    assert steps.note(attempt.job.id, attempt.token, note) is Answer.OK
    assert queue.snooze(attempt.job.id, attempt.token, "parked", after_ms).answer is Answer.OK


@pytest.fixture
def parked(queue: Queue, steps: Steps) -> str:
    """A step that waits for its generation."""
    new = new_step()
    steps.submit(new)
    park(queue, steps, claim_one(queue))
    return new.id


@pytest.mark.req("B26")
def test_a_step_is_a_job_of_its_team_with_its_inputs_beside_it(queue: Queue, steps: Steps) -> None:
    new = new_step()
    assert steps.submit(new).ticket_wanted

    view = steps.get(new.id, "1")
    assert view is not None
    assert (view.state, view.variables, view.log) == ("queued", new.variables, ())
    assert steps.get(new.id, "2") is None
    attempt = claim_one(queue)
    assert (attempt.job.kind, attempt.job.team_id) == (Kind.STEP, "1")
    assert attempt.prompt_text == "Write to Ada."
    stored = steps.load(new.id)
    assert stored is not None
    assert stored.executions == 1
    assert stored.inputs == StepInputs(
        new.invocation_id,
        new.hog_flow_id,
        new.model,
        new.output_fields,
        new.rows,
        new.variables,
        new.on_error,
    )


@pytest.mark.req("B25", "B29")
def test_inputs_that_are_not_the_common_ones_come_back_too(queue: Queue, steps: Steps) -> None:
    rows = (VariableRow("subject", "fields.subject"), VariableRow("whole", "text"))
    new = new_step(hog_flow_id="flow-1", on_error=OnError.CONTINUE, rows=rows, output_fields={})
    steps.submit(new)
    claim_one(queue)
    stored = steps.load(new.id)
    assert stored is not None
    assert (stored.inputs.hog_flow_id, stored.inputs.rows) == ("flow-1", rows)
    assert (stored.inputs.on_error, stored.inputs.output_fields) == (OnError.CONTINUE, {})


def test_an_idempotency_key_names_one_step(steps: Steps) -> None:
    first = new_step(idempotency_key="k", payload_hash="h")
    steps.submit(first)
    again = steps.submit(new_step(idempotency_key="k", payload_hash="h"))
    assert (again.step_id, again.replayed) == (first.id, True)
    with pytest.raises(IdempotencyKeyReusedError):
        steps.submit(new_step(idempotency_key="k", payload_hash="other"))


@pytest.mark.req("B26")
def test_a_parked_step_holds_nothing_and_keeps_its_token_only_as_a_hash(
    redis: Redis, queue: Queue, steps: Steps, parked: str
) -> None:
    view = steps.get(parked, "1")
    assert view is not None
    assert (view.state, view.generation_id) == ("parked", "g-1")
    assert redis.exists(keys.RUNNING(), keys.TURNS()) == 0
    assert claim(queue).attempts == ()
    record = redis.hgetall(keys.STEP(parked))
    assert "secret-of-this-step" not in str(record)
    assert record["token_hash"] == token_hash(token_of(parked))


@pytest.mark.req("B26")
def test_its_token_wakes_it_once(redis: Redis, queue: Queue, steps: Steps, parked: str) -> None:
    assert steps.wake(token_of(parked)) == (Woken.OK, True)
    assert steps.wake(token_of(parked)) == (Woken.OK, False)

    attempt = claim_one(queue)
    assert attempt.job.id == parked
    assert attempt.job.attempt == 1
    queue.snooze(parked, attempt.token, "parked", MINUTE_MS)
    # Replayed: it parks again and stays parked.
    assert steps.wake(token_of(parked)) == (Woken.OK, False)
    assert claim(queue).attempts == ()
    assert redis.zscore(keys.SCHEDULED(), parked) is not None


@pytest.mark.req("B26")
@pytest.mark.parametrize(
    "forge",
    [
        lambda step_id: f"{step_id}.another-secret",
        lambda step_id: f"{step_id}.",
        lambda step_id: f"{new_id()}.secret-of-this-step",
        lambda _step_id: "secret-of-this-step",
        lambda _step_id: "",
        lambda _step_id: "é" * 40,
        lambda step_id: f"{{gq}}:step:{step_id}.x",
    ],
)
def test_a_foreign_token_wakes_nobody(
    redis: Redis, queue: Queue, steps: Steps, parked: str, forge: object
) -> None:
    before = redis.hgetall(keys.STEP(parked))
    word, wanted = steps.wake(forge(parked))  # type: ignore[operator]
    assert (word in (Woken.REFUSED, Woken.MISSING), wanted) == (True, False)
    assert redis.hgetall(keys.STEP(parked)) == before
    assert claim(queue).attempts == ()


@pytest.mark.req("B26")
@pytest.mark.case("PARK-05")
def test_a_wake_before_the_step_parks_is_not_lost(queue: Queue, steps: Steps) -> None:
    new = new_step()
    steps.submit(new)
    attempt = claim_one(queue)
    steps.note(new.id, attempt.token, StepNote(token=token_of(new.id)))

    assert steps.wake(token_of(new.id)) == (Woken.OK, False)
    assert queue.snooze(new.id, attempt.token, "parked", MINUTE_MS).ticket_wanted

    again = claim_one(queue)
    assert again.job.id == new.id
    queue.snooze(new.id, again.token, "parked", MINUTE_MS)
    assert claim(queue).attempts == ()


@pytest.mark.req("B26")
def test_an_ended_step_is_woken_no_more(queue: Queue, steps: Steps, parked: str) -> None:
    queue.cancel(parked, "acme")
    assert steps.wake(token_of(parked)) == (Woken.ENDED, False)


@pytest.mark.req("B27")
def test_executions_are_counted_also_where_their_worker_dies(
    redis: Redis, queue: Queue, steps: Steps
) -> None:
    new = new_step()
    steps.submit(new)
    claim_one(queue, window_ms=-1)
    sweep(redis, queue)
    claim_one(queue)
    stored = steps.load(new.id)
    assert stored is not None
    assert stored.executions == 2


@pytest.mark.req("A14", "B26")
def test_only_the_holder_of_the_lease_writes_how_far_it_came(
    redis: Redis, queue: Queue, steps: Steps
) -> None:
    new = new_step()
    steps.submit(new)
    attempt = claim_one(queue)
    before = redis.hgetall(keys.STEP(new.id))
    note = StepNote(bounces=3)

    assert steps.note(new.id, "stale.1", note) is Answer.LEASE_LOST
    assert steps.note(new_id(), attempt.token, note) is Answer.MISSING
    assert redis.hgetall(keys.STEP(new.id)) == before
    assert steps.note(new.id, attempt.token, note) is Answer.OK
    assert steps.note(new.id, attempt.token, note) is Answer.OK


@pytest.mark.req("B29", "B33")
def test_what_came_of_it_can_be_read_for_a_day(redis: Redis, queue: Queue, steps: Steps) -> None:
    new = new_step()
    steps.submit(new)
    attempt = claim_one(queue)
    envelope = {"text": "Hello.", "fields": {"subject": "Hi"}}
    result = StepResult({"subject": "Hi", "name": "Ada"}, envelope=envelope)
    log = [LogLine(1, "Submitted."), LogLine(2, "Done.")]
    steps.note(new.id, attempt.token, StepNote(log=log, result=result))
    queue.complete(new.id, attempt.token)

    view = steps.get(new.id, "1")
    assert view is not None
    assert (view.state, view.text, view.fields) == ("succeeded", "Hello.", {"subject": "Hi"})
    assert (view.variables, view.log) == (result.variables, tuple(log))
    for key in (keys.STEP, keys.STEP_INPUTS, keys.STEP_LOG, keys.STEP_RESULT):
        assert 86_390 < redis.ttl(key(new.id)) <= 86_400
    assert redis.ttl(keys.TEXT(new.prompt_id)) > 86_390


@pytest.mark.req("B29")
def test_a_failure_has_code_and_message(queue: Queue, steps: Steps) -> None:
    new = new_step(on_error=OnError.CONTINUE)
    steps.submit(new)
    attempt = claim_one(queue)
    result = StepResult({"subject": "", "name": "Ada"}, code=GenerationCode.THROTTLED, message="m")
    steps.note(new.id, attempt.token, StepNote(result=result))
    queue.fail(new.id, attempt.token, ErrorKind.RATE_LIMIT, "throttled")

    view = steps.get(new.id, "1")
    assert view is not None
    assert (view.state, view.code, view.message) == ("failed", GenerationCode.THROTTLED, "m")
    assert (view.on_error, view.variables["subject"]) == (OnError.CONTINUE, "")


@pytest.mark.req("B29")
@pytest.mark.parametrize(("on_error", "subject"), [(OnError.ABORT, "old"), (OnError.CONTINUE, "")])
def test_a_step_whose_workers_all_died_fails_by_name(
    redis: Redis, queue: Queue, steps: Steps, on_error: OnError, subject: str
) -> None:
    new = new_step(on_error=on_error, variables={"subject": "old"})
    steps.submit(new)
    redis.hset(keys.JOB(new.id), "max_attempts", "1")
    claim_one(queue, window_ms=-1)
    sweep(redis, queue)
    view = steps.get(new.id, "1")
    assert view is not None
    assert (view.state, view.code) == ("failed", GenerationCode.DEADLINE_EXCEEDED)
    assert view.message
    assert view.variables == {"subject": subject}
    assert redis.exists(keys.MIRROR()) == 0
    assert now_ms(redis) >= (view.finished_at_ms or 0)
