"""What do the tests of the HTTP service share? The app over this test's Redis, and a caller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from jobs.runtime import Runtime
from service.app import create_app
from service.context import fanout_of
from service.stack.free_port import free_port
from tests.integration.service.chat_caller import ChatCaller, chat_app
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

Keyspace = dict[bytes, bytes | None]


@dataclass(frozen=True)
class Caller:
    """A client that sends the key of one org and user with every request."""

    http: FlaskClient
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def post(self, payload: object, **headers: str) -> TestResponse:
        """`POST /v1/prompt`; `idempotency_key="k"` is the header Idempotency-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Content-Type"] = "application/json"
        body = json.dumps(payload)
        return self.http.post("/v1/prompt", data=body, headers={**self.headers, **named})

    def post_raw(self, body: bytes, content_type: str = "application/json") -> TestResponse:
        headers = {**self.headers, "Content-Type": content_type}
        return self.http.post("/v1/prompt", data=body, headers=headers)

    def post_raw_with_key(self, body: bytes, key: str) -> TestResponse:
        headers = {**self.headers, "Content-Type": "application/json", "Idempotency-Key": key}
        return self.http.post("/v1/prompt", data=body, headers=headers)

    def get(self, path: str) -> TestResponse:
        return self.http.get(path, headers=self.headers)


@pytest.fixture
def http(runtime: Runtime) -> Iterator[FlaskClient]:
    app = create_app(runtime)
    yield app.test_client()
    fanout_of(app).close()


@pytest.fixture
def make_caller(runtime: Runtime, http: FlaskClient) -> Callable[[str, str], Caller]:
    def make(org: str, user: str) -> Caller:
        return Caller(http, runtime.credentials.create(org, user)[1])

    return make


@pytest.fixture
def caller(make_caller: Callable[[str, str], Caller]) -> Caller:
    return make_caller("acme", "ann")


@pytest.fixture
def keyspace(redis_url: str) -> Iterator[Callable[[], Keyspace]]:
    """All that Redis holds, key by key; equal before and after where nothing was stored."""
    raw = Redis.from_url(redis_url)

    def snapshot() -> Keyspace:
        return {name: raw.dump(name) for name in raw.scan_iter(count=1000)}

    yield snapshot
    raw.close()


@dataclass(frozen=True)
class WebServer:
    """gunicorn, as it is run in earnest, on a port of its own."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=1):
                return True
        except OSError:
            return False


@pytest.fixture(scope="session")
def _gunicorn(redis_server: RedisServer) -> Iterator[WebServer]:
    server = WebServer(free_port())
    command = [sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"]
    command += ["--bind", f"127.0.0.1:{server.port}", "--workers", "1", "--threads", "8"]
    command += ["--no-control-socket", "--log-level", "warning"]
    process = subprocess.Popen(command, env={**os.environ, "REDIS_URL": redis_server.url})
    try:
        wait_until(server.answers, 30, "gunicorn answers")
        yield server
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def web_server(_gunicorn: WebServer, redis_url: str) -> WebServer:
    """The server over this test's empty Redis."""
    return _gunicorn


@pytest.fixture
def ada(runtime: Runtime) -> Iterator[ChatCaller]:
    """User ada of the formation's first client."""
    with chat_app(runtime) as caller:
        yield caller
