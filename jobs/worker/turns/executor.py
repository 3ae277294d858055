"""How is a chat turn carried out: from a message to a plan, from a plan to an answer? (C1, C2, C6)

The same for the turn that a caller waits for and for a background attempt. All of it runs in
the thread that asks for it, under that thread's AbortScope.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.domain.abort import AbortScope, current
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, Failure, is_non_replannable
from jobs.domain.formation import Agent, Formation
from jobs.domain.models import ModelRegistry, ModelSpec
from jobs.domain.planner_prompts import task_messages
from jobs.domain.retry import Jitter
from jobs.domain.turn_plan import Plan, Question, Task, single_task_plan
from jobs.providers.base import Call, Completion, Message
from jobs.providers.registry import Providers
from jobs.worker.turns.calls import CalledModel, Calls, Purpose, Watch
from jobs.worker.turns.planner import plan_in, planner_call, planner_candidates
from jobs.worker.turns.results import handed_on
from jobs.worker.turns.tries import Candidate, Tries, any_jitter


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a turn: that of its last task, by `spec`'s model in `completion`."""

    text: str
    spec: ModelSpec
    completion: Completion


class TurnExecutor:
    """Plans and runs turns of a formation; safe to share between threads.

    A call takes at most `call_budget_s` seconds. `jitter` answers some part of the seconds that
    it is given, `clock` is monotonic seconds, `new_nonce` answers hex digits that nobody can
    foresee.
    """

    def __init__(
        self,
        formation: Formation,
        models: ModelRegistry,
        providers: Providers,
        *,
        call_budget_s: float,
        jitter: Jitter = any_jitter,
        clock: Callable[[], float] = time.monotonic,
        new_nonce: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._formation = formation
        self._models = models
        self._providers = providers
        self._call_budget_s = call_budget_s
        self._jitter = jitter
        self._clock = clock
        self._new_nonce = new_nonce

    def plan(
        self,
        message: str,
        entries: Sequence[AttemptEntry],
        watch: Watch,
        calls: list[CalledModel],
    ) -> Plan | Question:
        """A plan for `message`, or what a human has to say first. A first plan of a formation
        that does not plan is one task, without a call; after failed attempts (`entries`) the
        planner is always asked.

        Adds each call to `calls`, also where it raises: WorkflowFailedError where there is no
        plan, AttemptAbortedError, and the AttemptError of a scope whose time is up.
        """
        agents = self._formation.agents
        if not entries and not self._formation.plans:
            return single_task_plan(agents, message)
        scope = _scope()
        maker = self._calls(scope, watch, calls)

        def ask(_candidate: Candidate, spec: ModelSpec) -> Plan | Question:
            call = planner_call(spec, agents, message, entries, self._new_nonce)
            return maker.make(spec, call, Purpose.PLAN, lambda answer: plan_in(answer, agents))

        candidates = planner_candidates(self._formation, self._models.default_model)
        return self._tries(scope, watch).first(
            candidates, ask, lambda: len(calls), retries_malformed=True
        )

    def run(self, plan: Plan, message: str, watch: Watch, calls: list[CalledModel]) -> Answer:
        """The answer to `message` by all tasks of `plan`, one after the other; each reads what
        the earlier ones answered, within the bounds of jobs.worker.turns.results.

        A task is tried by its agent with its model, then with its fallbacks, then by every
        other agent of the formation. Adds each call to `calls`, also where it raises: as `plan`
        does.
        """
        scope = _scope()
        calls_of_turn = self._calls(scope, watch, calls)
        work = _Work(plan, message, calls_of_turn, watch, self._new_nonce)
        tries = self._tries(scope, watch)
        for number, task in enumerate(plan.tasks, start=1):
            candidates = _candidates(task, self._formation)
            answer = tries.first(candidates, work.on(number), lambda: len(calls), plan)
        return answer

    def _calls(self, scope: AbortScope, watch: Watch, made: list[CalledModel]) -> Calls:
        return Calls(
            self._providers,
            scope,
            watch,
            made,
            call_budget_s=self._call_budget_s,
            clock=self._clock,
        )

    def _tries(self, scope: AbortScope, watch: Watch) -> Tries:
        return Tries(
            self._models,
            self._providers,
            scope,
            retry=self._formation.retry,
            patterns=self._formation.non_replannable,
            on_pause=watch.on_pause,
            jitter=self._jitter,
            clock=self._clock,
        )


class _Work:
    """The tasks of one plan as they are being done."""

    def __init__(
        self,
        plan: Plan,
        message: str,
        calls: Calls,
        watch: Watch,
        new_nonce: Callable[[], str],
    ) -> None:
        self._tasks = plan.tasks
        self._message = message
        self._calls = calls
        self._watch = watch
        self._new_nonce = new_nonce
        self._answerers: list[str] = []
        self._texts: list[str] = []
        self._told: tuple[int, str] | None = None

    def on(self, number: int) -> Callable[[Candidate, ModelSpec], Answer]:
        """Who asks a candidate to do task `number`, and keeps what it answers for later ones."""
        count = len(self._tasks)

        def ask(candidate: Candidate, spec: ModelSpec) -> Answer:
            agent = candidate.agent
            if self._told != (number, agent.id):
                self._told = (number, agent.id)
                self._watch.on_progress(number, count, agent.id)
            completion = self._calls.make(
                spec,
                self._call(agent, self._tasks[number - 1], spec),
                Purpose.TASK,
                lambda whole: whole,
                is_answer=number == count,
            )
            self._answerers.append(agent.id)
            self._texts.append(completion.text)
            return Answer(completion.text, spec, completion)

        return ask

    def _call(self, agent: Agent, task: Task, spec: ModelSpec) -> Call:
        results = tuple(zip(self._answerers, handed_on(self._texts), strict=True))
        system, user = task_messages(
            agent, task, self._message, results, len(self._tasks) == 1, self._new_nonce
        )
        messages = [Message("user", user)]
        if system:
            messages.insert(0, Message("system", system))
        return Call(spec.provider_model, tuple(messages))


def _scope() -> AbortScope:
    return current() or AbortScope(math.inf)


def _candidates(task: Task, formation: Formation) -> tuple[Candidate, ...]:
    """Who may do `task`, each pair of agent and model once."""
    agents = sorted(formation.agents, key=lambda agent: agent.id != task.agent)
    names = {agent.id: _name(agent, formation) for agent in agents}
    candidates = [
        Candidate(names[agent.id], agent, model)
        for agent in agents
        for model in (agent.model, *(agent.fallbacks if agent.id == task.agent else ()))
    ]
    return tuple(dict.fromkeys(candidates))


def _name(agent: Agent, formation: Formation) -> str:
    """What reasons call `agent`: its id, unless that alone would read as a blocker, as `author`
    does by the pattern `auth`: then none of its failures would ever be replanned."""
    as_failure = Failure(ErrorKind.UNKNOWN, f"{agent.id}: ")
    if is_non_replannable(as_failure, formation.non_replannable):
        return f"agent {formation.agents.index(agent) + 1}"
    return agent.id
