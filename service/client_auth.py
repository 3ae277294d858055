"""Which client of the formation calls, and for which of its users? (C21, X12)

Looked at before the body is. The key is compared with all that are set; the user is whom the
client says, and parts its requests from those of its other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from flask import g, request

from jobs import logs
from jobs.domain.client_keys import client_id_of, key_presented
from service.context import current_runtime
from service.errors import ClientUnauthenticatedError, FieldError, PayloadInvalidError

KEY_HEADER: Final = "X-Muxi-Client-Key"
USER_HEADER: Final = "X-Muxi-User-Id"
USER_MAX_CHARS: Final = 128

USER_PARAMETER: Final[dict[str, Any]] = {
    "in": "header",
    "name": USER_HEADER,
    "required": False,
    "description": "The user for whom the client calls: printable characters, in UTF-8, without"
    " a space at an end. Requests of one user are not there for another, and those without this"
    " header for neither.",
    "schema": {"type": "string", "minLength": 1, "maxLength": USER_MAX_CHARS},
}
"""The header as the OpenAPI document has it."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who calls: a client by the id of its key, and its user, "" where it named none."""

    client_id: str
    user_id: str


def require_client() -> None:
    """Find out who calls, for `current_client`.

    Raises ClientUnauthenticatedError for whatever is not exactly one of the formation's keys,
    then PayloadInvalidError for a user id that can't be kept.
    """
    known = current_runtime().settings.formation_keys
    # Two headers arrive joined by a comma, which no key contains.
    key = key_presented(request.headers.get(KEY_HEADER, ""), known)
    if key is None:
        raise ClientUnauthenticatedError(is_configured=bool(known))
    g.client = Client(client_id_of(key), _presented_user())
    logs.bind(client=g.client.client_id)


def current_client() -> Client:
    """Who makes this request; only behind `require_client`."""
    return cast("Client", g.client)


def _presented_user() -> str:
    presented = request.headers.get(USER_HEADER)
    if presented is None:
        return ""
    try:
        # WSGI gives the bytes of a header as if they were Latin-1.
        user_id = presented.encode("latin-1").decode("utf-8")
    except UnicodeError:
        raise _refused("must be UTF-8") from None
    if not 1 <= len(user_id) <= USER_MAX_CHARS:
        raise _refused(f"must be 1 to {USER_MAX_CHARS} characters")
    if not user_id.isprintable() or user_id != user_id.strip():
        raise _refused("must be printable characters without a space at an end")
    return user_id


def _refused(reason: str) -> PayloadInvalidError:
    return PayloadInvalidError([FieldError(USER_HEADER, reason)])
