"""What can go wrong: the kinds of failure of an attempt, and the errors that the code raises."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from jobs.domain.entities import Usage


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


class Fault(StrEnum):
    """What was wrong with a call, finer than its kind, for who acts on it."""

    NONE = ""
    REFUSED = "refused"
    CUT_OFF = "cut_off"
    MALFORMED = "malformed"
    OVERLOADED = "overloaded"
    NO_ANSWER = "no_answer"


class AttemptError(GenqueueError):
    """An attempt failed: `kind`, a message without secrets or prompt text, and the wait that
    the provider asked for in seconds (None where it named none).

    `fault` says more where more is known: the model refused, its answer was cut off or can't
    be read, the provider is overloaded, no answer came. `usage` is what an answer of no use
    says it cost, zero where the call was never sent, None where nobody says it.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        retry_after_s: float | None = None,
        *,
        fault: Fault = Fault.NONE,
        usage: Usage | None = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.fault = fault
        self.usage = usage
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


class ThrottledError(GenqueueError):
    """This team submitted too much; exactly `retry_after_s` seconds from now it may again (B8)."""

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"throttled for {retry_after_s} s")


class FeatureUnavailableError(GenqueueError):
    """The organisation does not have the feature flag (B21)."""

    def __init__(self, flag: str) -> None:
        self.flag = flag
        super().__init__(f"the flag {flag} is off")


class GenerationMissingError(GenqueueError):
    """There is no such generation, or it is another team's, or its record has ended (B5)."""

    def __init__(self, generation_id: str) -> None:
        self.generation_id = generation_id
        super().__init__(f"no generation {generation_id}")


class TeamExistsError(GenqueueError):
    """A team of this id is there already, of organisation `org_id`."""

    def __init__(self, team_id: str, org_id: str) -> None:
        self.team_id = team_id
        self.org_id = org_id
        super().__init__(f"team {team_id} exists already, in organisation {org_id}")


class TeamMissingError(GenqueueError):
    """There is no such team."""

    def __init__(self, team_id: str) -> None:
        self.team_id = team_id
        super().__init__(f"no team {team_id}")
