"""What became of the outcomes that were to be posted, and how is one sent again? (C16, C17)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from jobs import logs
from jobs.domain.request_ids import job_id_of
from jobs.domain.states import Answer
from jobs.store.deliveries import DeliveryView
from service.client_auth import USER_PARAMETER, current_client, require_client
from service.context import current_runtime
from service.errors import DeliveryMissingError
from service.openapi import CLIENT_SCHEME, Blueprint
from service.schemas.deliveries import DeliveriesQuerySchema, DeliveryListSchema, DeliverySchema
from service.schemas.fields import as_entity_id
from service.submission import issue_delivery_ticket

blueprint = Blueprint(
    "deliveries", __name__, url_prefix="/v1/deliveries", description="Follow what is posted"
)
blueprint.before_request(require_client)

_SECURITY: Final[list[dict[str, Any]]] = [{CLIENT_SCHEME: []}]
_PARAMETERS: Final[list[dict[str, Any]]] = [
    {
        "in": "path",
        "name": "delivery_id",
        "required": True,
        "description": "The `webhook-id` of its posts.",
        "schema": {"type": "string", "format": "uuid"},
    },
    USER_PARAMETER,
]
_LINKS: Final = {
    name: {
        "operationId": operation,
        "parameters": {"delivery_id": "$response.body#/deliveries/0/id"},
    }
    for name, operation in (("newest", "getDelivery"), ("replay", "replayDelivery"))
}
_LIST_PROBLEMS: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_PROBLEMS: Final = (HTTPStatus.NOT_FOUND, *_LIST_PROBLEMS)


@blueprint.route("", methods=["GET"], parameters=[USER_PARAMETER])
@blueprint.documents(
    operationId="listDeliveries", security=_SECURITY, responses={HTTPStatus.OK: {"links": _LINKS}}
)
@blueprint.takes(DeliveriesQuerySchema, location="query")
@blueprint.answers(HTTPStatus.OK, DeliveryListSchema, problems=_LIST_PROBLEMS)
def list_deliveries(query: Mapping[str, Any]) -> dict[str, Sequence[DeliveryView]]:
    """List deliveries of this client and user, newest first.

    The newest 1,000 are looked at. A delivery can be read for 30 days after its end; how it
    ends never changes its request.
    """
    client = current_client()
    request_id = query.get("request_id")
    found = current_runtime().deliveries.list(
        client.client_id,
        client.user_id,
        ref=job_id_of(request_id) if request_id else None,
        state=query.get("state"),
        limit=query["limit"],
    )
    return {"deliveries": found}


@blueprint.route("/<string:delivery_id>", methods=["GET"], parameters=_PARAMETERS)
@blueprint.documents(operationId="getDelivery", security=_SECURITY)
@blueprint.answers(HTTPStatus.OK, DeliverySchema, problems=_PROBLEMS)
def get_delivery(delivery_id: str) -> DeliveryView:
    """Read a delivery, its tries included.

    Ids of another client or user are answered like ids that never were.
    """
    return _known(_entity_id(delivery_id))


@blueprint.route("/<string:delivery_id>/replay", methods=["POST"], parameters=_PARAMETERS)
@blueprint.documents(operationId="replayDelivery", security=_SECURITY)
@blueprint.answers(HTTPStatus.ACCEPTED, DeliverySchema, problems=_PROBLEMS)
def replay_delivery(delivery_id: str) -> DeliveryView:
    """Send a delivery again, at once.

    Whatever became of it: the same bytes go out under the same `webhook-id`, for a fresh day of
    tries. Once more is harmless; a receiver that remembers ids takes it once.
    """
    entity_id = _entity_id(delivery_id)
    client, runtime = current_client(), current_runtime()
    answer = runtime.deliveries.replay(entity_id, client.client_id, client.user_id)
    if answer is not Answer.OK:  # of a client's deliveries all can be sent again
        raise DeliveryMissingError
    view = _known(entity_id)
    issue_delivery_ticket(runtime)
    return view


def _entity_id(delivery_id: str) -> str:
    """The id as it is stored; what can't be one is a delivery that never was."""
    entity_id = as_entity_id(delivery_id)
    if entity_id is None:
        raise DeliveryMissingError
    return entity_id


def _known(delivery_id: str) -> DeliveryView:
    client = current_client()
    view = current_runtime().deliveries.get(delivery_id, client.client_id, client.user_id)
    if view is None:
        raise DeliveryMissingError
    logs.bind(job_id=view.ref)
    return view
