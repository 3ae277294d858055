"""Who is calling? `Authorization: Bearer`, looked at before the body is (X12, B2).

A user's API key `gq_...` opens the routes under /v1, a team's token `gqt_...` those of its own
team; neither opens the other's.
"""

from __future__ import annotations

from flask import g, request

from jobs.domain.errors import GenerationMissingError
from jobs.store.credentials import Identity
from service.context import current_runtime
from service.errors import UnauthenticatedError


def presented_key() -> str:
    """The key that came with the request, valid or not; "" where none did."""
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    return presented.strip(" ") if scheme.lower() == "bearer" else ""


def require_identity() -> None:
    """Find out on whose behalf the request is made, for `current_identity`.

    Raises UnauthenticatedError for whatever is not exactly one valid API key, and
    StoreUnavailableError. Two headers arrive joined by a comma, which no key contains.
    """
    identity = _presented_identity()
    if identity.team_id is not None:
        raise UnauthenticatedError(presented=True)
    g.identity = identity


def require_team() -> None:
    """As `require_identity`, for the routes of the team in the address and by its token (B2).

    A token of another team is answered as an id that never was: GenerationMissingError.
    """
    identity = _presented_identity()
    if identity.team_id is None:
        raise UnauthenticatedError(presented=True)
    if identity.team_id != (request.view_args or {}).get("team_id"):
        raise GenerationMissingError("")
    g.identity = identity


def _presented_identity() -> Identity:
    if not presented_key():
        raise UnauthenticatedError(presented=bool(request.headers.get("Authorization")))
    identity = current_runtime().credentials.authenticate(presented_key())
    if identity is None:
        raise UnauthenticatedError(presented=True)
    return identity
