"""Who is calling? `Authorization: Bearer gq_...`, looked at before the body is (X12)."""

from __future__ import annotations

from flask import g, request

from service.context import current_runtime
from service.errors import UnauthenticatedError


def require_identity() -> None:
    """Find out on whose behalf the request is made, for `current_identity`.

    Raises UnauthenticatedError for whatever is not exactly one valid key, and
    StoreUnavailableError. Two headers arrive joined by a comma, which no key contains.
    """
    header = request.headers.get("Authorization")
    scheme, _, presented = (header or "").partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthenticatedError(presented=bool(header))
    identity = current_runtime().credentials.authenticate(presented.strip(" "))
    if identity is None:
        raise UnauthenticatedError(presented=True)
    g.identity = identity
