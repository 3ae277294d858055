"""What does the execution of a turn look like in a test: its formation, its scope, who watches?"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jobs.domain.abort import AbortScope
from jobs.domain.entities import Usage
from jobs.domain.escalation import AttemptEntry, Failure
from jobs.domain.formation import Agent, Formation, TaskRetry
from jobs.domain.models import ModelRegistry
from jobs.domain.turn_plan import Plan, Task
from jobs.providers.base import Call, Completion, Provider
from jobs.providers.registry import Providers, build_providers
from jobs.worker.turns.calls import CalledModel
from jobs.worker.turns.executor import TurnExecutor
from tests.support.openai_server import OpenAIServer, Reply, answer, completion

PRICES = {"input_usd_micros_per_mtok": 1_000_000, "output_usd_micros_per_mtok": 2_000_000}
NAMES = ("default", "first", "backup", "second", "third", "planner")
"""Models on the scripted server; `keyed` is one whose key nobody set."""

QUICK = TaskRetry(max_attempts=2, initial_delay_s=0.001, max_delay_s=0.01, backoff_factor=2.0)

MESSAGE = "Pull the Q3 numbers and chart them"
PLAN = Plan((Task("one", MESSAGE),))
USAGE = Usage(7, 3)


def least(_spread_s: float) -> float:
    """A jitter that adds nothing."""
    return 0.0


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class NotedScope(AbortScope):
    """A scope whose waits are noted and take no time but that of its clock."""

    def __init__(self, clock: Clock, budget_s: float = math.inf) -> None:
        super().__init__(budget_s, clock)
        self.waits_s: list[float] = []
        self._told_clock = clock

    def wait(self, for_s: float) -> None:
        self.waits_s.append(round(for_s, 6))
        self._told_clock.now_s += for_s
        self.check()


class Watcher:
    """Notes what it is told; `then` is called with each note."""

    def __init__(self, then: Callable[[tuple[Any, ...]], None] = lambda _note: None) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.activity = 0
        self._then = then

    def on_activity(self) -> None:
        self.activity += 1
        self._then(("activity",))

    def on_pause(self, for_s: float) -> None:
        """Nothing that these tests note: the scope has its waits."""

    def on_progress(self, task_number: int, count: int, agent: str) -> None:
        self._note("progress", task_number, count, agent)

    def on_text(self, piece: str) -> None:
        self._note("text", piece)

    def on_restart(self) -> None:
        self._note("restart")

    def _note(self, *note: Any) -> None:
        self.notes.append(note)
        self._then(note)

    @property
    def words(self) -> list[str]:
        """The notes' first words, runs of text as one."""
        words = [note[0] for note in self.notes]
        return [
            word
            for position, word in enumerate(words)
            if word != "text" or position == 0 or words[position - 1] != "text"
        ]

    @property
    def text(self) -> str:
        """What a reader has in the end."""
        text = ""
        for note in self.notes:
            if note[0] == "restart":
                text = ""
            elif note[0] == "text":
                text += note[1]
        return text


def models_of(base_url: str) -> ModelRegistry:
    """The models `NAMES` at `base_url`, `keyed` there as well, and `mock-1` of the mock."""
    local = {"type": "openai", "base_url": base_url}
    supports = {"strict_schema": True}
    return ModelRegistry.parse(
        {
            "default_model": "default",
            "providers": {
                "local": local,
                "keyed": {**local, "api_key_env": "SOME_API_KEY"},
                "mock": {"type": "mock"},
            },
            "models": [
                *({"id": n, "provider": "local", "supports": supports, **PRICES} for n in NAMES),
                {"id": "keyed", "provider": "keyed"},
                {"id": "mock-1", "provider": "mock"},
            ],
        }
    )


def formation_of(*agents: Agent, **changes: Any) -> Formation:
    """A formation of `agents` (one on `first` with `backup`, two on `second`), quick to retry."""
    default = (Agent("one", "first", fallbacks=("backup",)), Agent("two", "second"))
    return Formation("acme", agents or default, **{"retry": QUICK, **changes})


class Scripted(Providers):
    """Providers of which every one does what `complete` says of the call; it may call `say`."""

    def __init__(
        self,
        models: ModelRegistry,
        complete: Callable[[Call, Callable[[str], None]], str],
    ) -> None:
        super().__init__(models, {})
        self._complete = complete
        self.calls: list[Call] = []

    def get(self, name: str) -> Provider:
        return ScriptedProvider(name, self)

    def complete(self, call: Call, on_text: Callable[[str], None] | None) -> Completion:
        self.calls.append(call)
        assert on_text is not None, "each call of a turn is streamed, so that it shows activity"
        text = self._complete(call, on_text)
        return Completion(text, call.model, f"req-{len(self.calls)}", "stop", USAGE)


class ScriptedProvider:
    """One of them."""

    def __init__(self, name: str, all_of_them: Scripted) -> None:
        self.name = name
        self._all = all_of_them

    def complete(self, call: Call, on_text: Callable[[str], None] | None = None) -> Completion:
        return self._all.complete(call, on_text)


def scripted(
    complete: Callable[[Call, Callable[[str], None]], str],
    formation: Formation | None = None,
    **options: Any,
) -> tuple[TurnExecutor, Scripted]:
    """An executor over providers that do what `complete` says."""
    models = models_of("http://127.0.0.1:9/v1")
    providers = Scripted(models, complete)
    settings = {"call_budget_s": 5.0, "jitter": least, **options}
    return TurnExecutor(formation or formation_of(), models, providers, **settings), providers


def executor_at(base_url: str, formation: Formation | None = None, **options: Any) -> TurnExecutor:
    """An executor over the real client of a server at `base_url`, and the mock."""
    models = models_of(base_url)
    settings = {"call_budget_s": 5.0, "jitter": least, **options}
    return TurnExecutor(
        formation or formation_of(), models, build_providers(models, {}), **settings
    )


def plan_text(*tasks: tuple[str, str], **changes: Any) -> str:
    """What a planner answers: `tasks` are pairs of agent and instruction."""
    listed = [{"agent": agent, "instruction": words} for agent, words in tasks]
    return json.dumps({"awaiting": "nothing", "question": "", "tasks": listed, **changes})


def spoken(*pieces: str, **options: Any) -> Reply:
    """A whole answer that is streamed in `pieces`."""
    return answer(completion("".join(pieces)), pieces=pieces, **options)


def entry(failure: Failure, plan: Plan | None = PLAN) -> AttemptEntry:
    """The record of a first attempt."""
    return AttemptEntry(1, plan, failure)


def retrying(formation: Formation, **changes: Any) -> Formation:
    """`formation` with other figures of its retries."""
    return replace(formation, retry=replace(formation.retry, **changes))


def called(calls: Sequence[CalledModel]) -> list[tuple[str, str]]:
    """Of each call the model and what went wrong."""
    return [(call.spec.id, call.error) for call in calls]


def run(
    executor: TurnExecutor, plan: Plan = PLAN, watch: Watcher | None = None
) -> tuple[str, list[CalledModel]]:
    """The text of a turn, and the calls that it took."""
    calls: list[CalledModel] = []
    return executor.run(plan, MESSAGE, watch or Watcher(), calls).text, calls


def asked(server: OpenAIServer) -> list[str]:
    """The models that were asked for, in their order."""
    return [request.json["model"] for request in server.requests]


def last_message(server: OpenAIServer, number: int) -> str:
    """The last message of a request."""
    text: str = server.requests[number].json["messages"][-1]["content"]
    return text
