"""How is a working process put together? Heartbeat, runner and pool from a Runtime."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from jobs import logs
from jobs.domain.job import PRIORITY_MAX, Kind
from jobs.generation_client import GenerationClient, HttpGenerationClient
from jobs.runtime import Runtime
from jobs.usage_reports import log_usage
from jobs.worker.attempt import AttemptRunner, Handler
from jobs.worker.handlers.generation import GenerationHandler
from jobs.worker.handlers.prompt import PromptHandler
from jobs.worker.handlers.step import StepHandler
from jobs.worker.handlers.turn import TurnHandler
from jobs.worker.heartbeat import Heartbeat
from jobs.worker.local_generations import LocalGenerationClient
from jobs.worker.pool import WorkPool
from jobs.worker.turns.executor import TurnExecutor
from jobs.worker.turns.run import Tools

HORSE_LEAVES_AFTER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Crew:
    """What works in this process."""

    pool: WorkPool
    runner: AttemptRunner
    heartbeat: Heartbeat


def assemble(
    runtime: Runtime,
    *,
    concurrency: int,
    worker_name: str = "",
    ceiling: int = PRIORITY_MAX,
    is_horse: bool = False,
) -> Crew:
    """Build and start what works in this process; call it after any fork.

    `is_horse` is for the child of a forking `rq worker`: it stops claiming once its parent is
    gone, and leaves 10 s after it lost the lease of what it still runs.
    """
    settings = runtime.settings
    logs.configure_if_nobody_did(settings)
    heartbeat = Heartbeat(
        runtime.queue,
        interval_s=settings.heartbeat_interval_s,
        window_s=settings.lease_window_s,
        on_lost=(lambda job_id: _leave_later(heartbeat, job_id)) if is_horse else None,
    )
    runner = AttemptRunner(
        runtime.queue,
        handlers_of(runtime, is_stopping=lambda: pool.is_stopping),
        heartbeat,
        patience_s=settings.stuck_after_s,
        jitter=_jitter,
        issue_ticket=runtime.tickets.issue,
        issue_delivery_ticket=runtime.delivery_tickets.issue,
        report=log_usage,
        is_captured=bool(settings.capture_url),
    )
    parent_pid = os.getppid()
    pool = WorkPool(
        runtime.queue,
        runner,
        concurrency=concurrency,
        window_s=settings.lease_window_s,
        claiming_s=settings.ticket_claiming_s,
        sweep_interval_s=settings.sweep_interval_s,
        issue_ticket=runtime.tickets.issue,
        worker_name=worker_name,
        ceiling=ceiling,
        urgent_slots=settings.urgent_slots,
        is_orphaned=(lambda: os.getppid() != parent_pid) if is_horse else (lambda: False),
    )
    heartbeat.start()
    return Crew(pool, runner, heartbeat)


def handlers_of(
    runtime: Runtime, is_stopping: Callable[[], bool] = lambda: False
) -> Mapping[Kind, Handler]:
    """Who does which kind of job. `is_stopping` answers whether the process takes no more work."""
    settings = runtime.settings
    turns = TurnHandler(_tools_of(runtime, is_stopping))
    return {
        Kind.PROMPT: PromptHandler(
            runtime.models, runtime.providers, budget_s=settings.call_budget_s
        ),
        Kind.GENERATION: GenerationHandler(
            runtime.models, runtime.providers, settings.extraction_model
        ),
        Kind.STEP: StepHandler(runtime.steps, _client_of(runtime)),
        Kind.CHAT: turns,
        Kind.ESCALATION: turns,
    }


def _tools_of(runtime: Runtime, is_stopping: Callable[[], bool]) -> Tools:
    executor = TurnExecutor(
        runtime.formation,
        runtime.models,
        runtime.providers,
        call_budget_s=runtime.settings.call_budget_s,
    )
    return Tools(
        turns=runtime.turns,
        tokens=runtime.tokens,
        formation=runtime.formation,
        executor=executor,
        jitter=_jitter,
        is_stopping=is_stopping,
    )


def _client_of(runtime: Runtime) -> GenerationClient:
    """Where steps get their generations: here, unless the settings name another service."""
    settings = runtime.settings
    if settings.generation_url:
        return HttpGenerationClient(settings.generation_url, settings.generation_token)
    return LocalGenerationClient(runtime.intake, runtime.generations, runtime.tickets.issue)


def _jitter(spread_s: float) -> float:
    return random.uniform(0.0, spread_s)


def _leave_later(heartbeat: Heartbeat, job_id: str) -> None:
    def leave() -> None:
        if heartbeat.holds(job_id):
            os._exit(1)

    timer = threading.Timer(HORSE_LEAVES_AFTER_S, leave)
    timer.daemon = True
    timer.start()
