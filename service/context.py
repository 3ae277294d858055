"""What does a request know about itself: the process's parts, the caller, its own id?"""

from __future__ import annotations

from typing import Final, cast

from flask import Flask, current_app, g

from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from service.fanout import Fanout

_EXTENSION: Final = "genqueue"
_FANOUT: Final = "genqueue_fanout"


def attach_runtime(app: Flask, runtime: Runtime) -> None:
    """Give `app` the parts that its requests work with."""
    app.extensions[_EXTENSION] = runtime
    app.extensions[_FANOUT] = Fanout(
        runtime.events,
        limit=runtime.settings.stream_limit,
        limit_per_org=runtime.settings.stream_limit_per_org,
    )


def fanout_of(app: Flask) -> Fanout:
    """The one reader of events of the process that serves `app`."""
    return cast("Fanout", app.extensions[_FANOUT])


def current_fanout() -> Fanout:
    """The one reader of events of the process that answers this request."""
    return cast("Fanout", current_app.extensions[_FANOUT])


def current_runtime() -> Runtime:
    """The parts of the process that answers this request."""
    return cast("Runtime", current_app.extensions[_EXTENSION])


def current_identity() -> Identity:
    """On whose behalf this request is made; only behind `require_identity`."""
    return cast("Identity", g.identity)


def current_request_id() -> str:
    """The id under which this request is logged and answered; "" outside of one."""
    return str(g.get("request_id", ""))
