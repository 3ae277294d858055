"""What does a caller get to read when something is wrong? RFC 9457 problems, from one table.

`TABLE` is the only place where an error becomes a status. Whatever is not in it is a 500 that
says nothing but the request id; the log has the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from flask import Blueprint, Flask, Response, current_app
from werkzeug.exceptions import (
    HTTPException,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
)
from werkzeug.wrappers import Response as WerkzeugResponse

from jobs.domain import errors as domain
from jobs.domain.generation_codes import COPY, GenerationCode
from service import errors as http
from service.context import current_request_id
from service.errors import FieldError
from service.instants import rfc3339

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:genqueue:problem:"
ERRORS_MAX: Final = 20
"""So many field errors are named; a body can be wrong in half a million places."""

CHALLENGE: Final = 'Bearer realm="genqueue"'
CLIENT_CHALLENGE: Final = 'ClientKey realm="genqueue"'
_NOT_OURS: Final = frozenset({"content-type", "content-length"})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """One answer of type problem+json, before it has a request id."""

    slug: str
    status: int
    title: str
    detail: str
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """How one error is told: the functions read the error's data. `members` are extensions of
    the problem (RFC 9457, 3.2), and count before ours."""

    slug: str
    status: HTTPStatus
    title: str
    detail: Callable[[Any], str] = str
    errors: Callable[[Any], Sequence[FieldError]] = lambda _error: ()
    headers: Callable[[Any], Mapping[str, str]] = lambda _error: {}
    members: Callable[[Any], Mapping[str, str]] = lambda _error: {}


def _challenge(error: http.UnauthenticatedError) -> Mapping[str, str]:
    suffix = ', error="invalid_token"' if error.presented else ""
    return {"WWW-Authenticate": CHALLENGE + suffix}


def _client_key(error: http.ClientUnauthenticatedError) -> str:
    if error.is_configured:
        return "Send `X-Muxi-Client-Key` with a key of the formation."
    return "No client key is set: set GENQUEUE_FORMATION_KEYS where the API runs."


def _without_a_stream(error: http.StreamsExhaustedError) -> str:
    instead = (
        "Send it to /v1/chat without `stream` and poll /v1/requests"
        if error.is_chat
        else "Poll /v1/mission/recent"
    )
    return (
        f"This {error.scope} has its {error.limit} open streams. {instead}, or try again after"
        " Retry-After seconds."
    )


def _known_models(error: domain.ModelUnknownError) -> Sequence[FieldError]:
    return (FieldError("model", f"must be one of {', '.join(error.known)}"),)


def _not_found(what: str) -> Row:
    return Row(
        "not-found",
        HTTPStatus.NOT_FOUND,
        "Not found",
        detail=lambda _error: f"There is no such {what}.",
    )


def _too_large() -> str:
    return f"is larger than {current_app.config['MAX_CONTENT_LENGTH']} bytes"


UNPROCESSABLE: Final = HTTPStatus.UNPROCESSABLE_ENTITY

TABLE: Final[Mapping[type[Exception], Row]] = {
    http.BodyMalformedError: Row(
        "malformed-body",
        HTTPStatus.BAD_REQUEST,
        "The body is not JSON",
        errors=lambda error: (FieldError("body", error.reason),),
    ),
    http.UnauthenticatedError: Row(
        "unauthenticated",
        HTTPStatus.UNAUTHORIZED,
        "No valid API key",
        detail=lambda _error: "Send `Authorization: Bearer` with a key of `genqueue keys create`.",
        headers=_challenge,
    ),
    http.ClientUnauthenticatedError: Row(
        "unauthenticated",
        HTTPStatus.UNAUTHORIZED,
        "No valid client key",
        detail=_client_key,
        headers=lambda _error: {"WWW-Authenticate": CLIENT_CHALLENGE},
    ),
    NotFound: _not_found("page"),
    domain.JobMissingError: _not_found("job"),
    http.JobGoneError: Row(
        "gone",
        HTTPStatus.GONE,
        "The job was archived",
        detail=lambda error: (
            f"The job ended as {error.state} at {rfc3339(error.finished_at_ms)} and is in the"
            " archive of this service's operator now."
        ),
    ),
    http.PromptMissingError: _not_found("prompt"),
    http.RequestMissingError: _not_found("request"),
    http.DeliveryMissingError: _not_found("delivery"),
    domain.GenerationMissingError: _not_found("generation"),
    domain.FeatureUnavailableError: Row(
        "feature-unavailable",
        HTTPStatus.NOT_FOUND,
        "The feature is not available",
        detail=lambda _error: COPY[GenerationCode.FEATURE_UNAVAILABLE],
    ),
    domain.ThrottledError: Row(
        "throttled",
        HTTPStatus.TOO_MANY_REQUESTS,
        "Too many requests",
        detail=lambda _error: COPY[GenerationCode.THROTTLED],
        headers=lambda error: _retry_after(error.retry_after_s),
    ),
    MethodNotAllowed: Row(
        "method-not-allowed",
        HTTPStatus.METHOD_NOT_ALLOWED,
        "Method not allowed",
        detail=lambda _error: "This page has other methods; see Allow.",
        headers=lambda error: {"Allow": ", ".join(sorted(error.valid_methods or ()))},
    ),
    RequestEntityTooLarge: Row(
        "body-too-large",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "The body is too large",
        detail=lambda _error: _too_large(),
        errors=lambda _error: (FieldError("body", _too_large()),),
    ),
    http.ContentTypeUnsupportedError: Row(
        "unsupported-media-type",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "Unsupported media type",
        errors=lambda error: (FieldError("Content-Type", error.reason),),
        headers=lambda _error: {"Accept": "application/json"},
    ),
    http.PayloadInvalidError: Row(
        "invalid-request",
        UNPROCESSABLE,
        "The request can't be done as it is",
        detail=lambda error: f"{len(error.errors)} to put right; see errors.",
        errors=lambda error: error.errors,
    ),
    domain.ModelUnknownError: Row(
        "unknown-model",
        UNPROCESSABLE,
        "Unknown model",
        detail=lambda _error: "No provider of this service serves this model.",
        errors=_known_models,
    ),
    http.ModelUnavailableError: Row(
        "model-unavailable",
        UNPROCESSABLE,
        "The model can't be asked for here",
        errors=lambda error: (FieldError("model", error.reason),),
    ),
    domain.RelatedEntityMissingError: Row(
        "related-entity-missing",
        UNPROCESSABLE,
        "A related entity is missing",
        errors=lambda error: (
            FieldError(error.field, "names no prompt or response of this organisation"),
        ),
    ),
    domain.IdempotencyKeyReusedError: Row(
        "idempotency-key-reused",
        UNPROCESSABLE,
        "Idempotency-Key used before",
        errors=lambda error: (
            FieldError(
                "Idempotency-Key", f"stands for another payload, that of job {error.job_id}"
            ),
        ),
    ),
    http.RequestKeyReusedError: Row(
        "idempotency-key-reused",
        UNPROCESSABLE,
        "Idempotency-Key used before",
        errors=lambda error: (
            FieldError(
                "Idempotency-Key", f"stands for another payload, that of {error.request_id}"
            ),
        ),
    ),
    http.RequestEndedError: Row("request-ended", HTTPStatus.CONFLICT, "The request has ended"),
    http.TurnFailedError: Row(
        "turn-failed",
        HTTPStatus.BAD_GATEWAY,
        "The turn failed",
        detail=lambda error: error.reason,
        headers=lambda error: {"Location": f"/v1/requests/{error.request_id}"},
        members=lambda error: {"request_id": error.request_id, "error_kind": error.kind},
    ),
    http.JobLiveError: Row("job-not-ended", HTTPStatus.CONFLICT, "The job has not ended"),
    http.JobFinalError: Row(
        "job-not-retried", HTTPStatus.CONFLICT, "This kind of job is not retried"
    ),
    http.JobSupersededError: Row(
        "job-superseded",
        HTTPStatus.CONFLICT,
        "The job was superseded",
        # A problem has no place of its own for it, and a program wants to follow it.
        headers=lambda error: {"Link": f'</v1/jobs/{error.superseded_by}>; rel="successor"'},
    ),
    http.StreamsExhaustedError: Row(
        "too-many-streams",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Too many open streams",
        detail=_without_a_stream,
        headers=lambda error: _retry_after(error.retry_after_s),
    ),
    http.NotReadyError: Row(
        "not-ready", HTTPStatus.SERVICE_UNAVAILABLE, "Not ready", headers=lambda _e: _retry_after(5)
    ),
    domain.StoreUnavailableError: Row(
        "store-unavailable",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The store is away",
        detail=lambda _error: (
            "Redis does not answer or takes no writes. Try again after Retry-After seconds; with"
            " an Idempotency-Key a submit is never doubled."
        ),
        headers=lambda error: _retry_after(error.retry_after_s),
    ),
}


def _retry_after(seconds: int) -> Mapping[str, str]:
    return {"Retry-After": str(seconds)}


def problem_of(error: Exception) -> Problem:
    """The problem that tells `error`; one that says nothing where the table doesn't know it."""
    row = TABLE.get(type(error))
    if row is None:
        return Problem(
            "internal-error",
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "Internal error",
            "Something went wrong here. The request id finds it in the log.",
        )
    return Problem(
        row.slug,
        row.status,
        row.title,
        row.detail(error),
        errors=row.errors(error)[:ERRORS_MAX],
        headers=row.headers(error),
        members=row.members(error),
    )


def problem_of_http(error: HTTPException) -> Problem:
    """The problem that tells an error of the HTTP layer, with its headers (405 has Allow)."""
    code = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    if code == HTTPStatus.INTERNAL_SERVER_ERROR:
        return problem_of(error)
    headers = {
        name: value
        for name, value in error.get_response().headers.items()
        if name.lower() not in _NOT_OURS
    }
    slug = error.name.lower().replace(" ", "-")
    return Problem(slug, code, error.name, error.description or error.name, headers=headers)


def problem_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """The members of the JSON object, as RFC 9457 names them and ours beside."""
    return {
        "type": TYPE_PREFIX + problem.slug,
        "title": problem.title,
        "status": int(problem.status),
        "detail": problem.detail,
        "errors": [{"field": item.field, "reason": item.reason} for item in problem.errors],
        "request_id": request_id,
        **problem.members,
    }


def problem_response(problem: Problem) -> Response:
    """The answer that carries `problem`."""
    body = json.dumps(problem_body(problem, current_request_id()))
    return Response(body, problem.status, problem.headers, content_type=CONTENT_TYPE)


def tell_errors(of: Flask | Blueprint, respond: Callable[[Problem], Response]) -> None:
    """Answer every error of `of`, its own and Flask's, by what `respond` makes of its problem."""

    def answer_http(error: HTTPException) -> WerkzeugResponse:
        if type(error) in TABLE:
            return respond(problem_of(error))
        if error.code is None or error.code < HTTPStatus.BAD_REQUEST:
            return error.get_response()
        return respond(problem_of_http(error))

    def answer(error: Exception) -> WerkzeugResponse:
        if type(error) not in TABLE:
            log.error("request %s failed", current_request_id(), exc_info=error)
        return respond(problem_of(error))

    of.register_error_handler(HTTPException, answer_http)
    of.register_error_handler(Exception, answer)


def tell_errors_as_problems(app: Flask) -> None:
    """Answer every error of `app`, its own and Flask's, as a problem (X3)."""
    tell_errors(app, problem_response)
