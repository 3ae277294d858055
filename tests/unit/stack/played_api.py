"""What does an API look like that plays back prepared answers, for the stack's first talk?"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

KEY = "gq_known"
TOKEN = "gqt_known"
JOB = {"id": "j1", "state": "succeeded", "terminal": True}
GENERATIONS = "/api/projects/dev/workflow_llm_generations/"
LOCATIONS = {"/v1/prompt": "/v1/jobs/j1", GENERATIONS: f"{GENERATIONS}g1/"}


class Played(NamedTuple):
    """An answer."""

    status: int
    body: object


def generation(status: str, result: object = None, error: object = None) -> dict[str, object]:
    """The body of a generation as the API shows it."""
    return {"id": "g1", "status": status, "result": result, "error": error}


SUCCEEDED = Played(200, generation("succeeded", result={"text": "Hello.", "fields": {}}))


@dataclass
class Api:
    """What it answers, look by look; the last one stays. What it saw is in `seen`, `bodies`."""

    url: str = ""
    ready: list[int] = field(default_factory=lambda: [200])
    looks: list[dict[str, object]] = field(default_factory=lambda: [JOB])
    submitted: Played = field(default_factory=lambda: Played(202, generation("pending")))
    collected: list[Played] = field(default_factory=lambda: [SUCCEEDED])
    seen: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def get(self, path: str, secret: str) -> Played:
        if path == "/readyz":
            return Played(next_of(self.ready), {"why": "redis is loading"})
        if secret != (TOKEN if path.startswith(GENERATIONS) else KEY):
            return Played(401, {})
        if path == f"{GENERATIONS}g1/":
            return next_of(self.collected)
        if path == "/v1/jobs/j1":
            return Played(200, next_of(self.looks))
        if path == "/v1/prompts/p1":
            return Played(200, {"response": {"text": "beep", "provider": "mock"}})
        return Played(404, {})

    def post(self, path: str, secret: str) -> Played:
        if path == GENERATIONS and secret == TOKEN:
            return self.submitted
        known = path == "/v1/prompt" and secret == KEY
        return Played(202 if known else 401, {"prompt_id": "p1", "job_id": "j1"})


def next_of(items: list[Any]) -> Any:
    return items.pop(0) if len(items) > 1 else items[0]


@contextmanager
def played_api() -> Iterator[Api]:
    """An API on a port of its own."""
    played = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(played.get(self.path, self.secret))

        def do_POST(self) -> None:
            played.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(played.post(self.path, self.secret))

        @property
        def secret(self) -> str:
            return (self.headers["Authorization"] or "").removeprefix("Bearer ")

        def answer(self, answer: Played) -> None:
            played.seen.append(f"{self.command} {self.path}")
            self.send_response(answer.status)
            self.send_header("Location", LOCATIONS.get(self.path, ""))
            self.end_headers()
            self.wfile.write(json.dumps(answer.body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever).start()
        yield played
        server.shutdown()
