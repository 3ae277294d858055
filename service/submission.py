"""What did a caller ask for, was it asked before, and what is it as a job?"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from jobs import logs
from jobs.domain.canonical_json import canonical_json
from jobs.domain.errors import JobMissingError, StoreUnavailableError
from jobs.domain.job import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT, NewJob
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.tickets import Tickets
from service.context import current_request_id
from service.errors import ModelUnavailableError

PRIORITY_WAITED_FOR: Final = 5
SHADOW_MARK: Final = "shadow"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromptSubmission:
    """A checked body of `POST /v1/prompt`; `model` and `priority` are None where the caller
    named none. `scheduled_for_ms` is None for now, `depends_on` a job to wait for."""

    prompt: str
    priority: int | None = None
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    model: str | None = None
    execution_options: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    scheduled_for_ms: int | None = None
    depends_on: str | None = None

    def payload_hash(self) -> str:
        """Hex SHA-256 of the canonical JSON: the same however the body was spelled (X4), and
        whatever the defaults of the model and of a synchronous caller's priority are."""
        payload = asdict(self)
        if self.priority is None:
            payload["priority"] = PRIORITY_DEFAULT
        return hashlib.sha256(canonical_json(payload)).hexdigest()


@dataclass(frozen=True, slots=True)
class Manner:
    """How a submit is made: `is_urgent` where somebody waits for the result (decision 13),
    `is_shadow` where its job is to be told from others (see Mode)."""

    is_urgent: bool = False
    is_shadow: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the caller gets to know of the job; `replayed` where an earlier submit made it."""

    job_id: str
    prompt_id: str
    state: State
    replayed: bool


def accept(
    runtime: Runtime,
    identity: Identity,
    submission: PromptSubmission,
    key: str | None,
    manner: Manner = Manner(),
) -> Accepted:
    """Store the prompt and its job in one round trip, then issue a ticket if one is wanted (A1).

    `key` is the client's Idempotency-Key. Raises ModelUnknownError, ModelUnavailableError,
    RelatedEntityMissingError, IdempotencyKeyReusedError, StoreUnavailableError; each stores
    nothing.
    """
    model = submission.model or runtime.models.default_model
    target = runtime.models.target_of(model)
    reason = runtime.providers.unavailable_reason(model)
    if reason is not None:
        raise ModelUnavailableError(reason)
    submitted = runtime.queue.submit(_new_job(identity, submission, target, key, manner))
    logs.bind(job_id=submitted.job_id, prompt_id=submitted.prompt_id)
    if submitted.replayed:
        state = _state_of(runtime, submitted.job_id, identity.org_id)
        return Accepted(submitted.job_id, submitted.prompt_id, state, replayed=True)
    if submitted.ticket_wanted:
        issue_ticket(runtime, submitted.job_id)
    return Accepted(submitted.job_id, submitted.prompt_id, State.QUEUED, replayed=False)


def _new_job(
    identity: Identity, submission: PromptSubmission, target: str, key: str | None, manner: Manner
) -> NewJob:
    priority = PRIORITY_WAITED_FOR if manner.is_urgent else PRIORITY_DEFAULT
    options = dict(submission.execution_options)
    if manner.is_shadow:
        options["mode"] = SHADOW_MARK
    return NewJob(
        id=str(uuid.uuid4()),
        prompt_id=str(uuid.uuid4()),
        org_id=identity.org_id,
        created_by=identity.user_id,
        prompt_text=submission.prompt,
        target=target,
        priority=priority if submission.priority is None else submission.priority,
        max_attempts=submission.max_attempts,
        execution_options=options,
        parent_id=submission.parent_id,
        correlation_id=submission.correlation_id,
        causation_id=submission.causation_id,
        metadata=submission.metadata,
        scheduled_for_ms=submission.scheduled_for_ms,
        depends_on=submission.depends_on,
        idempotency_key=key,
        payload_hash=submission.payload_hash() if key else "",
    )


def _state_of(runtime: Runtime, job_id: str, org_id: str) -> State:
    view = runtime.records.job(job_id, org_id)
    if view is None:
        raise JobMissingError(job_id)
    return view.job.state


def issue_ticket(runtime: Runtime, job_id: str) -> None:
    """The job is stored: without a ticket it only starts at the next poll of an idle worker."""
    _issue(runtime.tickets, f"job {job_id}")


def issue_delivery_ticket(runtime: Runtime) -> None:
    """The delivery is stored: without a ticket it is posted at the next tick of the outbox."""
    _issue(runtime.delivery_tickets, "a delivery")


def _issue(tickets: Tickets, what: str) -> None:
    try:
        tickets.issue()
    except (StoreUnavailableError, RedisError) as error:
        name = type(error).__name__
        log.warning("request %s: no ticket for %s: %s", current_request_id(), what, name)
