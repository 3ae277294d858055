"""What is a formation: who answers chat turns, what is tried, and how outcomes get out? (C1-C10)

The values of a formation file as the product works with them; jobs.formation_file reads it.
Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DEFAULT_ID: Final = "formation"
NON_REPLANNABLE: Final = (
    *("auth", "unauthorized", "forbidden", "permission", "credential"),
    *("configuration error", "invalid api key", "data corruption"),
)
"""What a failure says that a different plan would meet as well (C3)."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One who does tasks: by `model`, and by `fallbacks` in their order where that fails. Models
    are ids of the models file; `model` None is its default."""

    id: str
    model: str | None = None
    system: str | None = None
    fallbacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskRetry:
    """How often a task is tried with one agent and one model, and the pauses between: the first,
    each one `backoff_factor` times the one before, at most `max_delay_s`
    (`overlord.workflow.retry`, C1)."""

    max_attempts: int = 2
    initial_delay_s: float = 0.5
    max_delay_s: float = 10.0
    backoff_factor: float = 2.0


@dataclass(frozen=True, slots=True)
class RetryAsync:
    """`overlord.response.retry_async` (C4). `max_attempts` counts background attempts."""

    enabled: bool = True
    max_attempts: int = 2
    attempt_idle_timeout_s: float = 900.0
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Formation:
    """All of a formation. `id` is the organisation whose jobs its turns are; `planner_model` None
    is the models file's default; `plans` says whether a turn's first plan is asked of the planner
    (a background attempt's always is). `channel_url` is where notifications go (C10)."""

    id: str
    agents: tuple[Agent, ...]
    plans: bool = False
    planner_model: str | None = None
    retry: TaskRetry = field(default_factory=TaskRetry)
    non_replannable: tuple[str, ...] = NON_REPLANNABLE
    retry_async: RetryAsync = field(default_factory=RetryAsync)
    webhook_url: str | None = None
    channel_url: str | None = None
