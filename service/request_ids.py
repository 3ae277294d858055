"""Under which id is a request logged and answered? The caller's own where it is sane."""

from __future__ import annotations

import re
import uuid
from typing import Final

from flask import Flask, Response, g, request

HEADER: Final = "X-Request-Id"
_SANE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _take_over() -> None:
    presented = request.headers.get(HEADER, "")
    g.request_id = presented if _SANE.fullmatch(presented) else uuid.uuid4().hex


def _echo(response: Response) -> Response:
    response.headers[HEADER] = g.get("request_id", "")
    # An answer is never a page of another type than it says, whatever text it carries.
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def number_requests(app: Flask) -> None:
    """Give every request an id before anything else looks at it, and every answer its header."""
    app.before_request(_take_over)
    app.after_request(_echo)
