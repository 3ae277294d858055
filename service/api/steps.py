"""How is a step of a workflow run, tried out and looked at? (B24-B33)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from flask import Response, jsonify, request, url_for
from werkzeug.exceptions import NotFound

from jobs import logs
from jobs.domain.step import StepMode
from jobs.store.steps import StepView
from service.auth import require_team
from service.client_socket import ClientSocket
from service.context import current_fanout, current_identity, current_runtime
from service.generation_refusals import READ_REFUSALS, SUBMIT_REFUSALS, refuses
from service.openapi import TEAM_SCHEME, Blueprint
from service.preview import Trial, mock, preview
from service.problems import tell_errors
from service.schemas.fields import as_entity_id
from service.schemas.steps import StepHeadersSchema, StepRequestSchema, StepSchema, TrialSchema
from service.step_refusals import refusals_of
from service.step_submission import StepSubmission, accept_step, prepare

blueprint = Blueprint(
    "steps",
    __name__,
    url_prefix="/api/projects/<string:team_id>/workflow_steps",
    description="Run the step Generate text of a workflow",
)
blueprint.before_request(require_team)
tell_errors(blueprint, refusals_of("step"))

_EXAMPLE: Final = {
    "invocation_id": "run-1",
    "inputs": {
        "prompt": "Welcome {{ person.properties.name }} in one sentence.",
        "output_fields": {"subject_line": "A subject line of at most 8 words."},
        "model": "mock-1",
    },
    "globals": {"person": {"properties": {"name": "Ada"}}, "variables": {"subject_line": ""}},
    "mode": "mock",
}
"""Made-up values: a try on the page costs nothing."""

_SECURITY: Final[list[dict[str, Any]]] = [{TEAM_SCHEME: []}]
_HEADERS: Final = {
    "Location": {"description": "The step.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where an earlier submit with this key made the step.",
        "schema": {"type": "string", "enum": ["true"]},
    },
}
_LINKS: Final = {
    "step": {
        "operationId": "getStep",
        "parameters": {"team_id": "$request.path.team_id", "step_id": "$response.body#/id"},
    }
}


# Without its last slash the address is the same page: a redirect would lose a body on the way.
@blueprint.route("/", methods=["POST"], strict_slashes=False)
@blueprint.documents(
    operationId="submitStep",
    security=_SECURITY,
    responses={HTTPStatus.ACCEPTED: {"links": _LINKS}},
)
@blueprint.takes(StepHeadersSchema, location="headers")
@blueprint.takes(StepRequestSchema, example=_EXAMPLE)
@blueprint.answers(HTTPStatus.ACCEPTED, StepSchema, headers=_HEADERS)
@blueprint.also_answers(HTTPStatus.OK, TrialSchema)
@refuses(blueprint, *SUBMIT_REFUSALS)
def submit_step(
    headers: dict[str, str], submission: StepSubmission, team_id: str
) -> tuple[StepView, HTTPStatus, dict[str, str]] | Response:
    """Run a step, or try it out.

    The prompt is rendered here, over `globals`. A `live` step is stored and answered 202; it
    submits its generation, parks until that has ended, and writes the variables: look under
    Location until `run` says whether the run goes on. A `preview` generates for real, spends
    credits and is answered 200 within about 25 s; the same preview again is the same generation.
    A `mock` is answered 200 at once with made-up values.
    """
    # The token's team is that of the address.
    del team_id
    runtime, identity = current_runtime(), current_identity()
    step = prepare(submission, runtime.settings.webhook_networks)
    if submission.mode is StepMode.MOCK:
        return _shown(mock(step))
    if submission.mode is StepMode.PREVIEW:
        is_gone = ClientSocket(request.environ).is_gone
        return _shown(preview(runtime, current_fanout(), identity, step, is_gone))
    accepted = accept_step(runtime, identity, step, headers.get("idempotency_key"))
    view = accepted.view
    answer_headers = {"Location": url_for("steps.get_step", team_id=view.team_id, step_id=view.id)}
    if accepted.replayed:
        answer_headers["Idempotency-Replayed"] = "true"
    return view, HTTPStatus.ACCEPTED, answer_headers


@blueprint.route("/<string:step_id>/", methods=["GET"], strict_slashes=False)
@blueprint.documents(operationId="getStep", security=_SECURITY)
@blueprint.answers(HTTPStatus.OK, StepSchema)
@refuses(blueprint, *READ_REFUSALS)
def get_step(team_id: str, step_id: str) -> StepView:
    """Look at a step: how far it came, its log, the variables, and what the run does next.

    Ids of another team are answered like ids that never were.
    """
    entity_id = as_entity_id(step_id)
    if entity_id is None:
        raise NotFound
    logs.bind(team=team_id, job_id=entity_id)
    view = current_runtime().steps.get(entity_id, team_id)
    if view is None:
        raise NotFound
    return view


def _shown(trial: Trial) -> Response:
    answer = jsonify(TrialSchema().dump(trial))
    answer.status_code = HTTPStatus.OK
    return answer
