"""What is wrong with a request, beyond what the product itself can refuse?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.domain.errors import GenqueueError
from jobs.domain.states import State


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing to put right: `field` is a dotted path into the body, a header's name, or
    `body` for the whole of it."""

    field: str
    reason: str


class BodyMalformedError(GenqueueError):
    """The body is not the JSON text that it claims to be; `reason` quotes nothing of it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ContentTypeUnsupportedError(GenqueueError):
    """The body is of a kind that is not read here; `reason` says what is."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class PayloadInvalidError(GenqueueError):
    """The request is well-formed and says something that can't be done; `errors` name each."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.field}: {error.reason}" for error in self.errors))


class ModelUnavailableError(GenqueueError):
    """The model is known and can't be called from here now; `reason` says what is missing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class UnauthenticatedError(GenqueueError):
    """No valid API key came with the request; `presented` where something else did."""

    def __init__(self, *, presented: bool) -> None:
        self.presented = presented
        super().__init__("no valid API key")


class ClientUnauthenticatedError(GenqueueError):
    """No client key of the formation came with the request; `is_configured` where any is set."""

    def __init__(self, *, is_configured: bool) -> None:
        self.is_configured = is_configured
        super().__init__("no valid client key")


class JobGoneError(GenqueueError):
    """The job ended in `state` and was archived; its id is remembered for 30 days (API-03)."""

    def __init__(self, state: State, finished_at_ms: int) -> None:
        self.state = state
        self.finished_at_ms = finished_at_ms
        super().__init__("the job was archived")


class PromptMissingError(GenqueueError):
    """There is no such prompt, or it is another organisation's."""


class RequestMissingError(GenqueueError):
    """There is no such chat request, or it is another client's or user's."""


class RequestEndedError(GenqueueError):
    """The chat request has ended as `status` and can't be cancelled any more; one that asked
    something is over too, since what is answered to it is a request of its own."""

    def __init__(self, request_id: str, status: str) -> None:
        self.request_id = request_id
        self.status = status
        how = f"has ended: it is {status}"
        if status.startswith("awaiting_"):
            how = f"ended with its question ({status}): nothing of it is left to cancel"
        super().__init__(f"request {request_id} {how}")


class DeliveryMissingError(GenqueueError):
    """There is no such delivery, or it is another client's or user's."""


class RequestKeyReusedError(GenqueueError):
    """The idempotency key stands for another message, that of `request_id` (X4)."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        super().__init__("this Idempotency-Key was used before with another payload")


class TurnFailedError(GenqueueError):
    """A chat turn failed and was not escalated; `reason` is the failure's, for people (C3)."""

    def __init__(self, request_id: str, kind: str, reason: str) -> None:
        self.request_id = request_id
        self.kind = kind
        self.reason = reason
        super().__init__(f"{kind}: {reason}")


class StreamsExhaustedError(GenqueueError):
    """No place is left for another open stream: `scope` (process, organisation or client) has its
    `limit` of them. Try after `retry_after_s`; `is_chat` where a client of the formation asked."""

    def __init__(
        self, scope: str, limit: int, retry_after_s: int, *, is_chat: bool = False
    ) -> None:
        self.scope = scope
        self.limit = limit
        self.retry_after_s = retry_after_s
        self.is_chat = is_chat
        super().__init__(f"this {scope} has its {limit} open streams")


class JobLiveError(GenqueueError):
    """The job has not ended: there is nothing to retry yet."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} has not ended; cancel it first, or wait for its end")


class JobFinalError(GenqueueError):
    """The job is of a kind that is not retried: nobody would collect what it makes."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} is of a kind that is not retried; submit it again instead")


class JobSupersededError(GenqueueError):
    """The job was retried before: `superseded_by` is the job that took its place."""

    def __init__(self, job_id: str, superseded_by: str) -> None:
        self.job_id = job_id
        self.superseded_by = superseded_by
        super().__init__(f"job {job_id} was superseded by job {superseded_by}; retry that one")


class NotReadyError(GenqueueError):
    """The process lives and can't take work now; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
