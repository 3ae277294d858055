"""What did a client say, was it said before, and what is it as a turn? (C1, C10, X4)"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from jobs import logs
from jobs.delivery.address_guard import Network, check_url
from jobs.domain.canonical_json import canonical_json
from jobs.domain.errors import IdempotencyKeyReusedError
from jobs.domain.escalation import Delivery, delivery_mode
from jobs.domain.request_ids import request_id_of
from jobs.runtime import Runtime
from jobs.store.turns import NewTurn
from service.client_auth import Client
from service.errors import FieldError, PayloadInvalidError, RequestKeyReusedError
from service.submission import issue_ticket


@dataclass(frozen=True, slots=True)
class ChatSubmission:
    """A checked body of `POST /v1/chat`; `webhook_url` is None where the formation's counts."""

    message: str
    stream: bool = False
    webhook_url: str | None = None

    def payload_hash(self) -> str:
        """Hex SHA-256 of what was asked for (X4); how the answer is told is no part of it, so
        that a stream that broke off can be asked for again in either way."""
        asked = {"message": self.message, "webhook_url": self.webhook_url}
        return hashlib.sha256(canonical_json(asked)).hexdigest()


@dataclass(frozen=True, slots=True)
class AcceptedTurn:
    """A stored turn by its first job; `replayed` where an earlier submit made it."""

    job_id: str
    replayed: bool


def check_webhook(submission: ChatSubmission, networks: Sequence[Network]) -> None:
    """Raise PayloadInvalidError where nothing could be posted to `webhook_url`; `networks` are
    those that are allowed beside the public ones (X12)."""
    if submission.webhook_url is None:
        return
    try:
        check_url(submission.webhook_url, networks)
    except ValueError as error:
        raise PayloadInvalidError([FieldError("webhook_url", str(error))]) from None


def accept_turn(
    runtime: Runtime, client: Client, submission: ChatSubmission, key: str | None
) -> AcceptedTurn:
    """Store the turn and its job in one round trip, then a ticket if one is wanted.

    `key` is the client's Idempotency-Key, which counts among those of this client and user
    alone. Raises RequestKeyReusedError and StoreUnavailableError; each stores nothing.
    """
    formation = runtime.formation
    webhook_url = submission.webhook_url or formation.webhook_url
    delivery = delivery_mode(bool(formation.channel_url), client.user_id, webhook_url)
    targets = {Delivery.CHANNEL: formation.channel_url, Delivery.WEBHOOK: webhook_url}
    new = NewTurn(
        id=str(uuid.uuid4()),
        prompt_id=str(uuid.uuid4()),
        client_id=client.client_id,
        user_id=client.user_id,
        org_id=formation.id,
        message=submission.message,
        delivery=delivery,
        target_url=targets.get(delivery),
        streams=submission.stream,
        idempotency_key=key,
        payload_hash=submission.payload_hash() if key else "",
    )
    try:
        submitted = runtime.turns.submit(new)
    except IdempotencyKeyReusedError as error:
        raise RequestKeyReusedError(request_id_of(error.job_id)) from None
    logs.bind(job_id=submitted.job_id)
    if submitted.ticket_wanted:
        issue_ticket(runtime, submitted.job_id)
    return AcceptedTurn(submitted.job_id, submitted.replayed)
