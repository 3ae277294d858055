"""Does the process live, and can it take work? Asked by probes, without a key (X10, X13)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from flask import current_app

from jobs.store.connection import connect
from service.context import current_runtime
from service.openapi import Blueprint
from service.readiness import PROBE_TIMEOUT_S, check_ready
from service.schemas.health import HealthSchema, ReadinessSchema

blueprint = Blueprint("health", __name__, description="Probes")

_OPEN: Final[list[dict[str, Any]]] = []
_PROBE_CLIENT: Final = "genqueue_probe"


@blueprint.route("/healthz", methods=["GET"])
@blueprint.documents(operationId="getHealth", security=_OPEN)
@blueprint.answers(HTTPStatus.OK, HealthSchema)
def get_health() -> dict[str, str]:
    """Say that the process lives, whatever Redis does."""
    return {"status": "ok"}


@blueprint.route("/readyz", methods=["GET"])
@blueprint.documents(operationId="getReadiness", security=_OPEN)
@blueprint.answers(HTTPStatus.OK, ReadinessSchema, problems=(HTTPStatus.SERVICE_UNAVAILABLE,))
def get_readiness() -> dict[str, str]:
    """Say whether work can be taken: Redis answers, is writable and evicts nothing.

    `degraded` means that work is taken, and nobody takes back what crashed workers left.
    """
    settings = current_runtime().settings
    probe = current_app.extensions.get(_PROBE_CLIENT)
    if probe is None:
        fresh = connect(settings.redis_url, socket_timeout_s=PROBE_TIMEOUT_S)
        probe = current_app.extensions.setdefault(_PROBE_CLIENT, fresh)
    return {"status": check_ready(probe, sweep_interval_s=settings.sweep_interval_s)}
