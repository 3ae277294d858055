"""What did the formation give up on, on which day, for which user? (C14)"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from service.client_auth import USER_PARAMETER, current_client, require_client
from service.context import current_runtime
from service.openapi import CLIENT_SCHEME, Blueprint
from service.request_views import log_entries
from service.schemas.requests import CaptainsLogQuerySchema, CaptainsLogSchema

blueprint = Blueprint(
    "captains_log", __name__, url_prefix="/v1", description="Read what could not be done"
)
blueprint.before_request(require_client)


@blueprint.route("/captains-log", methods=["GET"], parameters=[USER_PARAMETER])
@blueprint.documents(operationId="getCaptainsLog", security=[{CLIENT_SCHEME: []}])
@blueprint.takes(CaptainsLogQuerySchema, location="query")
@blueprint.answers(
    HTTPStatus.OK,
    CaptainsLogSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def get_captains_log(query: Mapping[str, Any]) -> dict[str, Any]:
    """Read a day of the captain's log.

    One line for each chain of this user that ended without an answer on that day, in UTC: why,
    and what it would take. Kept for 90 days. A page has 100 lines at most; pass `next_cursor` as
    `cursor` for the next one.
    """
    client, day = current_client(), query["day"]
    turns = current_runtime().turns
    page = turns.captains_log(
        client.client_id, client.user_id, day, query["limit"], query.get("cursor", 0)
    )
    return {
        "object": "captains_log",
        "day": day,
        "entries": log_entries(page.entries),
        "next_cursor": None if page.next_cursor is None else str(page.next_cursor),
    }
