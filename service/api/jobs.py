"""How is a job followed? (A2, A3)"""

from __future__ import annotations

from http import HTTPStatus

from jobs.domain.errors import JobMissingError
from jobs.store.records import JobView
from service.auth import require_identity
from service.context import current_identity, current_runtime
from service.openapi import Blueprint
from service.schemas.fields import as_entity_id
from service.schemas.jobs import JobDetailSchema

blueprint = Blueprint("jobs", __name__, url_prefix="/v1/jobs", description="Follow jobs")
blueprint.before_request(require_identity)


@blueprint.route("/<string:job_id>", methods=["GET"])
@blueprint.documents(operationId="getJob")
@blueprint.answers(
    HTTPStatus.OK,
    JobDetailSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def get_job(job_id: str) -> JobView:
    """Read a job and its history.

    Ids of another organisation are answered like ids that never were.
    """
    entity_id = as_entity_id(job_id)
    view = entity_id and current_runtime().records.job(entity_id, current_identity().org_id)
    if not view:
        raise JobMissingError(job_id)
    return view
