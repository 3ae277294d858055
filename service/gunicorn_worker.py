"""What does a client get whose request is no HTTP? A problem as well, and not a page of HTML."""

from __future__ import annotations

import json
import logging
import socket
import threading
import uuid
from http import HTTPStatus
from typing import Any, Final

from flask import Flask
from gunicorn.http import errors as parse
from gunicorn.workers.gthread import ThreadWorker

from service import errors as http
from service.context import fanout_of
from service.problems import CONTENT_TYPE, Problem, problem_body, problem_of

log = logging.getLogger(__name__)

_SEND_WITHIN_S: Final = 2.0
_STATUS: Final = {
    parse.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    parse.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    parse.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
    parse.UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
}


def problem_of_request(error: Exception) -> Problem:
    """The problem that tells why a request could not be read; it quotes nothing of it.

    An unreadable Authorization header is a wrong key like any other (X12).
    """
    if isinstance(error, parse.InvalidHeader) and error.hdr == "AUTHORIZATION":
        return problem_of(http.UnauthenticatedError(presented=True))
    if not isinstance(error, parse.ParseException):
        return problem_of(error)
    status = _STATUS.get(type(error), HTTPStatus.BAD_REQUEST)
    slug = status.phrase.lower().replace(" ", "-")
    return Problem(slug, status, status.phrase, "The request is not HTTP as this server reads it.")


class ProblemThreadWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn ships no types
    """gunicorn's gthread worker, which tells parse errors as problems (X3) and lets streams go
    when it is told to end: they would hold it up for the whole of its grace time."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop accepting; running requests end in their time, streams now."""
        super().handle_exit(sig, frame)
        app = getattr(self, "wsgi", None)  # not there while it is being loaded
        if isinstance(app, Flask):
            # A signal handler takes no lock: the thread that it broke into may hold it.
            threading.Thread(target=fanout_of(app).close, daemon=True).start()

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Answer a request that never reached the application, then let go of the client."""
        del req, addr
        request_id = uuid.uuid4().hex
        problem = problem_of_request(exc)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("request %s failed", request_id, exc_info=exc)
        body = json.dumps(problem_body(problem, request_id))
        headers = {
            "Content-Type": CONTENT_TYPE,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "X-Request-Id": request_id,
            **problem.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        phrase = HTTPStatus(problem.status).phrase
        answer = f"HTTP/1.1 {int(problem.status)} {phrase}\r\n{head}\r\n{body}"
        try:
            client.settimeout(_SEND_WITHIN_S)
            client.sendall(answer.encode("ascii"))
        except OSError:
            log.debug("request %s: the client went away", request_id)
