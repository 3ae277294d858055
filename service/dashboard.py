"""How do operators see RQ in a browser? rq-dashboard at /admin/rq, behind the admin login (X7).

rq-dashboard 0.9 has no login, changes state by GET, believes every site that asks, unpickles
what it finds in Redis, and puts text of strangers into its pages as it is. What is here stands
around it; what it does itself is pinned by tests/contract/rq. (SEC-01, SEC-03)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import rq.serializers
from flask import Flask, Response, current_app, request
from rq.exceptions import DeserializationError, InvalidJobOperation, NoSuchJobError
from werkzeug.exceptions import Conflict, Forbidden, MethodNotAllowed, NotFound

from jobs.runtime import Runtime
from jobs.store.connection import store_errors
from service.admin import AdminLogin, require_same_origin

PREFIX: Final = "/admin/rq"
_NAME: Final = "rq_dashboard"
_REDIS: Final = "genqueue_dashboard"

READS: Final = frozenset(
    {
        "static",
        "favicon",
        "queues_overview",
        "workers_overview",
        "jobs_overview",
        "job_view",
        "list_queues",
        "list_workers",
        "list_jobs",
        "job_info",
    }
)
"""Its pages that only show; anything else is answered to a POST of the same origin alone."""

ACTIONS: Final = frozenset({"delete_job_view", "requeue_job_view", "requeue_all", "empty_queue"})

REGISTRIES: Final = frozenset(
    {"queued", "failed", "deferred", "started", "finished", "scheduled", "canceled"}
)

HEADERS: Final = {
    # Its templates need both "unsafe": pages are put together by scripts inside them.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval';"
        " style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}

_PAGE: Final = re.compile("[1-9][0-9]{0,3}")
_QUOTED: Final = re.compile(r"<%= \$\('<div/>'\)\.text\((d\.\w+)\)\.html\(\) %>")


def mount_dashboard(app: Flask, runtime: Runtime) -> None:
    """Serve rq-dashboard under PREFIX; where no admin is set, only say how to enable it."""
    login = AdminLogin(runtime.settings)

    def guard() -> None:
        if request.path != PREFIX and not request.path.startswith(f"{PREFIX}/"):
            return
        login.require(request)
        if request.endpoint is None:
            return
        _guard_view(request.endpoint.removeprefix(f"{_NAME}."), request.view_args or {})

    app.before_request(guard)
    app.after_request(_harden)
    if login.is_enabled:
        _register(app, runtime)


def _guard_view(view: str, arguments: dict[str, Any]) -> None:
    """Raise what keeps a request from a page of rq-dashboard."""
    if view not in READS | ACTIONS:
        raise Forbidden("This page of rq-dashboard is not known to be safe.")
    if view in ACTIONS:
        if request.method != "POST":
            raise MethodNotAllowed(["POST"])
        require_same_origin(request)
    if arguments.get("instance_number", 0) != 0:
        raise NotFound
    if (arguments.get("registry_name") or "queued") not in REGISTRIES:
        raise NotFound
    if not all(_PAGE.fullmatch(str(arguments.get(name, 1))) for name in ("page", "per_page")):
        raise NotFound


def _register(app: Flask, runtime: Runtime) -> None:
    from rq_dashboard import web  # noqa: PLC0415  # costs 0.2 s where it is not enabled

    # What RQ falls back to wherever it is given no serializer, and rq-dashboard mostly gives
    # none. This process has nothing to do with pickle.
    pickling: Any = rq.serializers
    pickling.PickleSerializer = rq.serializers.JSONSerializer
    web.config.serializer = rq.serializers.JSONSerializer
    # It opens a connection for every request otherwise.
    web.from_url = _our_redis
    app.extensions[_REDIS] = runtime.rq_redis
    app.redis_conn = runtime.rq_redis  # type: ignore[attr-defined]  # rq-dashboard looks there
    # Shown on its pages, and without what may be a password.
    address = urlsplit(runtime.settings.redis_url)
    app.config["RQ_DASHBOARD_REDIS_URL"] = (address.hostname or address.path,)
    app.register_blueprint(web.blueprint, url_prefix=PREFIX)
    for view in ACTIONS | READS - {"static"}:
        endpoint = f"{_NAME}.{view}"
        app.view_functions[endpoint] = _telling(app.view_functions[endpoint])


def _our_redis(_url: str, **_options: Any) -> tuple[None, Any]:
    return None, current_app.extensions[_REDIS]


def _telling(view: Callable[..., Any]) -> Callable[..., Any]:
    """`view`, with what it raises told as what it means."""

    @wraps(view)
    def tell(**arguments: Any) -> Any:
        try:
            with store_errors():
                return view(**arguments)
        except NoSuchJobError as error:
            raise NotFound("RQ has no such job; it may have ended.") from error
        except InvalidJobOperation as error:
            raise Conflict("The RQ job is not in the failed registry any more.") from error
        except (DeserializationError, ValueError) as error:
            raise Conflict("An RQ job here is not JSON, so it is not read.") from error

    return tell


def _harden(response: Response) -> Response:
    """Headers, and every value that a page's own templates put into HTML is escaped."""
    if request.blueprint != _NAME:
        return response
    for name, value in HEADERS.items():
        response.headers[name] = value
    if response.mimetype == "text/html" and not response.direct_passthrough:
        text = _QUOTED.sub(r"<%- \1 %>", response.get_data(as_text=True))
        response.set_data(text.replace("<%=", "<%-"))
    return response
