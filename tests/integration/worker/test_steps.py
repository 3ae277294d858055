"""Does a step end as it should, whatever becomes of its generation, its wakes, its workers?"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from jobs import maintenance
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.job import Kind
from jobs.domain.step import OnError, Pending, StepRequest
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.steps import StepNote
from jobs.wake_matcher import WakeMatcher
from jobs.worker.assembly import assemble
from jobs.worker.attempt import AttemptRunner
from jobs.worker.local_generations import LocalGenerationClient
from tests.support.clock import start_scheduler
from tests.support.factories import claim
from tests.support.processes import Fleet
from tests.support.step_execution import execute, matching, pass_time, submit, view_of
from tests.support.stored_generations import open_to
from tests.support.waiting import wait_until

SLOW = "[[mock delay=0.5]] Write to Ada."


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


@pytest.mark.req("B25", "B26", "B33")
def test_a_step_submits_parks_is_woken_and_writes_its_variables(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    parked = view_of(runtime, new.id)
    assert (parked.state, redis.zcard(keys.RUNNING())) == ("parked", 0)

    with matching(runtime):
        execute(runtime, runner, Kind.GENERATION)
        wait_until(lambda: redis.zscore(keys.SCHEDULED(), new.id) is None, 5, "it is woken")
    execute(runtime, runner, Kind.STEP)

    view = view_of(runtime, new.id)
    assert (view.state, view.executions) == ("succeeded", 2)
    assert view.fields is not None
    assert view.variables == {"name": "Ada", "subject": view.fields["subject"]}
    assert view.variables["subject"].startswith("mock subject")
    assert len(view.log) == 2


@pytest.mark.req("B26")
def test_the_event_carries_no_output_and_the_step_keeps_no_clear_token(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    assert set(redis.hgetall(keys.STEP(new.id))) >= {"token_hash", "generation_id"}
    assert "token" not in redis.hgetall(keys.STEP(new.id))
    execute(runtime, runner, Kind.GENERATION)

    ((_, event),) = redis.xrange(keys.WAKES())
    assert event.keys() == {"event", "generation_id", "team_id", "wake_token"}
    assert event["event"] == "$workflows_llm_generation_finished"
    assert redis.exists(keys.WAITERS(event["generation_id"])) == 0


@pytest.mark.req("B27")
def test_with_no_wake_at_all_the_polls_collect_at_one_three_and_five_minutes(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    accepted_at = int(redis.hget(keys.STEP(new.id), "accepted_at") or 0)
    assert redis.zscore(keys.SCHEDULED(), new.id) - accepted_at == pytest.approx(60_000, abs=50)

    pass_time(redis, new.id, 60_000)
    execute(runtime, runner, Kind.STEP)
    accepted_at = int(redis.hget(keys.STEP(new.id), "accepted_at") or 0)
    assert redis.zscore(keys.SCHEDULED(), new.id) - accepted_at == pytest.approx(180_000, abs=50)

    execute(runtime, runner, Kind.GENERATION)
    pass_time(redis, new.id, 120_000)
    execute(runtime, runner, Kind.STEP)
    assert view_of(runtime, new.id).state == "succeeded"


@pytest.mark.req("B27", "B29")
@pytest.mark.parametrize(("on_error", "subject"), [(OnError.ABORT, "old"), (OnError.CONTINUE, "")])
def test_what_is_pending_at_five_minutes_has_run_out_of_time(
    redis: Redis, runtime: Runtime, runner: AttemptRunner, on_error: OnError, subject: str
) -> None:
    variables = {"subject": "old", "name": "Ada"}
    new = submit(runtime, on_error=on_error, variables=variables)
    execute(runtime, runner, Kind.STEP)
    for ms in (60_000, 120_000, 120_000):
        pass_time(redis, new.id, ms)
        # The generation itself would have expired by then: it stays queued in this test.
        execute(runtime, runner, Kind.STEP)

    view = view_of(runtime, new.id)
    assert (view.state, view.code) == ("failed", GenerationCode.DEADLINE_EXCEEDED)
    assert view.variables == {"subject": subject, "name": "Ada"}
    told = [line.text for line in view.log if "deadline_exceeded" in line.text]
    assert len(told) == 1


@pytest.mark.req("B27")
def test_the_twentieth_execution_is_the_last(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    redis.hset(keys.STEP(new.id), "executions", "19")
    pass_time(redis, new.id, 60_000)

    execute(runtime, runner, Kind.STEP)

    view = view_of(runtime, new.id)
    assert (view.state, view.code, view.executions) == (
        "failed",
        GenerationCode.DEADLINE_EXCEEDED,
        20,
    )


@pytest.mark.req("B26")
@pytest.mark.case("PARK-01", "PARK-03")
def test_forged_and_replayed_wakes_cost_one_early_look_at_most(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    execute(runtime, runner, Kind.STEP)
    generation_id = view_of(runtime, new.id).generation_id
    matcher = WakeMatcher(runtime.wakes, runtime.steps, runtime.tickets.issue)

    def tell(token: str) -> None:
        redis.xadd(keys.WAKES(), {"generation_id": str(generation_id), "wake_token": token})
        redis.expire(keys.WAKES(), 600)
        matcher.match_some("0-0", wait_ms=1)

    for token in ("", "nonsense", f"{new.id}.forged", f"{new.id}.", "x" * 10_000):
        tell(token)
    assert view_of(runtime, new.id).state == "parked"
    right = redis.smembers(keys.WAITERS(str(generation_id))).pop()
    for _ in range(5):
        tell(right)
        execute(runtime, runner, Kind.STEP)
    view = view_of(runtime, new.id)
    assert (view.state, view.executions) == ("parked", 2)


@pytest.mark.req("B28", "B30")
def test_a_throttled_submit_waits_for_its_turn(
    redis: Redis, make_runtime: Callable[..., Runtime]
) -> None:
    open_to(redis, "acme")
    runtime = make_runtime(extraction_model="mock-1", generations_per_minute=1)
    crew = assemble(runtime, concurrency=1)
    first, second = submit(runtime), submit(runtime, invocation_id="run-2")
    execute(runtime, crew.runner, Kind.STEP)
    later = redis.zscore(keys.SCHEDULED(), second.id)
    assert later is not None
    waits_ms = later - float(redis.hget(keys.JOB(second.id), "updated_at") or 0)
    assert 58_000 < waits_ms <= 60_000
    assert view_of(runtime, second.id).state == "queued"
    assert view_of(runtime, first.id).state == "parked"

    redis.delete(keys.SUBMITS("1"))
    redis.zadd(keys.SCHEDULED(), {second.id: 1})
    execute(runtime, crew.runner, Kind.STEP)
    assert view_of(runtime, second.id).state == "parked"
    crew.heartbeat.stop()


@pytest.mark.req("B29", "B6")
def test_the_codes_of_the_generation_are_those_of_the_step(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    refused = submit(runtime, prompt="[[mock fault=refused]] Write.", output_fields={}, rows=())
    unknown = submit(runtime, model="no-such-model")
    execute(runtime, runner, Kind.STEP)
    execute(runtime, runner, Kind.GENERATION)
    pass_time(redis, refused.id, 60_000)
    Flags(redis).disable(WORKFLOWS_LLM_ACTION, "acme")
    unavailable = submit(runtime)
    execute(runtime, runner, Kind.STEP)

    codes = [view_of(runtime, one.id).code for one in (refused, unknown, unavailable)]
    assert codes == [
        GenerationCode.MODEL_REFUSED,
        GenerationCode.INVALID_MODEL,
        GenerationCode.FEATURE_UNAVAILABLE,
    ]


@pytest.mark.req("B9", "B26")
def test_a_worker_that_dies_after_the_submit_leaves_one_generation_and_one_waiter(
    redis: Redis, runtime: Runtime, runner: AttemptRunner
) -> None:
    new = submit(runtime)
    (attempt,) = claim(runtime.queue, 1, window_ms=-1).attempts
    # As the handler does, up to the moment when the submit was answered.
    token = f"{new.id}.secret-of-this-step"
    runtime.steps.note(new.id, attempt.token, StepNote(token=token))
    client = LocalGenerationClient(runtime.intake, runtime.generations, runtime.tickets.issue)
    answer = client.submit(
        StepRequest("1", "acme", "run-1", None, new.prompt, new.model, new.output_fields, token)
    )
    assert isinstance(answer, Pending)
    redis.set(keys.SWEPT_AT(), int(redis.time()[0]) * 1000 - 15_000)
    assert maintenance.reclaim(runtime).requeued == 1

    execute(runtime, runner, Kind.STEP)

    view = view_of(runtime, new.id)
    assert (view.state, view.generation_id) == ("parked", answer.generation_id)
    assert redis.smembers(keys.WAITERS(answer.generation_id)) == {token}


@pytest.mark.req("B26", "B27")
def test_the_whole_of_it_by_processes_with_a_worker_killed_and_the_clock_restarted(
    redis: Redis, runtime: Runtime, ships: Fleet
) -> None:
    # Slots of a killed worker's calls are held for two minutes.
    slots = {"generation_slots": 100, "generation_slots_per_team": 100}
    settings = {"extraction_model": "mock-1", "generations_per_minute": 100_000, **slots}
    lease = {"heartbeat_interval_s": 1, "lease_window_s": 2, "sweep_interval_s": 1}
    clock = start_scheduler(ships, redis, **settings, **lease)
    doomed = ships.thread_worker(redis, **settings, **lease)
    ids = [submit(runtime, prompt=SLOW, invocation_id=f"run-{n}").id for n in range(10)]
    wait_until(
        lambda: any(view_of(runtime, one).state == "parked" for one in ids), 15, "some are parked"
    )
    doomed.signal_group(signal.SIGKILL)
    ships.thread_worker(redis, **settings, **lease)
    clock.signal_group(signal.SIGKILL)
    start_scheduler(ships, redis, **settings, **lease)

    # A generation whose worker was killed ends deadline_exceeded, its step with it.
    def all_over() -> bool:
        for one in ids:
            if redis.zscore(keys.SCHEDULED(), one) is not None and not is_pending(redis, one):
                redis.zadd(keys.SCHEDULED(), {one: 1}, xx=True)
        return all(view_of(runtime, one).state in ("succeeded", "failed") for one in ids)

    wait_until(all_over, 40, "every step has ended")
    codes = {view_of(runtime, one).code for one in ids}
    assert codes <= {None, GenerationCode.DEADLINE_EXCEEDED}


def is_pending(redis: Redis, step_id: str) -> bool:
    generation = redis.hget(keys.STEP(step_id), "generation_id")
    return redis.hget(keys.GENERATION(str(generation)), "status") == "pending"
