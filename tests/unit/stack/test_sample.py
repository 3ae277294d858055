"""How does the first conversation with the API go, and how does it fail?"""

import json
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from service.stack import greeting
from service.stack.errors import SampleFailedError, StackNotReadyError
from service.stack.free_port import free_port
from service.stack.sample import SampleAnswer, StackClient, development_key

KEY = "gq_known"
JOB = {"id": "j1", "state": "succeeded", "terminal": True}
RUNNING = {"id": "j1", "state": "running", "terminal": False}


@dataclass
class Api:
    """An API that plays back the state of one job, look by look; the last one stays."""

    url: str = ""
    ready: list[int] = field(default_factory=lambda: [200])
    looks: list[dict[str, object]] = field(default_factory=lambda: [JOB])
    seen: list[str] = field(default_factory=list)


def next_of(items: list[object]) -> object:
    return items.pop(0) if len(items) > 1 else items[0]


@pytest.fixture
def api() -> Iterator[Api]:
    played = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == f"Bearer {KEY}"
            if self.path == "/readyz":
                self.answer(next_of(played.ready), {"why": "redis is loading"})
            elif not known:
                self.answer(401, {})
            elif self.path == "/v1/jobs/j1":
                self.answer(200, next_of(played.looks))
            elif self.path == "/v1/prompts/p1":
                self.answer(200, {"response": {"text": "beep", "provider": "mock"}})
            else:
                self.answer(404, {})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers["Authorization"] == f"Bearer {KEY}"
            self.answer(202 if known else 401, {"prompt_id": "p1", "job_id": "j1"})

        def answer(self, status: int, body: object) -> None:
            played.seen.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Location", "/v1/jobs/j1")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever).start()
        yield played
        server.shutdown()


def no_pause(_seconds: float) -> None:
    return None


def test_the_sample_is_submitted_polled_and_fetched(api: Api) -> None:
    api.looks = [RUNNING, RUNNING, JOB]
    answer = StackClient(api.url, no_pause).run_sample(KEY)
    assert (answer.text, answer.provider, answer.job_id) == ("beep", "mock", "j1")
    look = "GET /v1/jobs/j1"
    assert api.seen == ["POST /v1/prompt", look, look, look, "GET /v1/prompts/p1"]


def test_a_failed_sample_says_how_its_job_ended(api: Api) -> None:
    api.looks = [JOB | {"state": "failed", "error_kind": "auth", "error_message": "no such key"}]
    with pytest.raises(SampleFailedError, match="j1 ended failed, auth: no such key"):
        StackClient(api.url, no_pause).run_sample(KEY)


def test_a_sample_that_does_not_end_is_given_up(api: Api) -> None:
    api.looks = [RUNNING]
    with pytest.raises(SampleFailedError, match="j1 is still running"):
        StackClient(api.url, no_pause).run_sample(KEY, within_s=0.05)


def test_a_refused_sample_says_the_status(api: Api) -> None:
    with pytest.raises(SampleFailedError, match="submit answered 401"):
        StackClient(api.url, no_pause).run_sample("gq_unknown")


def test_the_wait_goes_on_until_the_api_is_ready(api: Api) -> None:
    api.ready = [503, 503, 200]
    StackClient(api.url, no_pause).wait_until_ready()
    assert api.seen == ["GET /readyz"] * 3


def test_an_api_that_never_gets_ready_is_told_with_its_last_answer(api: Api) -> None:
    api.ready = [503]
    with pytest.raises(StackNotReadyError, match=r"status 503.*redis is loading"):
        StackClient(api.url, no_pause).wait_until_ready(within_s=0.05)


def test_an_api_that_does_not_listen_is_told_as_no_answer() -> None:
    client = StackClient(f"http://127.0.0.1:{free_port()}", no_pause)
    with pytest.raises(StackNotReadyError, match="no answer"):
        client.wait_until_ready(within_s=0.05)


def test_a_kept_key_that_still_opens_is_used_again(api: Api, tmp_path: Path) -> None:
    (tmp_path / "dev-key").write_text(f"{KEY}\n")
    client = StackClient(api.url, no_pause)
    assert development_key(client, tmp_path / "dev-key", {}) == KEY


def test_a_new_key_is_kept_for_its_owner_only_also_over_an_open_file(
    api: Api, tmp_path: Path, redis_url: str
) -> None:
    path = tmp_path / "dev-key"
    path.write_text("gq_revoked\n")
    path.chmod(0o644)
    environment = os.environ | {"REDIS_URL": redis_url}
    key = development_key(StackClient(api.url, no_pause), path, environment)
    assert key.startswith("gq_")
    assert path.read_text() == f"{key}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_answer_of_the_mock_is_called_made_up_and_one_of_a_provider_is_not() -> None:
    made_up = SampleAnswer(prompt="p", text="t", job_id="j", provider="mock", took_s=0.1)
    real = SampleAnswer(prompt="p", text="t", job_id="j", provider="openai", took_s=0.1)
    assert "made up" in greeting.sample(made_up)
    assert "made up" not in greeting.sample(real)
