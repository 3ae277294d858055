"""What does a parked step cost, and how soon does its wake bring the result? (B26, B27)"""

from __future__ import annotations

from redis import Redis

from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.steps import StepNote
from service.stack.redis_server import RedisServer
from tests.bench.figures import Figure, at_least, at_most, percentile
from tests.bench.fleet import wait_registered
from tests.bench.stage import Stage, wait_for
from tests.support.factories import claim
from tests.support.stored_generations import open_to
from tests.support.stored_steps import new_step

BYTES_MOST = 2_000
P99_MS = 500
STEPS = 200
CAP_USD_MICROS = 10**9
PROCESSES = 2
EVERYTHING = {
    "GENQUEUE_EXTRACTION_MODEL": "mock-1",
    "GENQUEUE_GENERATIONS_PER_MINUTE": "100000",
}


def run(stage: Stage) -> list[Figure]:
    """Memory of steps alone; then whole steps with wakes, and without any."""
    parked = stage.amount(10_000, 1_000)
    stage.say(f"{parked} parked steps")
    each = _bytes_each(stage, parked)
    steps = stage.amount(STEPS, 40)
    stage.say(f"{steps} steps that are woken")
    woken_ms = _woken(stage, steps)
    stage.say(f"{steps} steps of which no wake arrives")
    ended = _unwoken(stage, steps)
    return [
        at_most(
            "Redis a parked step",
            each,
            "B",
            BYTES_MOST,
            f"{parked} steps, beyond prompt and variables",
        ),
        at_most(
            "wake to collected result, p99",
            percentile(woken_ms, 99),
            "ms",
            P99_MS,
            f"{steps} steps, from the end of the generation to that of the step",
        ),
        at_least("steps that end without any wake", ended, "steps", steps, f"of {steps}"),
    ]


def _runtime(server: RedisServer) -> Runtime:
    settings = Settings(
        redis_url=server.url, extraction_model="mock-1", generations_per_minute=100_000
    )
    runtime = build(settings)
    open_to(runtime.redis, "acme", cap_usd_micros=CAP_USD_MICROS)
    return runtime


def _bytes_each(stage: Stage, count: int) -> float:
    runtime = _runtime(stage.redis())
    redis, steps = runtime.redis, runtime.steps
    prompt, variables = "Write to Ada. " * 10, {"subject": "", "name": "Ada"}
    before = int(redis.info("memory")["used_memory"])
    for number in range(count):
        steps.submit(new_step(invocation_id=f"run-{number}", prompt=prompt, variables=variables))
        (attempt,) = claim(runtime.queue, 1).attempts
        step_id = attempt.job.id
        steps.note(step_id, attempt.token, StepNote(token=f"{step_id}.{'x' * 32}"))
        note = StepNote(generation_id=step_id, accepted_at_ms=10**12, forget_token=True)
        steps.note(step_id, attempt.token, note)
        runtime.queue.snooze(step_id, attempt.token, "parked", 60_000_000)
    # What every deployment has once, and what ends within minutes, is not a step's.
    redis.delete(keys.EVENTS("acme"), *redis.scan_iter(match=keys.CLAIM("*"), count=10_000))
    after = int(redis.info("memory")["used_memory"])
    return (after - before) / count - len(prompt) - len(str(variables))


def _start(stage: Stage, server: RedisServer, *, with_clock: bool) -> Runtime:
    runtime = _runtime(server)
    environment = {"REDIS_URL": server.url, **EVERYTHING}
    for _ in range(PROCESSES):
        stage.python("worker", ("-m", "service.cli", "worker"), environment)
    wait_registered(runtime.redis, PROCESSES)
    if with_clock:  # whose worker of ticks registers as well
        stage.python("scheduler", ("-m", "scheduler"), environment)
    return runtime


def _submit(runtime: Runtime, count: int) -> list[str]:
    ids = []
    for number in range(count):
        new = new_step(invocation_id=f"run-{number}", prompt="[[mock delay=0.3]] Write.")
        if runtime.steps.submit(new).ticket_wanted:
            runtime.tickets.issue()
        ids.append(new.id)
    return ids


def _is_over(redis: Redis, ids: list[str]) -> bool:
    pipe = redis.pipeline(transaction=False)
    for step_id in ids:
        pipe.hget(keys.JOB(step_id), "state")
    return set(pipe.execute()) <= {"succeeded", "failed"}


def _woken(stage: Stage, count: int) -> list[float]:
    """Milliseconds from the end of each generation to that of its step."""
    runtime = _start(stage, stage.redis(), with_clock=True)
    redis = runtime.redis
    wait_for(lambda: redis.exists(keys.TICKS()), 20, "the clock")
    ids = _submit(runtime, count)
    wait_for(lambda: _is_over(redis, ids), 60, "all steps to end")
    took = []
    for step_id in ids:
        generation = redis.hget(keys.STEP(step_id), "generation_id") or ""
        ended = [redis.hget(keys.JOB(one), "finished_at") or 0 for one in (generation, step_id)]
        took.append(float(ended[1]) - float(ended[0]))
    return took


def _unwoken(stage: Stage, count: int) -> int:
    """How many steps succeed of which every wake is lost, the polls' minutes cut short."""
    runtime = _start(stage, stage.redis(), with_clock=False)
    redis = runtime.redis
    ids = _submit(runtime, count)

    def poll_now() -> bool:
        redis.delete(keys.WAKES())
        parked = dict.fromkeys(set(redis.zrange(keys.SCHEDULED(), 0, -1)) & set(ids), 1)
        if parked:
            redis.zadd(keys.SCHEDULED(), parked, xx=True)
            if runtime.queue.promote().ticket_wanted:
                runtime.tickets.issue()
        return _is_over(redis, ids)

    wait_for(poll_now, 90, "all steps to end", pause_s=2)
    return sum(redis.hget(keys.JOB(step_id), "state") == "succeeded" for step_id in ids)
