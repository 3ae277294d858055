"""How is a bench served over HTTP? By gunicorn as the stack runs it, ready to answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import requests

from service.stack.free_port import free_port
from service.stack.supervisor import process_table
from tests.bench.stage import Stage, Started, wait_for

APP: Final = "service.app:create_app()"


@dataclass(frozen=True)
class WebServer:
    """A server that answers, on `port` of loopback."""

    port: int
    started: Started


def serve(
    stage: Stage, environment: Mapping[str, str], processes: int = 2, app: str = APP
) -> WebServer:
    """Start that many web processes of `app`, and wait until one of them answers: the socket
    listens long before an application is loaded."""
    port = free_port()
    (api,) = (spec for spec in process_table(port) if spec.name == "api")
    assert api.command[0] == sys.executable
    command = [word for word in api.command if word != APP]
    # Of an option that is given twice gunicorn takes the last one.
    command += ["--workers", str(processes)]
    gunicorn = stage.spawn("gunicorn", [*command, app], environment)

    def serves() -> bool:
        if gunicorn.process.poll() is not None:
            raise RuntimeError(f"gunicorn ended: {gunicorn.log.read_text()[-2000:]}")
        try:
            requests.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
        except requests.RequestException:
            return False
        return True

    wait_for(serves, 30, "gunicorn to answer")
    return WebServer(port, gunicorn)
