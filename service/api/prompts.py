"""How does a prompt come in, and how is it read with its answer? (A1, X4, A18, A25)"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from flask import Response, url_for

from jobs.store.modes import Mode
from service.auth import require_identity
from service.context import current_identity, current_runtime
from service.errors import PromptMissingError
from service.finished import answer_when_ended
from service.job_views import show_jobs
from service.openapi import Blueprint
from service.schemas.fields import as_entity_id
from service.schemas.prompts import (
    AcceptedSchema,
    FinishedSchema,
    PromptRequestSchema,
    PromptViewSchema,
    ShownPrompt,
    SubmitHeadersSchema,
)
from service.submission import Accepted, Manner, PromptSubmission, accept
from service.waiting import read_preferences

blueprint = Blueprint("prompts", __name__, url_prefix="/v1", description="Send and read prompts")
blueprint.before_request(require_identity)

MODE_HEADER: Final = "Genqueue-Mode"

_EXAMPLE: Final = {"prompt": "Why is the sky blue?", "priority": 50}
"""What a person finds filled in on the page, and what runs as it is."""

_HEADERS: Final = {
    "Location": {"description": "The job.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where an earlier submit with this key made the job.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Preference-Applied": {"description": "As RFC 7240 has it.", "schema": {"type": "string"}},
    MODE_HEADER: {
        "description": "The mode that the service is in.",
        "schema": {"type": "string", "enum": [mode.value for mode in Mode]},
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
@blueprint.also_answers(HTTPStatus.OK, FinishedSchema)
def submit_prompt(
    headers: dict[str, str], submission: PromptSubmission
) -> tuple[Accepted, HTTPStatus, dict[str, str]] | Response:
    """Submit a prompt.

    The prompt and its job are stored before this answers; a worker runs it by priority, never
    this process. In `async` mode the answer is the receipt, 202. With `Prefer: wait=N` the
    request is held until the job has ended, N seconds at most (60), and answers 200 with the
    job and its response; where it does not end in time, or the service has no place left to
    wait in, the answer is the receipt. In `sync` mode every submit waits like this, up to 60 s;
    `shadow` answers as `sync` does and marks the job's execution options with `mode: shadow`,
    so that its records can be told before the service is switched to `async`.
    """
    runtime = current_runtime()
    mode = runtime.modes.current()
    preferences = read_preferences(headers.get("prefer", ""))
    held_s = preferences.held_s(mode)
    accepted = accept(
        runtime,
        current_identity(),
        submission,
        headers.get("idempotency_key"),
        Manner(is_urgent=held_s > 0, is_shadow=mode is Mode.SHADOW),
    )
    answer_headers = {
        "Location": url_for("jobs.get_job", job_id=accepted.job_id),
        MODE_HEADER: mode.value,
    }
    if accepted.replayed:
        answer_headers["Idempotency-Replayed"] = "true"
    finished = answer_when_ended(accepted.job_id, held_s, preferences, answer_headers)
    if finished is not None:
        return finished
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
def get_prompt(prompt_id: str) -> ShownPrompt:
    """Read a prompt, its response and its jobs.

    Ids of another organisation are answered like ids that never were.
    """
    entity_id = as_entity_id(prompt_id)
    view = entity_id and current_runtime().records.prompt(entity_id, current_identity().org_id)
    if not view:
        raise PromptMissingError
    return ShownPrompt(view, show_jobs(current_runtime().records, view.jobs))
