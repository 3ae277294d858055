"""How is a worker process watched? A metrics page on a port of its own, and Sentry (X10)."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from jobs import metrics, sentry
from jobs.settings import Settings

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)


def start_sentry(settings: Settings) -> None:
    """Send this process's errors to Sentry, where a DSN is set."""
    if settings.sentry_dsn:
        from sentry_sdk.integrations.rq import RqIntegration  # noqa: PLC0415  # costs 0.1 s

        sentry.start(settings.sentry_dsn, settings, [RqIntegration()])


def start_metrics_page(settings: Settings) -> None:
    """Serve `/metrics` of this process on every address, where a port is set.

    A port that is taken is logged and left: work matters more than its figures.
    """
    if not settings.worker_metrics_port:
        return
    application = metrics_page(settings.metrics_token)
    port = settings.worker_metrics_port
    try:
        server = make_server("", port, application, _Server, _SilentHandler)
    except OSError as error:
        logger.error("no metrics page on port %d: %s", port, error.strerror)
        return
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def metrics_page(token: str) -> WSGIApplication:
    """A WSGI application that answers `/metrics`; `token` "" leaves it open to all."""
    expected = f"Bearer {token}".encode()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        presented = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1")
        if environ.get("PATH_INFO") != "/metrics":
            return _plain(start_response, HTTPStatus.NOT_FOUND)
        if token and not hmac.compare_digest(presented, expected):
            return _plain(start_response, HTTPStatus.UNAUTHORIZED)
        body, content_type = metrics.page(environ.get("HTTP_ACCEPT", ""))
        start_response("200 OK", [("Content-Type", content_type)])
        return [body]

    return answer


def _plain(start_response: StartResponse, status: HTTPStatus) -> Iterable[bytes]:
    headers = [("Content-Type", "text/plain")]
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", 'Bearer realm="genqueue metrics"'))
    start_response(f"{status.value} {status.phrase}", headers)
    return [status.phrase.encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: a scrape every few seconds is no news."""
