"""How does a team run a step in a test, and who works for it meanwhile?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from werkzeug.test import TestResponse

from jobs.runtime import Runtime
from jobs.wake_matcher import WakeMatcher
from jobs.worker.assembly import assemble
from tests.integration.service.team_caller import TeamCaller
from tests.support.factories import claim
from tests.support.waiting import wait_until

FIELDS = {"subject": "A subject line."}
INPUTS = {"prompt": "Write to {{ person.name }}.", "output_fields": FIELDS, "model": "mock-1"}
GLOBALS = {"person": {"name": "Ada"}, "variables": {"subject": "old", "body": "", "n": 7}}
STEP = {"invocation_id": "run-1", "inputs": INPUTS, "globals": GLOBALS}


@dataclass(frozen=True)
class StepCaller:
    """A client that sends the token of one team, on the routes of its steps."""

    team: TeamCaller

    @property
    def address(self) -> str:
        return f"/api/projects/{self.team.team_id}/workflow_steps/"

    def submit(self, key: str | None = None, **changes: Any) -> TestResponse:
        """An ordinary step with `changes`; a field that is changed to ... is left out."""
        return self.post(step_with(**changes), key)

    def post(self, payload: object, key: str | None = None) -> TestResponse:
        headers = {**self.team.headers, **({"Idempotency-Key": key} if key else {})}
        return self.team.http.post(self.address, json=payload, headers=headers)

    def get(self, step_id: str) -> TestResponse:
        return self.team.http.get(f"{self.address}{step_id}/", headers=self.team.headers)

    def view(self, step_id: str) -> dict[str, Any]:
        answer = self.get(step_id)
        assert (answer.status_code, answer.mimetype) == (200, "application/json")
        assert answer.json is not None
        view: dict[str, Any] = answer.json
        return view

    def ended(self, step_id: str) -> dict[str, Any]:
        """The step once it has ended."""
        wait_until(lambda: self.view(step_id)["run"] is not None, 20, "the step has ended")
        return self.view(step_id)


def step_with(**changes: Any) -> dict[str, Any]:
    """The body of an ordinary step; a field that is changed to ... is left out."""
    return {name: value for name, value in {**STEP, **changes}.items() if value is not ...}


def inputs(**changes: Any) -> dict[str, Any]:
    """The ordinary inputs with `changes`."""
    return {name: value for name, value in {**INPUTS, **changes}.items() if value is not ...}


@contextmanager
def worker_and_matcher(runtime: Runtime) -> Iterator[None]:
    """Runs whatever is to be had, and wakes whom it concerns, in threads of this process."""
    stop = threading.Event()
    crew = assemble(runtime, concurrency=1)
    matcher = WakeMatcher(runtime.wakes, runtime.steps, runtime.tickets.issue)

    def work() -> None:
        while not stop.is_set():
            for attempt in claim(runtime.queue, 1, window_ms=90_000).attempts:
                crew.runner.run(attempt, crew.runner.scope(attempt))
            stop.wait(0.01)

    threads = [
        threading.Thread(target=work, daemon=True),
        threading.Thread(target=matcher.run, args=(stop,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
        crew.heartbeat.stop()
