"""What does a submit store, what does it refuse, and when is it a replay? (A1, A2, A18, X4)"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from jobs.domain.errors import (
    ErrorKind,
    IdempotencyKeyReusedError,
    RelatedEntityMissingError,
)
from jobs.domain.job import Kind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.support.factories import claim_one, new_id, new_job, response_for
from tests.support.job_states import now_ms, reach
from tests.support.snapshot import snapshot

DAY_MS = 86_400_000


@pytest.mark.req("A1", "A2", "A13")
def test_a_submitted_job_and_its_prompt_read_back_as_they_were_sent(
    redis: Redis, queue: Queue, records: Records
) -> None:
    start_ms = now_ms(redis)
    job = new_job(
        priority=7,
        max_attempts=5,
        execution_options={"temperature": 0.5, "stop": ["é", None]},
        metadata={"thread": {"n": 1}},
    )

    submitted = queue.submit(job)

    view, prompt = records.job(job.id, "acme"), records.prompt(job.prompt_id, "acme")
    assert view is not None
    assert prompt is not None
    assert (submitted.job_id, submitted.prompt_id, submitted.replayed) == (
        job.id,
        job.prompt_id,
        False,
    )
    stored = view.job
    assert {name: getattr(stored, name) for name in ("id", "prompt_id", "kind", "priority")} == {
        "id": job.id,
        "prompt_id": job.prompt_id,
        "kind": "prompt",
        "priority": 7,
    }
    assert (stored.state, stored.attempt, stored.max_attempts) == (State.QUEUED, 1, 5)
    assert (stored.org_id, stored.created_by, stored.target) == ("acme", "ada", "mock:mock-1")
    assert stored.execution_options == job.execution_options
    assert stored.schema_version == Kind.PROMPT.schema_version
    assert start_ms <= stored.created_at_ms == stored.updated_at_ms <= now_ms(redis)
    unset = (stored.worker_claim, stored.claimed_at_ms, stored.started_at_ms, stored.run_at_ms)
    assert unset == (None, None, None, None)
    assert (prompt.prompt.text, prompt.prompt.metadata) == (job.prompt_text, job.metadata)
    assert prompt.prompt.created_at_ms == stored.created_at_ms
    assert [j.id for j in prompt.jobs] == [job.id]


def test_another_organisation_reads_nothing_of_it(queue: Queue, records: Records) -> None:
    job = new_job()
    queue.submit(job)

    assert records.job(job.id, "other") is None
    assert records.prompt(job.prompt_id, "other") is None
    assert records.job("") is None


@pytest.mark.parametrize(
    "text",
    ["", "\x00", "a\x00b\n|é😀", "x" * 1_000_000, '"}]', "%s %d {gq}:", "\r\n*1\r\n"],
    ids=["empty", "NUL", "mixed", "1 MB", "JSON", "format", "protocol"],
)
def test_any_text_comes_back_to_the_last_byte(queue: Queue, records: Records, text: str) -> None:
    job = new_job(prompt_text=text, metadata={"k": text})
    queue.submit(job)

    view = records.prompt(job.prompt_id)
    assert view is not None
    assert (view.prompt.text, view.prompt.metadata) == (text, {"k": text})
    assert claim_one(queue).prompt_text == text


def test_text_that_no_encoding_takes_stores_nothing(redis: Redis, queue: Queue) -> None:
    with pytest.raises(UnicodeEncodeError):
        queue.submit(new_job(prompt_text="\ud800"))
    assert snapshot(redis) == {}


def test_an_error_message_of_any_length_is_cut_and_kept(queue: Queue, records: Records) -> None:
    job = reach(queue, State.RUNNING)
    queue.fail(job.job_id, job.token, ErrorKind.PARSE, "é|\x00" * 5_000)

    view = records.job(job.job_id)
    assert view is not None
    assert view.job.error_message == ("é|\x00" * 334)[:1000]


def test_a_message_that_no_encoding_takes_still_ends_the_attempt(
    queue: Queue, records: Records
) -> None:
    job = reach(queue, State.RUNNING)

    assert queue.fail(job.job_id, job.token, ErrorKind.PARSE, "odd \ud800").answer == "OK"

    view = records.job(job.job_id)
    assert view is not None
    assert view.job.error_message == "odd ?"


def test_a_reason_with_separators_stays_one_reason(queue: Queue, records: Records) -> None:
    job = reach(queue, State.QUEUED)
    queue.cancel(job.job_id, "acme", "a|b|c\n" * 50)

    view, prompt = records.job(job.job_id), records.prompt(job.prompt_id)
    assert view is not None
    assert prompt is not None
    assert view.history[-1].reason == ("a|b|c\n" * 50)[:120]
    assert prompt.audit[-1].detail == view.history[-1].reason


@pytest.mark.req("X4")
def test_a_replayed_key_answers_the_first_job_and_stores_nothing(
    redis: Redis, queue: Queue
) -> None:
    first = new_job(idempotency_key="k", payload_hash="h")
    queue.submit(first)
    before = snapshot(redis)

    replay = queue.submit(new_job(idempotency_key="k", payload_hash="h"))

    assert (replay.job_id, replay.prompt_id, replay.replayed) == (first.id, first.prompt_id, True)
    assert snapshot(redis) == before


@pytest.mark.req("X4")
def test_a_key_with_another_payload_is_refused_and_stores_nothing(
    redis: Redis, queue: Queue
) -> None:
    first = new_job(idempotency_key="k", payload_hash="h")
    queue.submit(first)
    before = snapshot(redis)

    with pytest.raises(IdempotencyKeyReusedError) as caught:
        queue.submit(new_job(idempotency_key="k", payload_hash="other"))
    assert caught.value.job_id == first.id
    assert snapshot(redis) == before


@pytest.mark.req("X4")
@pytest.mark.parametrize("key", ["k", "", "|", "a\nb", "x" * 5_000])
def test_keys_belong_to_their_organisation(queue: Queue, key: str) -> None:
    replays = [
        queue.submit(new_job(org_id=org, idempotency_key=key, payload_hash="h")).replayed
        for org in ("a", "b", "a\nb")
    ]
    assert replays == [False, False, False]


def test_an_organisation_cannot_reach_anothers_key_by_its_own_name(queue: Queue) -> None:
    queue.submit(new_job(org_id="a", idempotency_key="b\nc", payload_hash="h"))

    assert not queue.submit(new_job(org_id="a\nb", idempotency_key="c", payload_hash="h")).replayed


@pytest.mark.req("X4")
@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_a_key_ends_a_day_after_its_job_and_not_before(
    redis: Redis, queue: Queue, state: State
) -> None:
    def lives_ms() -> int:
        (name,) = redis.scan_iter(match=keys.IDEMPOTENCY("*"))
        return int(redis.pttl(name))

    job = new_job(idempotency_key="k", payload_hash="h")
    queue.submit(job)
    assert lives_ms() == -1
    if state is State.CANCELLED:
        queue.cancel(job.id, "acme")
    else:
        attempt = claim_one(queue)
        assert lives_ms() == -1
        if state is State.SUCCEEDED:
            queue.succeed(job.id, attempt.token, response_for(attempt))
        else:
            queue.fail(job.id, attempt.token, ErrorKind.PARSE, "")
    assert DAY_MS - 10_000 < lives_ms() <= DAY_MS
    assert queue.submit(new_job(idempotency_key="k", payload_hash="h")).job_id == job.id


@pytest.mark.req("X4")
def test_superseding_a_job_does_not_lengthen_its_key_or_change_its_answer(
    redis: Redis, queue: Queue
) -> None:
    job = new_job(idempotency_key="k", payload_hash="h")
    queue.submit(job)
    queue.cancel(job.id, "acme")
    (name,) = redis.scan_iter(match=keys.IDEMPOTENCY("*"))
    redis.pexpire(name, 50_000)

    queue.supersede(job.id, new_id(), "acme", "ada")

    assert 0 < redis.pttl(name) <= 50_000
    replay = queue.submit(new_job(idempotency_key="k", payload_hash="h"))
    assert (replay.job_id, replay.replayed) == (job.id, True)


@pytest.mark.req("X4")
def test_fifty_submits_of_one_key_at_one_instant_are_one_job(redis: Redis, queue: Queue) -> None:
    def submit(_: int) -> str:
        return queue.submit(new_job(idempotency_key="k", payload_hash="h")).job_id

    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(submit, range(50)))

    assert len(ids) == 1
    assert redis.zcard(keys.CHANGED("acme")) == 1


@pytest.mark.req("A18")
def test_a_continuation_belongs_to_the_conversation_of_its_parent(
    queue: Queue, records: Records
) -> None:
    first = new_job()
    queue.submit(first)
    attempt = claim_one(queue)
    response = response_for(attempt)
    queue.succeed(first.id, attempt.token, response)
    second = new_job(parent_id=response.id)
    queue.submit(second)
    third = new_job(parent_id=second.prompt_id, causation_id=first.prompt_id)
    queue.submit(third)

    found = []
    for job in (first, second, third):
        view = records.prompt(job.prompt_id)
        assert view is not None
        entity = view.prompt
        found.append((entity.parent_id, entity.correlation_id, entity.causation_id))
    assert found == [
        (None, first.prompt_id, None),
        (response.id, first.prompt_id, response.id),
        (second.prompt_id, first.prompt_id, first.prompt_id),
    ]


@pytest.mark.req("A18")
@pytest.mark.parametrize("field", ["parent_id", "correlation_id", "causation_id"])
@pytest.mark.parametrize("names", ["nothing", "a job", "another organisation's prompt", "*"])
def test_a_relation_to_what_is_not_there_is_refused_and_stores_nothing(
    redis: Redis, queue: Queue, field: str, names: str
) -> None:
    own, other = new_job(), new_job(org_id="other")
    queue.submit(own)
    queue.submit(other)
    target = {"a job": own.id, "another organisation's prompt": other.prompt_id}
    before = snapshot(redis)

    with pytest.raises(RelatedEntityMissingError) as caught:
        queue.submit(new_job(**{field: target.get(names, names)}))
    assert caught.value.field == field
    assert snapshot(redis) == before


@pytest.mark.req("A18")
def test_another_organisations_response_is_no_parent(redis: Redis, queue: Queue) -> None:
    job = reach(queue, State.SUCCEEDED, org_id="other")
    (name,) = redis.scan_iter(match=keys.RESPONSE("*"))

    with pytest.raises(RelatedEntityMissingError):
        queue.submit(new_job(parent_id=name.removeprefix(keys.RESPONSE(""))))
    assert job.job_id


@pytest.mark.req("A18")
def test_submits_at_one_moment_attach_each_to_its_own_parent(
    queue: Queue, records: Records
) -> None:
    parents = [new_job() for _ in range(20)]
    for parent in parents:
        queue.submit(parent)
    children = [new_job(parent_id=parent.prompt_id) for parent in parents]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(queue.submit, children))

    for parent, child in zip(parents, children, strict=True):
        view = records.prompt(child.prompt_id)
        assert view is not None
        assert view.prompt.parent_id == parent.prompt_id
        assert view.prompt.correlation_id == parent.prompt_id
