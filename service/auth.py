"""Who is calling? `Authorization: Bearer gq_...`, looked at before the body is (X12)."""

from __future__ import annotations

from flask import g, request

from service.context import current_runtime
from service.errors import UnauthenticatedError


def presented_key() -> str:
    """The key that came with the request, valid or not; "" where none did."""
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    return presented.strip(" ") if scheme.lower() == "bearer" else ""


def require_identity() -> None:
    """Find out on whose behalf the request is made, for `current_identity`.

    Raises UnauthenticatedError for whatever is not exactly one valid key, and
    StoreUnavailableError. Two headers arrive joined by a comma, which no key contains.
    """
    if not presented_key():
        raise UnauthenticatedError(presented=bool(request.headers.get("Authorization")))
    identity = current_runtime().credentials.authenticate(presented_key())
    if identity is None:
        raise UnauthenticatedError(presented=True)
    g.identity = identity
