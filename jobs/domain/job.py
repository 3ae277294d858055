"""What is a job: the request to make one, the stored record, and a claimed attempt?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.states import TERMINAL, State

SCHEMA_VERSION: Final = 3
"""The newest record that is understood here: 2 brought generations and steps, 3 chat turns, which
a worker of a release before would take and could not end."""

SCHEMA_MIN: Final = 1
"""The oldest record that is still run; one older fails as `migration` (A33)."""

PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 100
PRIORITY_DEFAULT: Final = 50
MAX_ATTEMPTS_DEFAULT: Final = 3
MAX_ATTEMPTS_LIMIT: Final = 10


class Kind(StrEnum):
    """What sort of work a job is; each has its handler in jobs.worker."""

    PROMPT = "prompt"
    GENERATION = "generation"
    STEP = "step"
    CHAT = "chat"
    ESCALATION = "escalation"

    @property
    def schema_version(self) -> int:
        """The release that the record of such a job needs, at least (A33)."""
        return _SCHEMA_VERSIONS[self]


_SCHEMA_VERSIONS: Final = {
    Kind.PROMPT: 1,
    Kind.GENERATION: 2,
    Kind.STEP: 2,
    Kind.CHAT: 3,
    Kind.ESCALATION: 3,
}


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as submitted, with its prompt (A1, A2). Ids are made by the caller, so that a
    submit that is sent twice is one job; stamps are made by Redis.

    `target` is `provider:model`, at most 64 bytes. `idempotency_key` is the client's own
    (X4) and `payload_hash` the hex SHA-256 of the canonical payload that it stands for. The job
    runs at `scheduled_for_ms` of the Redis clock (A29) and after the job `depends_on` succeeded
    (A30). `team_id` and `step_inputs` are those of a step (B26); `request` is what is kept of a
    chat turn, whose client is its team. `target_url` is where its outcome is posted (C10), or the
    end of a step.
    """

    id: str
    prompt_id: str
    org_id: str
    created_by: str
    prompt_text: str
    target: str
    kind: Kind = Kind.PROMPT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    execution_options: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    scheduled_for_ms: int | None = None
    depends_on: str | None = None
    idempotency_key: str | None = None
    payload_hash: str = ""
    team_id: str | None = None
    step_inputs: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    target_url: str | None = None


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """A generation as submitted (B3), with its prompt. The id is made by the caller, so that a
    submit that is sent twice is one job; it is the handle and the id of the job.

    `target` is `provider:model` of pass 1, `second_target` that of pass 2, None where no fields
    are asked for. `options` are kept with the job: invocation_id, hog_flow_id, output_fields.
    `digest` is hex and stands for team, invocation and payload (B9). `reserve_usd_micros` is the
    most that it may cost. `wake_token` goes to `wake_url`, where there is one, once it has ended
    (B26). `refusal` is the code with which it is refused once the gates before it are passed (B5),
    None where it may run.
    """

    id: str
    prompt_id: str
    team_id: str
    org_id: str
    prompt_text: str
    target: str
    second_target: str | None
    options: Mapping[str, Any]
    digest: str
    reserve_usd_micros: int
    wake_token: str | None = None
    wake_url: str | None = None
    refusal: GenerationCode | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """The stored record (A2): every instant in milliseconds of the Redis clock, None = unset.

    `root_id` is the first job of the chain of replacements that this one is in (X16); `outcome`
    is the state that a superseded job had ended in.
    """

    id: str
    prompt_id: str
    kind: Kind
    state: State
    priority: int
    attempt: int
    max_attempts: int
    execution_options: Mapping[str, Any]
    org_id: str
    created_by: str
    target: str
    schema_version: int
    seq: int
    created_at_ms: int
    updated_at_ms: int
    worker_claim: str | None = None
    claimed_at_ms: int | None = None
    started_at_ms: int | None = None
    running_heartbeat_at_ms: int | None = None
    finished_at_ms: int | None = None
    run_at_ms: int | None = None
    scheduled_for_ms: int | None = None
    depends_on: str | None = None
    response_id: str | None = None
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    root_id: str = ""
    outcome: State | None = None
    team_id: str | None = None
    reserved_usd_micros: int | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class Transition:
    """One move in a job's history; `source` is None for the submit that made it."""

    seq: int
    at_ms: int
    verb: str
    source: State | None
    target: State
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed job and all that its handler needs: the lease `token` goes with every write."""

    job: Job
    token: str
    prompt_text: str
