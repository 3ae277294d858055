"""How do tests follow events as a client does? gunicorn as it is run, and streams of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from service.stack.free_port import free_port
from tests.support.processes import Process
from tests.support.sse_client import EventStream, Message
from tests.support.waiting import wait_until

EVENTS = "/v1/mission/events"


@dataclass(frozen=True)
class StreamServer:
    """One gunicorn process with its own settings."""

    process: Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def web_process(self) -> psutil.Process:
        """The process that answers: the only child of gunicorn's own."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def stream(self, key: str, query: str = "", last_event_id: str | None = None) -> EventStream:
        headers = {"Authorization": f"Bearer {key}"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        return EventStream(self.port, EVENTS + query, headers)

    def opened(self, key: str, query: str = "", last_event_id: str | None = None) -> EventStream:
        """A stream that is known to be open."""
        stream = self.stream(key, query, last_event_id)
        assert stream.status == 200, stream.response.read()
        stream.wait_open()
        return stream

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=1).ok
        except requests.RequestException:
            return False


def numbers(messages: list[Message]) -> list[int]:
    """The numbers of the events that were told."""
    return [message.json["seq"] for message in messages]


@contextmanager
def stream_server(
    folder: Path, redis_url: str, *words: str, **settings: object
) -> Iterator[StreamServer]:
    """gunicorn with one process; settings by keyword, `stream_limit=3`."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"]
    command += ["--bind", f"127.0.0.1:{port}", "--workers", "1", "--no-control-socket", *words]
    environment = {"REDIS_URL": redis_url}
    environment |= {f"GENQUEUE_{name.upper()}": str(value) for name, value in settings.items()}
    process = Process(command, environment, folder / f"gunicorn-{port}.log")
    server = StreamServer(process, port)
    try:
        wait_until(lambda: server.answers() or not process.is_running, 30, "gunicorn answers")
        assert process.is_running, process.output()
        yield server
    finally:
        process.end()
