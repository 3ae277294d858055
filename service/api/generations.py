"""How is a text generated for a step of a workflow, and how is it collected? (B1-B5)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from flask import url_for

from jobs import logs
from jobs.domain.errors import GenerationMissingError
from jobs.generation_intake import GenerationSubmission
from jobs.store.generations import PENDING, GenerationView
from service.auth import require_team
from service.context import current_identity, current_runtime
from service.generation_refusals import READ_REFUSALS, SUBMIT_REFUSALS, refusal_response, refuses
from service.generation_submission import accept_generation
from service.openapi import TEAM_SCHEME, Blueprint
from service.problems import tell_errors
from service.schemas.fields import as_entity_id
from service.schemas.generations import GenerationRequestSchema, GenerationSchema

blueprint = Blueprint(
    "generations",
    __name__,
    url_prefix="/api/projects/<string:team_id>/workflow_llm_generations",
    description="Generate texts for workflows",
)
blueprint.before_request(require_team)
tell_errors(blueprint, refusal_response)

Answer = tuple[GenerationView, HTTPStatus, dict[str, str]]

_EXAMPLE: Final = {
    "invocation_id": "run-1",
    "prompt": "Write a subject line for a first-order discount.",
    "model": "mock-1",
}
_SECURITY: Final[list[dict[str, Any]]] = [{TEAM_SCHEME: []}]
_HEADERS: Final = {"Location": {"description": "The generation.", "schema": {"type": "string"}}}
_LINKS: Final = {
    "generation": {
        "operationId": "getGeneration",
        "parameters": {
            "team_id": "$request.path.team_id",
            "generation_id": "$response.body#/id",
        },
    }
}


# Without its last slash the address is the same page: a redirect would lose a body on the way.
@blueprint.route("/", methods=["POST"], strict_slashes=False)
@blueprint.documents(
    operationId="submitGeneration",
    security=_SECURITY,
    responses={HTTPStatus.ACCEPTED: {"links": _LINKS}},
)
@blueprint.takes(GenerationRequestSchema, example=_EXAMPLE)
@blueprint.answers(HTTPStatus.ACCEPTED, GenerationSchema, headers=_HEADERS)
@blueprint.also_answers(HTTPStatus.OK, GenerationSchema)
@refuses(blueprint, *SUBMIT_REFUSALS)
def submit_generation(submission: GenerationSubmission, team_id: str) -> Answer:
    """Generate a text, and extract fields from it.

    Status codes say whether to come back: 202 is accepted, collect it under Location; 200 is
    final, a success or a failure that trying again does not mend; 429 is for later, at
    Retry-After; 404 with `feature_unavailable` means that the organisation does not have the
    feature. The same invocation with the same payload is the same generation, and starts
    nothing twice.
    """
    # The token's team is that of the address.
    del team_id
    return _answer(accept_generation(current_runtime(), current_identity(), submission))


@blueprint.route("/<string:generation_id>/", methods=["GET"], strict_slashes=False)
@blueprint.documents(operationId="getGeneration", security=_SECURITY)
@blueprint.answers(HTTPStatus.OK, GenerationSchema)
@blueprint.also_answers(HTTPStatus.ACCEPTED, GenerationSchema, headers=_HEADERS)
@refuses(blueprint, *READ_REFUSALS)
def get_generation(team_id: str, generation_id: str) -> Answer:
    """Collect a generation.

    202 while it is pending, 200 once it ended, either way. The record of a success is kept 10
    minutes, that of a failure 5; then, as for another team's id, the answer is 404. No flag and
    no throttle stands before it: what was accepted can be collected (B36).
    """
    entity_id = as_entity_id(generation_id)
    if entity_id is None:
        raise GenerationMissingError(generation_id)
    logs.bind(team=team_id, job_id=entity_id)
    return _answer(current_runtime().generations.get(entity_id, team_id))


def _answer(view: GenerationView) -> Answer:
    if view.status != PENDING:
        return view, HTTPStatus.OK, {}
    location = url_for("generations.get_generation", team_id=view.team_id, generation_id=view.id)
    return view, HTTPStatus.ACCEPTED, {"Location": location}
