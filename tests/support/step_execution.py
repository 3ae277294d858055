"""How does a test run executions of steps in its own process, one after another?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from jobs.domain.job import Kind
from jobs.domain.outcome import Outcome
from jobs.domain.step import Answer, StepRequest
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.steps import NewStep, StepView
from jobs.wake_matcher import WakeMatcher
from jobs.worker.assembly import assemble
from jobs.worker.attempt import AttemptRunner
from jobs.worker.handlers.step import StepHandler
from tests.support.factories import claim
from tests.support.stored_steps import new_step


def execute(runtime: Runtime, runner: AttemptRunner, kind: Kind) -> Outcome | None:
    """Claim what is to be had and run what is of `kind`; the rest goes back."""
    outcome = None
    for attempt in claim(runtime.queue, 10, window_ms=90_000).attempts:
        if attempt.job.kind is kind:
            outcome = runner.run(attempt, runner.scope(attempt))
        else:
            runtime.queue.snooze(attempt.job.id, attempt.token, "not now", 0)
    return outcome


def submit(runtime: Runtime, **changes: object) -> NewStep:
    new = new_step(**changes)
    if runtime.steps.submit(new).ticket_wanted:
        runtime.tickets.issue()
    return new


def view_of(runtime: Runtime, step_id: str) -> StepView:
    view = runtime.steps.get(step_id, "1")
    assert view is not None
    return view


def pass_time(redis: Redis, step_id: str, ms: int) -> None:
    """As if so much time had passed since the step's generation was accepted."""
    redis.hincrby(keys.STEP(step_id), "accepted_at", -ms)
    due = redis.zscore(keys.SCHEDULED(), step_id)
    assert due is not None, "the step is not parked"
    redis.zadd(keys.SCHEDULED(), {step_id: due - ms})


@contextmanager
def matching(runtime: Runtime) -> Iterator[None]:
    """A matcher of wakes in this process."""
    stop = threading.Event()
    matcher = WakeMatcher(runtime.wakes, runtime.steps, runtime.tickets.issue)
    thread = threading.Thread(target=matcher.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


class Scripted:
    """A generation service that answers what it is told to."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def submit(self, _request: StepRequest) -> Answer:
        return self._next()

    def retrieve(self, _team_id: str, _generation_id: str) -> Answer:
        return self._next()

    def _next(self) -> Answer:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def run_step(runtime: Runtime, handler: StepHandler) -> Outcome | None:
    """One execution of the step that is due, written as a worker writes it."""
    crew = assemble(runtime, concurrency=1)
    runner = AttemptRunner(
        runtime.queue,
        {Kind.STEP: handler},
        crew.heartbeat,
        patience_s=5,
        jitter=lambda _spread_s: 0.0,
        issue_ticket=runtime.tickets.issue,
    )
    try:
        return execute(runtime, runner, Kind.STEP)
    finally:
        crew.heartbeat.stop()
