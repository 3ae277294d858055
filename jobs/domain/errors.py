"""What can go wrong: the kinds of failure of an attempt, and the errors that the code raises."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why an attempt failed (A9). Every failure has exactly one kind."""

    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    PROVIDER_5XX = "provider_5xx"
    PROVIDER_4XX = "provider_4xx"
    PARSE = "parse"
    AUTH = "auth"
    WORKER_CRASH = "worker_crash"
    STUCK = "stuck"
    UNKNOWN = "unknown"
    MIGRATION = "migration"
    BLOCKED = "blocked"

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt may help (A9)."""
        return self in RETRYABLE


RETRYABLE = frozenset(
    {
        ErrorKind.TIMEOUT,
        ErrorKind.RATE_LIMIT,
        ErrorKind.PROVIDER_5XX,
        ErrorKind.WORKER_CRASH,
        ErrorKind.UNKNOWN,
    }
)


class GenqueueError(Exception):
    """Root of every error that this product raises on purpose."""


class SettingsInvalidError(GenqueueError):
    """The environment or a file of settings is wrong; `problems` names each, one a line."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class ModelUnknownError(GenqueueError):
    """No provider in the models file serves `model`; `known` lists what may be asked for."""

    def __init__(self, model: str, known: Sequence[str]) -> None:
        self.model = model
        self.known = tuple(known)
        super().__init__(f"model {model!r} is not in the models file")


class AttemptError(GenqueueError):
    """An attempt failed: `kind`, a message without secrets or prompt text, and the wait that
    the provider asked for in seconds (None where it named none)."""

    def __init__(self, kind: ErrorKind, message: str, retry_after_s: float | None = None) -> None:
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(f"{kind}: {message}")


class AttemptAbortedError(GenqueueError):
    """The running call was told to end: the lease is lost, the job cancelled, or the worker
    is shutting down. Nobody waits for its result."""


class StoreUnavailableError(GenqueueError):
    """Redis does not answer, is loading, read-only or out of memory; try after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: int = 2) -> None:
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class RelatedEntityMissingError(GenqueueError):
    """`field` (parent_id, correlation_id or causation_id) names nothing of this org (A18)."""

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(f"{field} names no prompt or response of this organisation")


class IdempotencyKeyReusedError(GenqueueError):
    """The idempotency key was used before with another payload (X4)."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__("this Idempotency-Key was used before with another payload")


class JobMissingError(GenqueueError):
    """There is no such job, or it is another organisation's."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"no job {job_id}")
