"""Does the OpenAPI document tell the truth of the formation's routes? (X3)"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.runtime import Runtime
from service.request_views import ESCALATED
from tests.integration.service.chat_caller import KEY, KEYS, ChatCaller, chat_app, formation_file
from tests.integration.service.streams import stream_server
from tests.integration.service.team_caller import stored_jobs
from tests.support.processes import fleet

REQUEST = "/v1/requests/{request_id}"
DELIVERY = "/v1/deliveries/{delivery_id}"
ROUTES = [
    ("/v1/chat", "post"),
    (REQUEST, "get"),
    (REQUEST, "delete"),
    ("/v1/captains-log", "get"),
    ("/v1/deliveries", "get"),
    (DELIVERY, "get"),
    (f"{DELIVERY}/replay", "post"),
]


@pytest.fixture
def ada(make_runtime: Callable[..., Runtime]) -> Iterator[ChatCaller]:
    with chat_app(make_runtime(formation_keys=KEYS)) as caller:
        yield caller


@pytest.fixture
def document(ada: ChatCaller) -> dict[str, Any]:
    body: dict[str, Any] = ada.http.get("/openapi.json").json  # type: ignore[assignment]
    return body


@pytest.mark.req("X3", "C21")
def test_callers_find_the_key_and_the_user_in_it(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["clientKey"]
    assert (scheme["type"], scheme["in"]) == ("apiKey", "header")
    assert scheme["name"] == "X-Muxi-Client-Key"
    for path, method in ROUTES:
        assert document["paths"][path][method]["security"] == [{"clientKey": []}]
        (user,) = (
            one for one in document["paths"][path]["parameters"] if one["name"] == "X-Muxi-User-Id"
        )
        assert (user["in"], user["required"]) == ("header", False)
        assert "401" in document["paths"][path][method]["responses"]


@pytest.mark.req("X3", "X4")
def test_callers_find_every_answer_in_it(document: dict[str, Any]) -> None:
    chat = document["paths"]["/v1/chat"]["post"]
    assert [one["name"] for one in chat["parameters"]] == ["Idempotency-Key", "Prefer"]
    assert set(chat["responses"]) == {
        *("200", "202", "400", "401", "413", "415", "422", "502", "503"),
    }
    told = chat["responses"]["200"]
    assert set(told["content"]) == {"application/json", "text/event-stream"}
    assert set(told["headers"]) == {"Location", "Idempotency-Replayed", "Preference-Applied"}
    failed = chat["responses"]["502"]
    assert set(failed["content"]) == {"application/problem+json"}
    assert "Location" in failed["headers"]
    status = document["paths"][REQUEST]
    assert set(status["get"]["responses"]) == {"200", "401", "404", "422", "503"}
    assert set(status["get"]["responses"]["200"]["content"]) == {
        *("application/json", "text/markdown"),
    }
    assert set(status["delete"]["responses"]) == {"200", "401", "404", "409", "422", "503"}


@pytest.mark.req("X3", "C15", "C9")
def test_what_is_not_always_there_is_not_required_in_it(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    required = set(schemas["RequestData"]["required"])
    assert required == {"request_id", "user_id", "status", "created_at", "ended_at"}
    assert {"escalated", "result", "report"} <= set(schemas["RequestData"]["properties"])
    assert set(schemas["TurnMetadata"]["required"]) == {"escalated", "request_id", "delivery"}
    statuses = schemas["TurnData"]["properties"]["status"]["enum"]
    assert {ESCALATED, "completed", "awaiting_approval", "processing"} <= set(statuses)
    assert "queued" not in statuses


@pytest.mark.req("X3")
def test_the_example_of_a_message_is_accepted_as_it_is(
    document: dict[str, Any], ada: ChatCaller
) -> None:
    chat = document["paths"]["/v1/chat"]["post"]
    body = chat["requestBody"]["content"]["application/json"]["example"]
    assert ada.chat(**body, Prefer="wait=0").status_code == 202
    schema = document["components"]["schemas"]["ChatRequest"]
    assert schema["additionalProperties"] is False
    assert re.search(schema["properties"]["message"]["pattern"], body["message"])


@pytest.mark.req("X3")
@pytest.mark.case("API-01")
@pytest.mark.timeout(150)
def test_generated_requests_of_a_client_meet_only_documented_answers(
    redis_url: str, redis: Redis, tmp_path: Path
) -> None:
    path = formation_file(tmp_path)
    keys = ",".join(KEYS)
    with (
        fleet(redis_url, tmp_path) as ships,
        stream_server(tmp_path, redis_url, formation_keys=keys, formation_file=path) as server,
    ):
        # It ends the turns, and with them the streams.
        ships.thread_worker(redis, formation_file=path)
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--header", f"X-Muxi-Client-Key: {KEY}"),
            *("--include-path-regex", "^/v1/(chat|requests|captains-log)"),
            *("--max-examples", "20", "--seed", "1", "--checks", "all", "--no-color"),
            # Which webhooks can be posted to is beyond a schema.
            *("--exclude-checks", "positive_data_acceptance"),
            "--generation-deterministic",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=140
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "4 selected / " in done.stdout
    assert stored_jobs(redis), "the example was accepted"
