"""How are jobs listed, followed and steered? (A2, A3, A16, A17)"""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from flask import Response, request, url_for

from jobs.domain.errors import IdempotencyKeyReusedError, JobMissingError
from jobs.domain.states import Answer
from jobs.retry_events import tell_ended
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.store.listing import Filter
from service.auth import require_identity
from service.context import current_identity, current_runtime
from service.errors import JobFinalError, JobLiveError, JobSupersededError
from service.finished import answer_when_ended
from service.job_views import missing_job, show_job, show_jobs
from service.openapi import Blueprint
from service.schemas.fields import as_entity_id
from service.schemas.jobs import (
    JobDetailSchema,
    JobListSchema,
    ListQuery,
    ListQuerySchema,
    RetryHeadersSchema,
    ShownJob,
    ShownPage,
)
from service.schemas.prompts import FinishedSchema
from service.submission import issue_delivery_ticket, issue_ticket
from service.waiting import read_preferences

blueprint = Blueprint("jobs", __name__, url_prefix="/v1/jobs", description="Follow and steer jobs")
blueprint.before_request(require_identity)

_RETRIES: Final = uuid.UUID("0f4a7a0e-3a0e-5c1b-9d0b-6a2f1f0f7d52")
_PAGE_HEADERS: Final = {
    "Link": {
        "description": 'The next page, as `rel="next"` (RFC 8288); none on the last one.',
        "schema": {"type": "string"},
    }
}
_RETRY_HEADERS: Final = {
    "Location": {"description": "The new job.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where an earlier retry with this key made the job.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Preference-Applied": {"description": "As RFC 7240 has it.", "schema": {"type": "string"}},
}


@blueprint.route("", methods=["GET"])
@blueprint.documents(operationId="listJobs")
@blueprint.takes(ListQuerySchema, location="query")
@blueprint.answers(
    HTTPStatus.OK,
    JobListSchema,
    headers=_PAGE_HEADERS,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def list_jobs(query: ListQuery) -> tuple[ShownPage, HTTPStatus, dict[str, str]]:
    """List jobs of the organisation, the one that moved last first.

    Follow `Link` until there is none: under a filter a page may be short, even empty, and have
    a next one. A job that moves meanwhile goes to the front; GET /v1/mission/recent misses none.
    """
    runtime, org_id = current_runtime(), current_identity().org_id
    wanted = Filter(
        states=query.states,
        kinds=query.kinds,
        prompt_id=query.prompt_id,
        since_seq=0 if query.since is None else runtime.listing.seq_at(org_id, query.since),
    )
    page = runtime.listing.jobs(org_id, wanted, query.limit, query.cursor)
    cursor = None if page.next_before is None else str(page.next_before)
    headers = {} if cursor is None else {"Link": f'<{_address_of(cursor)}>; rel="next"'}
    return ShownPage(show_jobs(runtime.records, page.jobs), cursor), HTTPStatus.OK, headers


def _address_of(cursor: str) -> str:
    """This request's address with another cursor."""
    pairs = [pair for pair in request.args.items(multi=True) if pair[0] != "cursor"]
    return f"{url_for('jobs.list_jobs')}?{urlencode([*pairs, ('cursor', cursor)])}"


@blueprint.route("/<string:job_id>", methods=["GET"])
@blueprint.documents(operationId="getJob")
@blueprint.answers(
    HTTPStatus.OK,
    JobDetailSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def get_job(job_id: str) -> ShownJob:
    """Read a job, its history, and why it waits where it does.

    Ids of another organisation are answered like ids that never were.
    """
    return show_job(current_runtime().records, _known(job_id), current_identity().org_id)


@blueprint.route("/<string:job_id>/cancel", methods=["POST"])
@blueprint.documents(operationId="cancelJob")
@blueprint.answers(
    HTTPStatus.OK,
    JobDetailSchema,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def cancel_job(job_id: str) -> ShownJob:
    """End a job now.

    A queued job never runs, a running call is broken off within two seconds and what it may
    still answer is dropped. A job that has ended stays as it is: the answer shows how.
    """
    runtime, identity = current_runtime(), current_identity()
    entity_id = _known(job_id)
    settled = runtime.queue.cancel(entity_id, identity.org_id, f"by {identity.user_id}")
    if settled.answer is Answer.MISSING:
        raise missing_job(runtime.records, entity_id, identity.org_id)
    if settled.ticket_wanted:
        issue_ticket(runtime, entity_id)
    tell_ended(settled.ended_chains)
    if settled.delivery_wanted:
        issue_delivery_ticket(runtime)
    return show_job(runtime.records, entity_id, identity.org_id)


@blueprint.route("/<string:job_id>/retry", methods=["POST"])
@blueprint.documents(operationId="retryJob")
@blueprint.takes(RetryHeadersSchema, location="headers")
@blueprint.answers(
    HTTPStatus.ACCEPTED,
    JobDetailSchema,
    headers=_RETRY_HEADERS,
    problems=(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
@blueprint.also_answers(HTTPStatus.OK, FinishedSchema)
def retry_job(
    headers: dict[str, str], job_id: str
) -> tuple[ShownJob, HTTPStatus, dict[str, str]] | Response:
    """Run the prompt of an ended job again, as a new job that supersedes it.

    The answer is the new job; the old one keeps how it ended. A job that was superseded is a
    409 naming its successor; one that has not ended, or is a generation, is a 409 as well. With
    `Prefer: wait=N` a job that ends in time is answered with 200 and its result.
    """
    runtime, identity = current_runtime(), current_identity()
    entity_id, key = _known(job_id), headers.get("idempotency_key")
    new_id, replayed = _retry(runtime, identity, entity_id, key)
    answer_headers = {"Location": url_for("jobs.get_job", job_id=new_id)}
    if replayed:
        answer_headers["Idempotency-Replayed"] = "true"
    preferences = read_preferences(headers.get("prefer", ""))
    held_s = preferences.wait_s or 0
    finished = answer_when_ended(new_id, held_s, preferences, answer_headers)
    if finished is not None:
        return finished
    return (
        show_job(runtime.records, new_id, identity.org_id),
        HTTPStatus.ACCEPTED,
        answer_headers,
    )


def _retry(runtime: Runtime, identity: Identity, job_id: str, key: str | None) -> tuple[str, bool]:
    """The id of the new job, and whether the same key made it before.

    With a key the id follows from it: a retry that is sent twice is one, and the job itself
    is the record of the key."""
    replayed = False
    new_id = str(uuid.uuid4())
    if key is not None:
        new_id = str(uuid.uuid5(_RETRIES, f"{identity.org_id}\n{key}"))
        made = runtime.records.job(new_id, identity.org_id)
        if made is not None and made.job.supersedes != job_id:
            raise IdempotencyKeyReusedError(new_id)
        replayed = made is not None
    superseded = runtime.queue.supersede(job_id, new_id, identity.org_id, identity.user_id)
    if superseded.answer is Answer.MISSING:
        raise missing_job(runtime.records, job_id, identity.org_id)
    if superseded.answer is Answer.FINAL:
        raise JobFinalError(job_id)
    if superseded.answer is not Answer.OK:
        if superseded.superseded_by:
            raise JobSupersededError(job_id, superseded.superseded_by)
        raise JobLiveError(job_id)
    if superseded.ticket_wanted and not replayed:
        issue_ticket(runtime, new_id)
    return new_id, replayed


def _known(job_id: str) -> str:
    """The id as it is stored; what can't be one is a job that never was."""
    entity_id = as_entity_id(job_id)
    if entity_id is None:
        raise JobMissingError(job_id)
    return entity_id
