"""How is a message sent to the formation, and how does its turn answer? (C1, C3, C8, C9)"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from flask import Response, jsonify, request, url_for

from jobs.domain.errors import StoreUnavailableError
from jobs.domain.request_ids import request_id_of
from jobs.store.modes import Mode
from jobs.store.turns import RequestStatus, RequestView, Turns
from service import sse
from service.chat_stream import WatchedTurn, stream
from service.chat_submission import AcceptedTurn, ChatSubmission, accept_turn, check_webhook
from service.client_auth import USER_PARAMETER, Client, current_client, require_client
from service.client_socket import ClientSocket
from service.context import current_fanout, current_runtime
from service.errors import TurnFailedError
from service.openapi import CLIENT_SCHEME, Blueprint
from service.problems import CONTENT_TYPE
from service.request_views import (
    as_first_told,
    error_of,
    is_answered,
    receipt_envelope,
    turn_envelope,
)
from service.schemas.chat import (
    ChatHeadersSchema,
    ChatRequestSchema,
    ChatResponseSchema,
    TurnProblemSchema,
)
from service.waiting import Preferences, read_preferences, wait_for_end

blueprint = Blueprint(
    "chat", __name__, url_prefix="/v1", description="Talk to the formation's agents"
)
blueprint.before_request(require_client)

_EXAMPLE: Final = {"message": "Why is the sky blue?"}
_LOCATION: Final = {"Location": {"description": "The request.", "schema": {"type": "string"}}}
_HEADERS: Final = {
    **_LOCATION,
    "Idempotency-Replayed": {
        "description": "`true` where an earlier submit with this key made the request.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Preference-Applied": {"description": "As RFC 7240 has it.", "schema": {"type": "string"}},
}
_LINKS: Final = {
    "request": {
        "operationId": "getRequest",
        "parameters": {"request_id": "$response.body#/request/id"},
    }
}
_STREAM_DOCUMENT: Final[dict[str, Any]] = {
    "description": "The turn's answer, or with `stream` Server-Sent Events, each with an id and"
    " one JSON object: `started` {request_id}, `progress` {task, of, agent}, `delta` {text},"
    " `restart` {} (the text so far is void), and last `completed` with the same object as"
    " without a stream. A comment comes every 15 s. A stream that ends without `completed` broke"
    " off: poll Location, or send the same again under the same Idempotency-Key.",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}
_FAILED_DOCUMENT: Final[dict[str, Any]] = {
    "description": "The turn failed and was not escalated. `request_id` is the turn's; the id of"
    " this HTTP request is in X-Request-Id.",
    "content": {CONTENT_TYPE: {"schema": TurnProblemSchema}},
    "headers": _LOCATION,
}


@dataclass(slots=True)
class _Awaited:
    """The turn that a place listens for; it has no id before it is submitted."""

    job_id: str = field(default="")


@blueprint.route("/chat", methods=["POST"], parameters=[USER_PARAMETER])
@blueprint.documents(
    operationId="sendMessage",
    security=[{CLIENT_SCHEME: []}],
    responses={
        HTTPStatus.OK: _STREAM_DOCUMENT,
        HTTPStatus.ACCEPTED: {"links": _LINKS},
        HTTPStatus.BAD_GATEWAY: _FAILED_DOCUMENT,
    },
)
@blueprint.takes(ChatHeadersSchema, location="headers")
@blueprint.takes(ChatRequestSchema, example=_EXAMPLE)
@blueprint.answers(
    HTTPStatus.OK,
    ChatResponseSchema,
    headers=_HEADERS,
    problems=(
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
@blueprint.also_answers(HTTPStatus.ACCEPTED, ChatResponseSchema, headers=_HEADERS)
def send_message(headers: dict[str, str], submission: ChatSubmission) -> Response:
    """Send a message and get the formation's answer.

    The turn is stored before anything else; a worker runs it, this request waits, 60 s at most.
    Answered 200: `completed` with the answer; `escalated` where it failed and goes on in the
    background, with how the outcome arrives; `awaiting_…` with a question; `cancelled`. A
    failure that is not escalated is a 502 that says why. 202 where the turn still runs: poll
    Location. The same Idempotency-Key answers the request as it is now: once its chain has
    ended, `completed` or, with the report, `failed`, each with `escalated: true`.
    """
    check_webhook(submission, current_runtime().settings.webhook_networks)
    key = headers.get("idempotency_key")
    if submission.stream:
        return _streamed(submission, key)
    accepted = accept_turn(current_runtime(), current_client(), submission, key)
    return _answered(accepted, read_preferences(headers.get("prefer", "")))


def _answered(accepted: AcceptedTurn, preferences: Preferences) -> Response:
    """Wait for the turn, and answer what came of it. Raises TurnFailedError."""
    runtime = current_runtime()
    ended: bool | None = False
    # A message waits for its answer in every mode of the service.
    if held_s := preferences.held_s(Mode.SYNC):
        ended = wait_for_end(
            current_fanout(),
            runtime.listing,
            org_id=runtime.formation.id,
            job_id=accepted.job_id,
            within_s=held_s,
            is_gone=ClientSocket(request.environ).is_gone,
            client_id=current_client().client_id,
        )
    view = _seen(accepted) if ended or accepted.replayed else None
    headers = _answer_headers(accepted)
    if preferences.wait_s is not None and ended is not None:
        headers["Preference-Applied"] = f"wait={preferences.wait_s}"
    elif preferences.respond_async and not ended:
        headers["Preference-Applied"] = "respond-async"
    if view is None or not is_answered(view):
        return _shown(receipt_envelope(accepted.job_id), HTTPStatus.ACCEPTED, headers)
    if view.status is RequestStatus.FAILED and not view.escalated:
        error = error_of(view)
        raise TurnFailedError(request_id_of(view.job_id), error["kind"], error["message"])
    return _shown(turn_envelope(view), HTTPStatus.OK, headers)


def _streamed(submission: ChatSubmission, key: str | None) -> Response:
    """The turn as a stream. Raises StreamsExhaustedError before anything is stored."""
    runtime, client = current_runtime(), current_client()
    connection = ClientSocket(request.environ)
    awaited = _Awaited()
    place = current_fanout().subscribe(
        runtime.formation.id,
        wanted=lambda event: event.job_id == awaited.job_id,
        on_drop=connection.shut,
        client_id=client.client_id,
    )
    try:
        accepted = accept_turn(runtime, client, submission, key)
    except BaseException:
        place.close()
        raise
    job_id = awaited.job_id = accepted.job_id
    turn = WatchedTurn(
        job_id=job_id,
        read=partial(runtime.tokens.read, job_id),
        standing=partial(runtime.turns.standing, job_id, client.client_id, client.user_id),
        look=partial(_look, runtime.turns, client, accepted),
        is_gone=connection.is_gone,
    )
    connection.prepare()
    answer = Response(
        stream(place, turn),
        content_type=sse.CONTENT_TYPE,
        # Proxies pass it on line by line, and keep nothing.
        headers={
            **_answer_headers(accepted),
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        },
    )
    answer.call_on_close(place.close)
    return answer


def _look(turns: Turns, client: Client, accepted: AcceptedTurn) -> RequestView | None:
    """The request as it is to be told now. Raises StoreUnavailableError."""
    view = turns.view(accepted.job_id, client.client_id, client.user_id)
    return view if view is None or accepted.replayed else as_first_told(view)


def _seen(accepted: AcceptedTurn) -> RequestView | None:
    """As `_look`, None where it can't be read now: it is stored, and its receipt can be told."""
    try:
        return _look(current_runtime().turns, current_client(), accepted)
    except StoreUnavailableError:
        return None


def _answer_headers(accepted: AcceptedTurn) -> dict[str, str]:
    location = url_for("requests.get_request", request_id=request_id_of(accepted.job_id))
    replayed = {"Idempotency-Replayed": "true"} if accepted.replayed else {}
    return {"Location": location, **replayed}


def _shown(envelope: dict[str, Any], status: HTTPStatus, headers: dict[str, str]) -> Response:
    answer = jsonify(ChatResponseSchema().dump(envelope))
    answer.status_code = status
    answer.headers.update(headers)
    return answer
