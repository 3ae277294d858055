"""How does a client talk to the formation in a test, and who works for it meanwhile?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from jobs.domain.job import PRIORITY_MAX
from jobs.domain.request_ids import job_id_of
from jobs.runtime import Runtime
from jobs.store.turns import PRIORITY
from jobs.worker.assembly import assemble
from service.app import create_app
from service.context import fanout_of
from tests.support.factories import claim
from tests.support.waiting import wait_until

KEY = "fmc_one-0123456789abcdef"
OTHER_KEY = "fmc_two-0123456789abcdef"
KEYS = (KEY, OTHER_KEY)

ESCALATES = "Chart the Q3 numbers [[mock error=provider_4xx]]"
"""The turn fails at once; the plan of the first background attempt does it."""

GIVES_UP = "Chart the Q3 numbers [[mock sticky error=provider_4xx]]"
"""No plan helps."""

FAILS = "Chart the Q3 numbers [[mock error=auth]]"
"""A failure that no plan gets round."""


@dataclass(frozen=True)
class ChatCaller:
    """A client that sends one key and, unless None, one user with every request."""

    http: FlaskClient
    key: str = KEY
    user: str | None = "ada"

    @property
    def headers(self) -> dict[str, str]:
        user = {} if self.user is None else {"X-Muxi-User-Id": self.user}
        return {"X-Muxi-Client-Key": self.key, **user}

    def chat(self, message: str = "Hello", body: Any = None, **headers: str) -> TestResponse:
        """`POST /v1/chat`; `idempotency_key="k"` is the header Idempotency-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        payload = {"message": message, **(body or {})}
        return self.http.post("/v1/chat", json=payload, headers={**self.headers, **named})

    def chat_raw(self, body: bytes, content_type: str = "application/json") -> TestResponse:
        headers = {**self.headers, "Content-Type": content_type}
        return self.http.post("/v1/chat", data=body, headers=headers)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.http.get(path, headers={**self.headers, **headers})

    def request(self, request_id: str) -> dict[str, Any]:
        """`data` of the request's status."""
        answer = self.get(f"/v1/requests/{request_id}")
        assert (answer.status_code, answer.mimetype) == (200, "application/json")
        assert answer.json is not None
        data: dict[str, Any] = answer.json["data"]
        return data

    def ended(self, request_id: str) -> dict[str, Any]:
        """As `request`, once it has ended."""
        wait_until(lambda: self.request(request_id)["ended_at"], 20, "the request has ended")
        return self.request(request_id)

    def delete(self, request_id: str) -> TestResponse:
        return self.http.delete(f"/v1/requests/{request_id}", headers=self.headers)

    def of(self, key: str | None = None, user: str | None = None) -> ChatCaller:
        """The same over the same app, of another key or user."""
        return replace(self, key=key or self.key, user=user)

    def again(self) -> ChatCaller:
        """The same with a client of its own, for a thread."""
        return replace(self, http=self.http.application.test_client())


def request_id_in(answer: TestResponse) -> str:
    """The id of the request that an answer names in all its places."""
    assert answer.json is not None
    request_id = str(answer.json["request"]["id"])
    assert answer.json["data"]["metadata"]["request_id"] == request_id
    assert answer.headers["Location"] == f"/v1/requests/{request_id}"
    assert job_id_of(request_id) is not None
    return request_id


def formation_file(folder: Path, **sections: Any) -> Path:
    """A formation that loses no time over retries; `overlord={…}` and others by keyword."""
    content: dict[str, Any] = {
        "agents": [{"id": "assistant"}],
        "overlord": {"workflow": {"retry": {"max_attempts": 1, "initial_delay": "1ms"}}},
        **sections,
    }
    path = folder / "formation.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@contextmanager
def chat_app(runtime: Runtime) -> Iterator[ChatCaller]:
    """A caller over an app of its own."""
    app = create_app(runtime)
    try:
        yield ChatCaller(app.test_client())
    finally:
        fanout_of(app).close()


@contextmanager
def crew_at_work(runtime: Runtime, *, is_for_turns: bool = False) -> Iterator[None]:
    """Runs whatever is to be had in threads of this process; where it `is_for_turns`, no
    background attempts."""
    ceiling = PRIORITY if is_for_turns else PRIORITY_MAX
    stop = threading.Event()
    crew = assemble(runtime, concurrency=2)

    def work() -> None:
        while not stop.is_set():
            for attempt in claim(runtime.queue, window_ms=90_000, ceiling=ceiling).attempts:
                crew.runner.run(attempt, crew.runner.scope(attempt))
            stop.wait(0.01)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
        crew.heartbeat.stop()
