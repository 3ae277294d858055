"""How do routes read, answer and describe themselves? flask-smorest, with our bodies and errors.

The classes give flask-smorest's decorators types, since it ships none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NoReturn, Protocol, TypeVar

import flask_smorest
from flask import Flask, Request
from marshmallow import Schema, ValidationError
from webargs.flaskparser import FlaskParser

from service import problems
from service.body import read_json, shown
from service.errors import FieldError, PayloadInvalidError
from service.schemas.problems import ProblemSchema

View = TypeVar("View", bound=Callable[..., Any])


class Decorator(Protocol):
    """Takes a view and gives one of the same type back."""

    def __call__(self, view: View, /) -> View:
        """The decorated view."""
        ...


SECURITY_SCHEME: Final = "apiKey"
TEAM_SCHEME: Final = "teamToken"
CLIENT_SCHEME: Final = "clientKey"
RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
}


class StrictParser(FlaskParser):
    """Reads bodies by service.body and tells what is wrong by PayloadInvalidError."""

    # In a query too, what is unknown is refused by its schema and not passed over.
    DEFAULT_UNKNOWN_BY_LOCATION = {  # noqa: RUF012  # webargs' own way to declare it
        **FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION,
        "query": None,
    }

    def load_json(self, req: Request, schema: Schema) -> Any:
        """The strictly read body; see `read_json` for what is refused."""
        del schema
        return read_json(req)

    def handle_error(
        self,
        error: ValidationError,
        req: Request,
        schema: Schema,
        *,
        error_status_code: int | None,
        error_headers: Mapping[str, str] | None,
    ) -> NoReturn:
        """Raise PayloadInvalidError with every field that marshmallow named."""
        del req, schema, error_status_code, error_headers
        assert isinstance(error.messages, dict)
        found = [item for tree in error.messages.values() for item in _field_errors(tree, "")]
        raise PayloadInvalidError(found) from error


def _field_errors(tree: Any, path: str) -> list[FieldError]:
    """Marshmallow's tree of messages as a flat list; `_schema` is the object itself."""
    if isinstance(tree, dict):
        found = []
        for name, below in tree.items():
            step = "" if name == "_schema" else shown(name)
            found += _field_errors(below, f"{path}.{step}".strip("."))
        return found
    reasons = tree if isinstance(tree, list) else [tree]
    return [FieldError(path or "body", str(reason)) for reason in reasons]


class Api(flask_smorest.Api):  # type: ignore[misc]  # flask-smorest ships no types
    """Documents every error as a problem, and only those that a route names."""

    ERROR_SCHEMA = ProblemSchema
    DEFAULT_ERROR_RESPONSE_NAME = None

    def _register_error_handlers(self) -> None:
        problems.tell_errors_as_problems(self._app)

    def _register_etag_headers(self) -> None:
        """Nothing here has an ETag."""

    def _register_pagination_header(self) -> None:
        """Nothing here has an X-Pagination."""

    def _register_responses(self) -> None:
        for status in HTTPStatus:
            if status < HTTPStatus.BAD_REQUEST:
                continue
            answer: dict[str, Any] = {
                "description": status.phrase,
                "content": {problems.CONTENT_TYPE: {"schema": ProblemSchema}},
            }
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                answer["headers"] = RETRY_AFTER
            self.spec.components.response(status.name, answer, lazy=True)


class Blueprint(flask_smorest.Blueprint):  # type: ignore[misc]  # flask-smorest ships no types
    """A group of routes of one noun."""

    ARGUMENTS_PARSER = StrictParser()

    def route(self, rule: str, **options: Any) -> Decorator:
        """Serve the view under `rule`."""
        decorator: Decorator = super().route(rule, **options)
        return decorator

    def takes(
        self,
        schema: type[Schema],
        location: str = "json",
        example: Mapping[str, Any] | None = None,
    ) -> Decorator:
        """Load the body (or the headers) by `schema` and pass what it builds to the view."""
        decorator: Decorator = super().arguments(schema, location=location, example=example)
        return decorator

    def answers(
        self,
        status: HTTPStatus,
        schema: type[Schema],
        *,
        headers: Mapping[str, Any] | None = None,
        problems: Sequence[HTTPStatus] = (),
    ) -> Decorator:
        """Dump what the view returns by `schema`; document the problems it may end in."""

        def decorate(view: View) -> View:
            for problem in problems:
                view = super(Blueprint, self).alt_response(problem, problem.name)(view)
            documented: View = super(Blueprint, self).response(status, schema, headers=headers)(
                view
            )
            return documented

        return decorate

    def also_answers(
        self,
        status: HTTPStatus,
        schema: type[Schema],
        *,
        headers: Mapping[str, Any] | None = None,
    ) -> Decorator:
        """Document a further answer, which the view makes itself."""
        decorator: Decorator = super().alt_response(int(status), schema=schema, headers=headers)
        return decorator

    def fails(self, *statuses: HTTPStatus) -> Decorator:
        """Document the problems in which a view may end that makes its answer itself."""

        def decorate(view: View) -> View:
            for problem in statuses:
                view = super(Blueprint, self).alt_response(problem, problem.name)(view)
            return view

        return decorate

    def documents(self, **document: Any) -> Decorator:
        """Add `document` to the operation in the OpenAPI document."""
        decorator: Decorator = super().doc(**document)
        return decorator


def configure(app: Flask) -> None:
    """Settings of flask-smorest that don't depend on the environment."""
    app.config.update(
        API_TITLE="genqueue",
        API_VERSION="v1",
        OPENAPI_VERSION="3.1.0",
        OPENAPI_URL_PREFIX="/",
        OPENAPI_JSON_PATH="openapi.json",
        API_SPEC_OPTIONS={
            "info": {
                "description": "A prompt goes in, a worker runs it, the answer comes out. Submits"
                " are stored before they are answered; poll the job until it is `terminal`."
            },
            "security": [{SECURITY_SCHEME: []}],
        },
    )


def document_security(api: Api) -> None:
    """Say in the document how callers authenticate."""
    api.spec.components.security_scheme(
        SECURITY_SCHEME,
        {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key, made by `genqueue keys create`.",
        },
    )
    api.spec.components.security_scheme(
        TEAM_SCHEME,
        {
            "type": "http",
            "scheme": "bearer",
            "description": "A team's token, made by `genqueue teams token`.",
        },
    )
    api.spec.components.security_scheme(
        CLIENT_SCHEME,
        {
            "type": "apiKey",
            "in": "header",
            "name": "X-Muxi-Client-Key",
            "description": "A client's key to the formation, one of GENQUEUE_FORMATION_KEYS.",
        },
    )
