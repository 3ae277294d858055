"""Where does Prometheus read? `/metrics`, open to all unless a token is set (X10, A23)."""

from __future__ import annotations

import hmac
from typing import Final

from flask import Blueprint, Response, current_app, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from jobs import metrics
from jobs.store.connection import connect
from service.context import current_runtime
from service.store_figures import StoreFigures

SCRAPE_TIMEOUT_S: Final = 3.0
"""A scrape says what it has rather than wait for a Redis that is away."""

blueprint = Blueprint("metrics", __name__)

_FIGURES: Final = "genqueue_figures"


@blueprint.get("/metrics")
def show_metrics() -> Response:
    """The figures of all web processes and of the store, in the format that is asked for."""
    settings = current_runtime().settings
    _require_token(settings.metrics_token)
    figures = current_app.extensions.get(_FIGURES)
    if figures is None:
        redis = connect(settings.redis_url, socket_timeout_s=SCRAPE_TIMEOUT_S)
        figures = current_app.extensions.setdefault(_FIGURES, StoreFigures(redis, settings))
    body, content_type = metrics.page(
        request.headers.get("Accept", ""),
        shared_folder=settings.metrics_folder,
        beside=figures,
    )
    return Response(body, content_type=content_type)


def _require_token(token: str) -> None:
    presented = request.headers.get("Authorization", "").encode("utf-8", "replace")
    if token and not hmac.compare_digest(presented, f"Bearer {token}".encode()):
        raise Unauthorized(
            "Send `Authorization: Bearer` with the token in GENQUEUE_METRICS_TOKEN.",
            www_authenticate=WWWAuthenticate("bearer", {"realm": "genqueue metrics"}),
        )
