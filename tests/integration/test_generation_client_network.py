"""How does a step's client hold up on a network that fails, and before a real deployment? (B30)"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.step import Ended, NoAnswer, Pending, Result, StepRequest
from jobs.generation_client import HttpGenerationClient
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.teams import Teams
from service.stack.free_port import free_port
from tests.support.factories import claim_one
from tests.support.full_port import full_port
from tests.support.openai_server import OpenAIServer, answer, openai_server
from tests.support.web import gunicorn

TOKEN = "team-token-0123456789"
HANDLE = "3f0c6f9e-5f7e-4a43-9d0e-2f6c1f0a7b11"
RESULT = Result(HANDLE, {"text": "Hello.", "fields": {}})
SUCCEEDED = {"id": HANDLE, "status": "succeeded", "result": RESULT.envelope, "error": None}
REQUEST = StepRequest("7", "acme", "run-1", "flow-1", "Say {{ hello }}.", "mock-1", {}, "w" * 32)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """One that always has the generation."""
    with openai_server(answer(SUCCEEDED)) as running:
        yield running


@pytest.fixture
def client(server: OpenAIServer) -> HttpGenerationClient:
    return HttpGenerationClient(f"http://127.0.0.1:{server.port}", TOKEN)


@pytest.mark.req("B30")
def test_nobody_there_is_no_answer_and_no_address_is_told() -> None:
    address = f"http://127.0.0.1:{free_port()}"

    assert HttpGenerationClient(address, TOKEN).submit(REQUEST) == NoAnswer("no connection")


@pytest.mark.req("B30")
def test_a_port_that_accepts_nothing_is_given_up_in_time() -> None:
    with full_port() as port:
        client = HttpGenerationClient(
            f"http://127.0.0.1:{port}", TOKEN, submit_within_s=0.5, retrieve_within_s=0.3
        )
        started_s = time.monotonic()
        got = client.retrieve("7", HANDLE)

    assert got == NoAnswer("nothing within 0.3 s")
    assert time.monotonic() - started_s < 2


@pytest.mark.req("B30", "X12")
def test_neither_a_proxy_nor_a_netrc_of_the_environment_is_used(
    server: OpenAIServer,
    client: HttpGenerationClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert client.retrieve("7", HANDLE) == RESULT
    assert server.requests[0].header("authorization") == f"Bearer {TOKEN}"


@pytest.mark.req("B30")
def test_calls_share_a_connection_but_not_with_the_child_of_a_fork(
    server: OpenAIServer, client: HttpGenerationClient
) -> None:
    client.retrieve("7", HANDLE)
    client.retrieve("7", HANDLE)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if client.retrieve("7", HANDLE) == RESULT else 1)
    _, status = os.waitpid(pid, 0)
    client.retrieve("7", HANDLE)

    assert status == 0
    assert [request.connection for request in server.requests] == [1, 1, 2, 1]


@pytest.mark.req("B1", "B4", "B5", "B9", "B30")
def test_a_generation_of_a_real_deployment_is_submitted_and_collected(
    runtime: Runtime, redis_url: str, tmp_path: Path
) -> None:
    Teams(runtime.redis).create("7", "acme")
    token = runtime.credentials.create_for_team("7", "acme")[1]
    runtime.credits.set_cap("acme", 1_000_000)
    with gunicorn(tmp_path, workers=1, REDIS_URL=redis_url) as web:
        client = HttpGenerationClient(f"http://127.0.0.1:{web.port}", token)
        refused = client.submit(REQUEST)
        Flags(runtime.redis).enable(WORKFLOWS_LLM_ACTION, "acme")
        accepted = client.submit(REQUEST)
        assert isinstance(accepted, Pending)
        assert client.submit(REQUEST) == accepted
        assert client.retrieve("7", accepted.generation_id) == accepted
        assert runtime.redis.exists(keys.WAITERS(accepted.generation_id)) == 0

        attempt = claim_one(runtime.queue)
        runtime.queue.succeed_generation(
            attempt.job.id, attempt.token, json.dumps({"text": "Hi.", "fields": {}}), ""
        )
        collected = client.retrieve("7", accepted.generation_id)
        unknown = client.submit(replace(REQUEST, model="gpt-0"))
        gone = client.retrieve("7", HANDLE)
        foreign = HttpGenerationClient(f"http://127.0.0.1:{web.port}", "k" * 32).submit(REQUEST)

    assert refused == Ended(
        GenerationCode.FEATURE_UNAVAILABLE, COPY[GenerationCode.FEATURE_UNAVAILABLE]
    )
    assert attempt.prompt_text == REQUEST.prompt
    assert collected == Result(accepted.generation_id, {"text": "Hi.", "fields": {}})
    assert unknown == Ended(GenerationCode.INVALID_MODEL, COPY[GenerationCode.INVALID_MODEL])
    assert isinstance(gone, Ended)
    assert isinstance(foreign, Ended)
    assert "HTTP 401" in foreign.message
