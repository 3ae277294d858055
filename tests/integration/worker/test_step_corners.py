"""Steps that are taken away, run into surprises, or meet events that nobody should have sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Kind
from jobs.domain.outcome import Abandoned
from jobs.domain.step import Answer, Ended, NoAnswer, Pending, Throttled
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.steps import StepNote, StepResult
from jobs.worker.assembly import assemble
from jobs.worker.attempt import AttemptRunner
from jobs.worker.handlers.step import StepHandler
from tests.support.factories import claim
from tests.support.step_execution import Scripted, execute, matching, run_step, submit, view_of
from tests.support.stored_generations import open_to
from tests.support.waiting import wait_until


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], redis: Redis) -> Runtime:
    open_to(redis, "acme")
    return make_runtime(extraction_model="mock-1", generations_per_minute=100_000)


@pytest.fixture
def runner(runtime: Runtime) -> Iterator[AttemptRunner]:
    """Runs attempts in this process, one at a time, as a worker does."""
    crew = assemble(runtime, concurrency=1)
    yield crew.runner
    crew.heartbeat.stop()


@pytest.mark.req("A17", "B26")
@pytest.mark.parametrize("take_away", ["cancel", "reclaim"])
def test_a_step_that_was_taken_away_submits_nothing(
    redis: Redis, runtime: Runtime, take_away: str
) -> None:
    new = submit(runtime)
    service = Scripted(Pending("g-1"))
    (attempt,) = claim(runtime.queue, 1).attempts
    if take_away == "cancel":
        runtime.queue.cancel(new.id, "acme")
    else:
        redis.hset(keys.JOB(new.id), "worker_claim", "another.1")

    outcome = StepHandler(runtime.steps, service)(attempt)

    assert isinstance(outcome, Abandoned)
    assert service.asked == 0
    redis.hset(keys.JOB(new.id), "worker_claim", attempt.token)


@pytest.mark.req("B27")
def test_a_step_whose_workers_die_again_and_again_asks_no_more_after_twenty(
    redis: Redis, runtime: Runtime
) -> None:
    new = submit(runtime)
    redis.hset(keys.STEP(new.id), "executions", "20")
    service = Scripted(Pending("g-1"))
    run_step(runtime, StepHandler(runtime.steps, service))
    view = view_of(runtime, new.id)
    assert (view.code, service.asked) == (GenerationCode.DEADLINE_EXCEEDED, 0)


@pytest.mark.req("B27", "B30")
def test_a_surprise_ends_the_step_by_name(runtime: Runtime) -> None:
    new = submit(runtime)
    run_step(runtime, StepHandler(runtime.steps, Scripted(RuntimeError("boom"))))
    view = view_of(runtime, new.id)
    assert (view.state, view.code) == ("failed", GenerationCode.GATEWAY_UNAVAILABLE)
    assert "boom" not in str(view)
    assert len([line for line in view.log if "gateway_unavailable" in line.text]) == 1


@pytest.mark.req("B33")
def test_the_log_never_has_more_than_ten_lines(redis: Redis, runtime: Runtime) -> None:
    answers: list[Answer | Exception] = []
    for n in range(9):
        answers += [NoAnswer(f"reason {n}")] if n % 4 else [Throttled(1), NoAnswer(f"r {n}")]
    service = Scripted(
        *answers, Pending("g-1"), NoAnswer("another"), Ended(GenerationCode.MODEL_REFUSED, "no")
    )
    handler = StepHandler(runtime.steps, service)
    new = submit(runtime)
    for _ in range(20):
        run_step(runtime, handler)
        assert len(view_of(runtime, new.id).log) <= 10
        redis.zadd(keys.SCHEDULED(), {new.id: 1}, xx=True)
    view = view_of(runtime, new.id)
    assert view.state == "failed"
    assert view.log[-1].text.startswith(str(view.code))


@pytest.mark.req("B26")
def test_no_clear_token_outlives_a_step(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    refused = submit(runtime, model="no-such-model")
    execute(runtime, runner, Kind.STEP)
    assert view_of(runtime, refused.id).state == "failed"
    assert "token" not in redis.hgetall(keys.STEP(refused.id))


@pytest.mark.req("B29")
def test_what_was_decided_counts_only_where_it_is_how_it_ended(runtime: Runtime) -> None:
    new = submit(runtime)
    (attempt,) = claim(runtime.queue, 1).attempts
    result = StepResult({"subject": "Hi"}, envelope={"text": "t", "fields": {"subject": "Hi"}})
    runtime.steps.note(new.id, attempt.token, StepNote(result=result))
    runtime.queue.cancel(new.id, "acme")
    view = view_of(runtime, new.id)
    assert (view.state, view.text, view.variables) == ("cancelled", None, new.variables)


@pytest.mark.req("B26")
def test_an_event_that_can_not_be_read_and_a_clock_set_back_stop_no_matcher(
    redis: Redis, redis_url: str, runtime: Runtime, runner: AttemptRunner
) -> None:
    redis.set(keys.WAKES_AT(), f"{2**42}-0")
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    with matching(runtime):
        raw = Redis.from_url(redis_url)
        raw.xadd(keys.WAKES(), {b"wake_token": b"\xff\xfe", b"generation_id": b"x"})
        raw.close()
        execute(runtime, runner, Kind.GENERATION)
        (token,) = [e for e in [wake_token_of(redis)] if e]
        redis.expire(keys.WAKES(), 600)

        def woken() -> bool:
            if redis.zscore(keys.SCHEDULED(), new.id) is None:
                return True
            redis.xadd(keys.WAKES(), {"wake_token": token, "generation_id": "g"})
            redis.expire(keys.WAKES(), 600)
            return False

        wait_until(woken, 15, "a later wake arrives")


def wake_token_of(redis: Redis) -> str:
    raw = redis.eval(
        "return redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][2][8]", 1, keys.WAKES()
    )
    return str(raw)
