"""How does a test let a chat turn fail and follow its chain, with a scripted provider?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.domain.abort import AbortScope
from jobs.domain.escalation import AttemptEntry, Delivery
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.turns import NewTurn, RequestView
from jobs.worker.assembly import assemble
from jobs.worker.attempt import SHUTDOWN
from tests.support.factories import claim, new_id
from tests.support.models_file import models_text
from tests.support.openai_server import OpenAIServer, Reply, answer, completion
from tests.support.turn_execution import plan_text
from tests.support.waiting import wait_until

CLIENT = "c" * 16
USER = "ada"
MESSAGE = "Pull the Q3 numbers and chart them"
WAREHOUSE = "Read Q3 revenue from the warehouse and build a chart of it"
ARCHIVE = "Look the old figures up in last year's archive, then draw"


def formation_text(
    *,
    retry_async: Mapping[str, Any] | None = None,
    workflow: Mapping[str, Any] | None = None,
    agents: int = 1,
    **sections: Any,
) -> str:
    """A formation file whose turns lose no time: agents `writer`, `second`, … on their models."""
    names = ("writer", "second")[:agents]
    content: dict[str, Any] = {
        "formation": {"id": "acme"},
        "agents": [{"id": name, "model": name} for name in names],
        "overlord": {
            "model": "planner",
            "workflow": {"retry": {"max_attempts": 1}, **(workflow or {})},
            "response": {"retry_async": dict(retry_async or {})},
        },
        **sections,
    }
    return yaml.safe_dump(content)


def is_planning(body: Any) -> bool:
    """Whether a call is the planner's."""
    return body["model"] == "planner"


def is_task(body: Any) -> bool:
    """Whether a call does a task."""
    return body["model"] != "planner"


def says(text: str) -> Reply:
    """A model answers with `text`."""
    return answer(completion(text))


def plan(instruction: str, agent: str = "writer", **changes: Any) -> Reply:
    """The planner answers with one task."""
    return says(plan_text((agent, instruction), **changes))


@dataclass(frozen=True)
class Stage:
    """A runtime whose models are a scripted server's."""

    runtime: Runtime
    server: OpenAIServer

    def submit(self, message: str = MESSAGE, **changes: Any) -> str:
        """Store a turn; answers the id of its request's first job."""
        new = new_turn(message=message, **changes)
        self.runtime.turns.submit(new)
        return new.id

    def read(self, job_id: str) -> RequestView:
        view = self.runtime.turns.read(job_id)
        assert view is not None
        return view

    def ended(self, job_id: str, within_s: float = 20) -> RequestView:
        """The request, once it has ended; work must be under way."""
        wait_until(lambda: self.read(job_id).has_ended, within_s, "the request has ended")
        return self.read(job_id)

    def outcome(self, message: str = MESSAGE, **changes: Any) -> RequestView:
        """How a turn ended that is worked on until then."""
        with self.at_work():
            return self.ended(self.submit(message, **changes))

    @contextmanager
    def at_work(self, slots: int = 2) -> Iterator[None]:
        """Runs whatever is to be had, in threads of this process; at the end what still runs goes
        back to the queue."""
        stop = threading.Event()
        crew = assemble(self.runtime, concurrency=slots)
        scopes: list[AbortScope] = []

        def work() -> None:
            while not stop.is_set():
                for attempt in claim(self.runtime.queue, 1, window_ms=90_000).attempts:
                    scope = crew.runner.scope(attempt)
                    scopes.append(scope)
                    crew.runner.run(attempt, scope)
                stop.wait(0.01)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(slots)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for scope in scopes:
                scope.abort(SHUTDOWN)
            for thread in threads:
                thread.join(5)
            crew.heartbeat.stop()

    def events(self) -> list[tuple[str, int, str]]:
        """What the stream says of chains: type, attempt, state."""
        rows = self.runtime.redis.xrange(keys.EVENTS("acme"))
        return [
            (event["type"], int(event["attempt"]), event["state"])
            for _, event in rows
            if "type" in event
        ]

    def due_now(self) -> None:
        """What waits for a time runs now."""
        for job_id in self.runtime.redis.zrange(keys.SCHEDULED(), 0, -1):
            self.runtime.redis.zadd(keys.SCHEDULED(), {job_id: 0})


def new_turn(**changes: Any) -> NewTurn:
    """A turn of user ada, whose outcome is polled for."""
    values: dict[str, Any] = {
        "id": new_id(),
        "prompt_id": new_id(),
        "client_id": CLIENT,
        "user_id": USER,
        "org_id": "acme",
        "message": MESSAGE,
        "delivery": Delivery.POLLING,
    }
    return NewTurn(**{**values, **changes})


def make_stage(
    make_runtime: Callable[..., Runtime], server: OpenAIServer, folder: Path, **formation: Any
) -> Stage:
    """A stage with the formation of `formation_text`."""
    models, file = folder / "models.toml", folder / "formation.yaml"
    models.write_text(models_text(server.base_url, "writer", "second", "planner"))
    file.write_text(formation_text(**formation))
    return Stage(make_runtime(models_file=models, formation_file=file), server)


def reasons(entries: tuple[AttemptEntry, ...]) -> list[str]:
    """Why each attempt failed."""
    return [entry.failure.reason for entry in entries]
