"""How is a chat request followed, and ended? (C13, C15)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from flask import Response, jsonify, request

from jobs import logs
from jobs.domain.give_up_report import report_markdown
from jobs.domain.request_ids import job_id_of
from jobs.domain.states import Answer
from jobs.retry_events import tell_ended
from jobs.store.turns import RequestView
from service.client_auth import USER_PARAMETER, current_client, require_client
from service.context import current_runtime
from service.errors import RequestEndedError, RequestMissingError
from service.openapi import CLIENT_SCHEME, Blueprint
from service.request_views import report_of, status_envelope
from service.schemas.requests import REQUEST_ID_PATTERN, RequestStatusSchema
from service.submission import issue_ticket

blueprint = Blueprint(
    "requests", __name__, url_prefix="/v1/requests", description="Follow and end chat requests"
)
blueprint.before_request(require_client)

JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
_SECURITY: Final[list[dict[str, Any]]] = [{CLIENT_SCHEME: []}]
_PARAMETERS: Final[list[dict[str, Any]]] = [
    {
        "in": "path",
        "name": "request_id",
        "required": True,
        "schema": {"type": "string", "pattern": REQUEST_ID_PATTERN},
    },
    USER_PARAMETER,
]
_MARKDOWN_DOCUMENT: Final[dict[str, Any]] = {"content": {MARKDOWN: {"schema": {"type": "string"}}}}


@blueprint.route("/<string:request_id>", methods=["GET"], parameters=_PARAMETERS)
@blueprint.documents(
    operationId="getRequest",
    security=_SECURITY,
    responses={HTTPStatus.OK: _MARKDOWN_DOCUMENT},
)
@blueprint.answers(
    HTTPStatus.OK,
    RequestStatusSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def get_request(request_id: str) -> Response:
    """Read how far a request came.

    `escalated` is there from the start of its chain, `result` once it is completed, `report`
    once its chain has ended without an answer: with `Accept: text/markdown` that report comes
    as text for people. Ids of another client or user are answered like ids that never were.
    """
    view = _known(request_id)
    account = report_of(view)
    offered = [JSON] if account is None else [JSON, MARKDOWN]
    if account is not None and request.accept_mimetypes.best_match(offered, JSON) == MARKDOWN:
        answer = Response(report_markdown(account), content_type=f"{MARKDOWN}; charset=utf-8")
    else:
        answer = _shown(view)
    answer.vary.add("Accept")
    return answer


@blueprint.route("/<string:request_id>", methods=["DELETE"], parameters=_PARAMETERS)
@blueprint.documents(operationId="cancelRequest", security=_SECURITY)
@blueprint.answers(
    HTTPStatus.OK,
    RequestStatusSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def cancel_request(request_id: str) -> Response:
    """End a request now.

    A turn that waits never runs, one that runs is broken off within two seconds, and a chain
    ends as abandoned; this answer is all the notice of it. Once more is the same answer. A
    request that has ended otherwise stays as it is: 409.
    """
    job_id = _job_id(request_id)
    client, runtime = current_client(), current_runtime()
    cancelled = runtime.turns.cancel(job_id, client.client_id, client.user_id)
    if cancelled.answer is Answer.MISSING:
        raise RequestMissingError
    if cancelled.ticket_wanted:
        issue_ticket(runtime, job_id)
    tell_ended(cancelled.ended_chains)
    view = _known(request_id)
    if cancelled.answer is not Answer.OK:
        raise RequestEndedError(request_id, view.status)
    return _shown(view)


def _known(request_id: str) -> RequestView:
    client = current_client()
    view = current_runtime().turns.view(_job_id(request_id), client.client_id, client.user_id)
    if view is None:
        raise RequestMissingError
    return view


def _job_id(request_id: str) -> str:
    """The first job of the request; what can't be an id is a request that never was."""
    job_id = job_id_of(request_id)
    if job_id is None:
        raise RequestMissingError
    logs.bind(job_id=job_id)
    return job_id


def _shown(view: RequestView) -> Response:
    return jsonify(RequestStatusSchema().dump(status_envelope(view)))
