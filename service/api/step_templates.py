"""What does a builder of workflows show of the step? (B23)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from werkzeug.exceptions import NotFound

from service.auth import require_team
from service.context import current_runtime
from service.generation_refusals import READ_REFUSALS, refuses
from service.openapi import TEAM_SCHEME, Blueprint
from service.problems import tell_errors
from service.schemas.steps import StepTemplateSchema
from service.step_refusals import refusals_of
from service.step_template import STEP_TEMPLATE_ID, step_template

blueprint = Blueprint(
    "step_templates",
    __name__,
    url_prefix="/api/projects/<string:team_id>/step_templates",
    description="Templates of the steps of workflows",
)
blueprint.before_request(require_team)
tell_errors(blueprint, refusals_of("template"))


@blueprint.route("/<string:template_id>/", methods=["GET"], strict_slashes=False)
@blueprint.documents(operationId="getStepTemplate", security=[{TEAM_SCHEME: []}])
@blueprint.answers(HTTPStatus.OK, StepTemplateSchema)
@refuses(blueprint, *READ_REFUSALS)
def get_step_template(team_id: str, template_id: str) -> dict[str, Any]:
    """Read a template of a step: its inputs in the panel's order, and what a new step starts
    with. There is one, `template-workflow-llm`."""
    del team_id
    if template_id != STEP_TEMPLATE_ID:
        raise NotFound
    return step_template(current_runtime().models)
