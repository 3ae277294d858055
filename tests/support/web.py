"""How does a test run the API as its user would: gunicorn with several processes?"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.stack.free_port import free_port
from tests.support.processes import Process
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Answered:
    """Status, body and headers of an answer."""

    status: int
    body: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Web:
    """A running gunicorn; `process.output()` is what it logged."""

    process: Process
    port: int

    def ask(self, path: str, body: object = None, **headers: str) -> Answered:
        """One request on a connection of its own; `content_type="x"` is Content-Type."""
        data = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            named["Content-Type"] = "application/json"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, named)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return Answered(answer.status, answer.read().decode(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Answered(error.code, error.read().decode(), dict(error.headers))

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            return self.ask("/healthz").status == 200
        except OSError:
            return False


@contextmanager
def gunicorn(folder: Path, *, workers: int = 2, **environment: str) -> Iterator[Web]:
    """The API on a free port of loopback, until the end of the block."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"]
    command += ["--bind", f"127.0.0.1:{port}", "--workers", str(workers), "--threads", "4"]
    command += ["--no-control-socket"]
    environment = {"TMPDIR": str(folder), **environment}
    process = Process(command, environment, folder / f"gunicorn-{port}.log")
    web = Web(process, port)
    try:
        wait_until(lambda: web.is_up() or not process.is_running, 30, "gunicorn answers")
        assert process.is_running, process.output()
        yield web
    finally:
        process.end()
