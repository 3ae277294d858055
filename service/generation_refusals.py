"""How do the routes of generations tell what is wrong? In the shape of their answers. (B5)"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from flask import Response

from service.context import current_request_id
from service.openapi import RETRY_AFTER, Blueprint, Decorator, View
from service.problems import Problem
from service.schemas.generations import RefusedSchema

READ_REFUSALS: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
SUBMIT_REFUSALS: Final = (
    *READ_REFUSALS,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
_WAITS: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_CODES: Final[Mapping[str, str]] = {"malformed-body": "invalid_request"}
"""Codes that are not the slug of the problem in another spelling."""

_MESSAGES: Final[Mapping[str, str]] = {
    "unauthenticated": "Send `Authorization: Bearer` with a token of `genqueue teams token`.",
    "store-unavailable": (
        "Redis does not answer or takes no writes. Try again after Retry-After seconds; the same"
        " submit is never doubled."
    ),
}
"""What is told in other words than a problem: these routes have other keys."""


def refusal_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """`problem` as a generation that failed; `errors` only where there are some."""
    error: dict[str, Any] = {
        "code": _CODES.get(problem.slug, problem.slug.replace("-", "_")),
        "message": _MESSAGES.get(problem.slug, problem.detail),
    }
    if problem.errors:
        error["errors"] = [{"field": one.field, "reason": one.reason} for one in problem.errors]
    return {
        "id": None,
        "status": "failed",
        "result": None,
        "error": error,
        "request_id": request_id,
    }


def refusal_response(problem: Problem) -> Response:
    """The answer that carries `problem`."""
    body = json.dumps(refusal_body(problem, current_request_id()))
    return Response(body, problem.status, problem.headers, content_type="application/json")


def refuses(blueprint: Blueprint, *statuses: HTTPStatus) -> Decorator:
    """Document the refusals in which a view may end, in the shape of these routes."""

    def decorate(view: View) -> View:
        for status in statuses:
            headers = RETRY_AFTER if status in _WAITS else None
            view = blueprint.also_answers(status, RefusedSchema, headers=headers)(view)
        return view

    return decorate
