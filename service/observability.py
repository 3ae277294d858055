"""What is told of every request: a log line, a figure, and where it failed an event (X10)."""

from __future__ import annotations

import logging
import re
import time
from typing import Final

from flask import Flask, Response, g, request

from jobs import logs, metrics, sentry
from jobs.settings import Settings
from service.context import current_request_id

logger = logging.getLogger("service.access")

PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds: logged at debug level while all is well."""

UNMATCHED: Final = "unmatched"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}"
    r"-[0-9a-f]{2}(?P<more>-.*)?"
)
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IDS: Final = ("job_id", "prompt_id")


def observe(app: Flask, settings: Settings) -> None:
    """Watch every request of `app`; register it after what gives requests their ids."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(_forget)
    if settings.sentry_dsn:
        from sentry_sdk.integrations.flask import FlaskIntegration  # noqa: PLC0415  # costs 0.1 s

        sentry.start(settings.sentry_dsn, settings, [FlaskIntegration(transaction_style="url")])


def trace_id(traceparent: str) -> str:
    """The trace id of a W3C traceparent header; "" where there is none or it is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent)
    # The first version of the header has nothing after its flags; later ones may.
    if found is None or (found["more"] and found["version"] == "00"):
        return ""
    return found["trace"]


def _begin() -> None:
    g.started_s = time.monotonic()
    logs.clear()
    request_id = current_request_id()
    traced = trace_id(request.headers.get("traceparent", ""))
    logs.bind(request_id=request_id, trace_id=traced or request_id)
    for name in _IDS:
        value = (request.view_args or {}).get(name, "")
        # What stands in its place may be anything that a caller typed.
        if _ID.fullmatch(value):
            logs.bind(**{name: value})


def _end(response: Response) -> Response:
    """Told when the answer begins: that of a stream goes on for long."""
    took_s = time.monotonic() - g.get("started_s", time.monotonic())
    route = request.url_rule.rule if request.url_rule else UNMATCHED
    method = request.method if request.method in _METHODS else "other"
    status = response.status_code
    metrics.REQUESTS.labels(method, route, status).observe(took_s)
    level = logging.DEBUG if route in PROBES and status < 400 else logging.INFO
    fields = {
        "method": method,
        "route": route,
        "status": status,
        "duration_ms": round(took_s * 1000, 1),
    }
    identity = g.get("identity")
    if identity is not None:
        fields["org"] = identity.org_id
    logger.log(level, "%s %s %d", method, route, status, extra={"fields": fields})
    return response


def _forget(_error: BaseException | None) -> None:
    logs.clear()
