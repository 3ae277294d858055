"""How is everything of an organisation followed? By polls, or by a stream of events (A20, A21)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from flask import Response, request

from jobs.domain.errors import StoreUnavailableError
from jobs.store.credentials import Credentials
from jobs.store.events import Event
from jobs.store.listing import Changes
from service import sse
from service.auth import presented_key, require_identity
from service.client_socket import ClientSocket
from service.context import current_fanout, current_identity, current_runtime
from service.job_views import show_jobs
from service.openapi import Blueprint
from service.schemas.fields import AfterInstant, AfterSeq
from service.schemas.mission import (
    EventsHeadersSchema,
    EventsQuerySchema,
    Recent,
    RecentQuery,
    RecentQuerySchema,
    RecentSchema,
    ShownChange,
)

blueprint = Blueprint(
    "mission", __name__, url_prefix="/v1/mission", description="Follow all that happens"
)
blueprint.before_request(require_identity)

NEVER_GIVEN_OUT: Final = 2**53
"""Stands for an id that is no number: it lies beyond every one, which is a gap."""

_STREAM_DOCUMENT: Final[dict[str, Any]] = {
    "description": "Server-Sent Events. `job.state_changed` carries one JSON object {job_id,"
    " prompt_id, state, from, verb, attempt, at, seq, reason}, its id is `seq`. `gap` says that"
    " events can't be told (trimmed, expired, unknown_id): read mission/recent anew; the stream"
    " goes on. A comment comes every 15 s.",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}


@blueprint.route("/recent", methods=["GET"])
@blueprint.documents(operationId="listRecent")
@blueprint.takes(RecentQuerySchema, location="query")
@blueprint.answers(
    HTTPStatus.OK,
    RecentSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def list_recent(query: RecentQuery) -> Recent:
    """Read what changed since the last look.

    Prompts of the organisation whose jobs moved after `since`, each with its current job.
    Polling with the `as_of` of each answer misses no change, also not within a millisecond.
    """
    runtime, org_id = current_runtime(), current_identity().org_id
    since = query.since
    after = since.seq if isinstance(since, AfterSeq) else None
    if isinstance(since, AfterInstant):
        after = runtime.listing.seq_at(org_id, since.at_ms)
    changes = runtime.listing.changes(org_id, after, query.limit)
    return Recent(_shown(changes), str(changes.as_of), changes.has_more, changes.lost)


def _shown(changes: Changes) -> list[ShownChange]:
    shown = show_jobs(current_runtime().records, [change.job for change in changes.prompts])
    pairs = zip(changes.prompts, shown, strict=True)
    rows = [ShownChange(change, job.waiting_on) for change, job in pairs]
    return sorted(rows, key=lambda row: (row.change.created_at_ms, row.change.job.seq))


@blueprint.route("/events", methods=["GET"])
@blueprint.documents(operationId="streamEvents", responses={HTTPStatus.OK: _STREAM_DOCUMENT})
@blueprint.takes(EventsHeadersSchema, location="headers")
@blueprint.takes(EventsQuerySchema, location="query")
@blueprint.fails(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
)
def stream_events(headers: dict[str, str], query: dict[str, str]) -> Response:
    """Follow what happens, as it happens.

    With the id of the last event as Last-Event-ID nothing is lost and nothing comes twice.
    Without one the stream begins now. A client that reads too slowly is disconnected and comes
    back with its id. Where no place is left it is a 503 with Retry-After; polls stay.
    """
    runtime, identity = current_runtime(), current_identity()
    connection = ClientSocket(request.environ)
    own = identity.user_id if query.get("user") else None

    def wanted(event: Event) -> bool:
        return own is None or event.user_id == own

    follower = sse.Follower(
        wanted=wanted,
        last_seen=_last_seen(headers.get("last_event_id") or query.get("last_event_id") or ""),
        is_gone=connection.is_gone,
        is_allowed=_still_holds(runtime.credentials, presented_key()),
    )
    subscription = current_fanout().subscribe(identity.org_id, wanted, connection.shut)
    connection.prepare()
    answer = Response(
        sse.stream(runtime.events, subscription, follower),
        content_type=sse.CONTENT_TYPE,
        # Proxies pass it on line by line, and keep nothing.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
    # Also where the stream is never begun, as by HEAD.
    answer.call_on_close(subscription.close)
    return answer


def _last_seen(text: str) -> int | None:
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else NEVER_GIVEN_OUT


def _still_holds(credentials: Credentials, presented: str) -> Callable[[], bool]:
    def check() -> bool:
        try:
            return credentials.authenticate(presented) is not None
        except StoreUnavailableError:
            return True  # whoever was let in stays while nobody can be asked

    return check
