"""How does a prompt come in, and how is it read with its answer? (A1, X4, A18, A25)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from flask import url_for

from jobs.store.records import PromptView
from service.auth import require_identity
from service.context import current_identity, current_runtime
from service.errors import PromptMissingError
from service.openapi import Blueprint
from service.schemas.fields import as_entity_id
from service.schemas.prompts import (
    AcceptedSchema,
    PromptRequestSchema,
    PromptViewSchema,
    SubmitHeadersSchema,
)
from service.submission import Accepted, PromptSubmission, accept

blueprint = Blueprint("prompts", __name__, url_prefix="/v1", description="Send and read prompts")
blueprint.before_request(require_identity)

_EXAMPLE: Final = {"prompt": "Why is the sky blue?", "priority": 50}
"""What a person finds filled in on the page, and what runs as it is."""

_HEADERS: Final = {
    "Location": {"description": "The job.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where an earlier submit with this key made the job.",
        "schema": {"type": "string", "enum": ["true"]},
    },
}
_LINKS: Final = {
    "job": {"operationId": "getJob", "parameters": {"job_id": "$response.body#/job_id"}},
    "prompt": {
        "operationId": "getPrompt",
        "parameters": {"prompt_id": "$response.body#/prompt_id"},
    },
}


@blueprint.route("/prompt", methods=["POST"])
@blueprint.documents(operationId="submitPrompt", responses={HTTPStatus.ACCEPTED: {"links": _LINKS}})
@blueprint.takes(SubmitHeadersSchema, location="headers")
@blueprint.takes(PromptRequestSchema, example=_EXAMPLE)
@blueprint.answers(
    HTTPStatus.ACCEPTED,
    AcceptedSchema,
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
def submit_prompt(
    headers: dict[str, str], submission: PromptSubmission
) -> tuple[Accepted, HTTPStatus, dict[str, str]]:
    """Submit a prompt.

    The prompt and its job are stored before this answers; a worker runs it by priority.
    """
    accepted = accept(
        current_runtime(), current_identity(), submission, headers.get("idempotency_key")
    )
    answer_headers = {"Location": url_for("jobs.get_job", job_id=accepted.job_id)}
    if accepted.replayed:
        answer_headers["Idempotency-Replayed"] = "true"
    return accepted, HTTPStatus.ACCEPTED, answer_headers


@blueprint.route("/prompts/<string:prompt_id>", methods=["GET"])
@blueprint.documents(operationId="getPrompt")
@blueprint.answers(
    HTTPStatus.OK,
    PromptViewSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def get_prompt(prompt_id: str) -> PromptView:
    """Read a prompt, its response and its jobs.

    Ids of another organisation are answered like ids that never were.
    """
    entity_id = as_entity_id(prompt_id)
    view = entity_id and current_runtime().records.prompt(entity_id, current_identity().org_id)
    if not view:
        raise PromptMissingError
    return view
