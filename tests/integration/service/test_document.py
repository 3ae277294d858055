"""Does the OpenAPI document tell the truth, and does its page work without the internet?"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from flask.testing import FlaskClient

from jobs.domain.generation_codes import COPY
from jobs.runtime import Runtime
from tests.integration.service.conftest import Caller, WebServer
from tests.integration.service.team_caller import stored_jobs, team_caller

GENERATIONS = "/api/projects/{team_id}/workflow_llm_generations/"
STEPS = "/api/projects/{team_id}/workflow_steps/"


@pytest.fixture
def document(http: FlaskClient) -> dict[str, Any]:
    body: dict[str, Any] = http.get("/openapi.json").json  # type: ignore[assignment]
    return body


@pytest.mark.req("X3")
def test_the_document_is_openapi_3_and_names_every_route(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) == {
        *("/v1/prompt", "/v1/prompts/{prompt_id}", "/healthz", "/readyz"),
        *("/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/cancel", "/v1/jobs/{job_id}/retry"),
        *("/v1/mission/recent", "/v1/mission/events"),
        *(GENERATIONS, f"{GENERATIONS}{{generation_id}}/"),
        *(STEPS, f"{STEPS}{{step_id}}/"),
        "/api/projects/{team_id}/step_templates/{template_id}/",
        *("/v1/chat", "/v1/requests/{request_id}", "/v1/captains-log"),
        *("/v1/deliveries", "/v1/deliveries/{delivery_id}"),
        "/v1/deliveries/{delivery_id}/replay",
    }
    responses = document["paths"]["/v1/prompt"]["post"]["responses"]
    assert set(responses) == {"200", "202", "400", "401", "413", "415", "422", "503"}
    for answer in document["components"]["responses"].values():
        assert set(answer["content"]) == {"application/problem+json"}
    assert "Retry-After" in document["components"]["responses"]["SERVICE_UNAVAILABLE"]["headers"]


@pytest.mark.req("X3")
def test_callers_find_the_key_and_the_idempotency_header_in_it(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["apiKey"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"apiKey": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    parameters = document["paths"]["/v1/prompt"]["post"]["parameters"]
    assert [one["name"] for one in parameters] == ["Idempotency-Key", "Prefer"]


@pytest.mark.req("X3")
def test_the_example_of_a_submit_is_accepted_as_it_is(
    document: dict[str, Any], caller: Caller
) -> None:
    body = document["paths"]["/v1/prompt"]["post"]["requestBody"]["content"]["application/json"]
    assert caller.post(body["example"]).status_code == 202


@pytest.mark.req("X3")
def test_the_page_loads_nothing_from_elsewhere(http: FlaskClient) -> None:
    assert http.get("/").headers["Location"] == "/docs"
    page = http.get("/docs").get_data(as_text=True)
    loaded = re.findall(r'(?:src|href|data-document)="([^"]+)"', page)
    assert len(loaded) == 5
    for address in loaded:
        assert address.startswith("/")
        answer = http.get(address)
        assert answer.status_code == 200
        assert len(answer.get_data()) > 100
    assert "validatorUrl: null" in http.get("/static/docs.js").get_data(as_text=True)


@pytest.mark.req("X3")
def test_no_file_outside_the_page_is_served(http: FlaskClient) -> None:
    for path in ("../__init__.py", "%2e%2e/__init__.py", "/etc/passwd", "no-such-file"):
        assert http.get(f"/docs/assets/{path}").status_code == 404


@pytest.mark.req("X3")
@pytest.mark.case("API-01")
def test_generated_requests_meet_only_documented_answers(
    web_server: WebServer, caller: Caller, tmp_path: Any
) -> None:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{web_server.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {caller.key}"),
        *("--max-examples", "20", "--seed", "1", "--checks", "all", "--no-color"),
        # Which models there are and which prompts a caller has is beyond a schema.
        *("--exclude-checks", "positive_data_acceptance"),
        # It answers until its client leaves.
        *("--exclude-path", "/v1/mission/events"),
        # They have another key: test_chat_document.py.
        *("--exclude-path-regex", "^/v1/(chat|requests|deliveries|captains-log)"),
        "--generation-deterministic",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=110
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "14 selected / 22 total" in done.stdout


@pytest.mark.req("X3", "B5")
def test_the_routes_of_teams_have_a_token_and_errors_of_their_own(document: dict[str, Any]) -> None:
    submit = document["paths"][GENERATIONS]["post"]
    collect = document["paths"][f"{GENERATIONS}{{generation_id}}/"]["get"]
    assert set(submit["responses"]) == {
        *("200", "202", "400", "401", "404", "413", "415", "422", "429", "503"),
    }
    assert set(collect["responses"]) == {"200", "202", "401", "404", "503"}
    scheme = document["components"]["securitySchemes"]["teamToken"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for operation in (submit, collect):
        assert operation["security"] == [{"teamToken": []}]
        for status, answer in operation["responses"].items():
            named = "Generation" if status in {"200", "202"} else "Refused"
            schema = answer["content"]["application/json"]["schema"]
            assert schema == {"$ref": f"#/components/schemas/{named}"}
    for status in ("429", "503"):
        assert "Retry-After" in submit["responses"][status]["headers"]


@pytest.mark.req("X3", "B3", "B6")
def test_the_document_holds_the_rules_of_output_fields_and_the_codes(
    document: dict[str, Any],
) -> None:
    schemas = document["components"]["schemas"]
    rules = schemas["GenerationRequest"]["properties"]["output_fields"]
    assert rules["maxProperties"] == 50
    assert rules["additionalProperties"] == {"type": "string", "minLength": 1, "maxLength": 2000}
    (names,) = (rule["propertyNames"] for rule in rules["allOf"])
    assert names["maxLength"] == 64
    for name in ("subject_line", "_", "A-1", "größe", "件名"):
        assert re.search(names["pattern"], name)
    for name in ("", "1a", "-a", "a b", "a.b", "a\x00", "<a>", "a\u00a0"):
        assert not re.search(names["pattern"], name)
    assert schemas["Failure"]["properties"]["code"]["enum"] == [code.value for code in COPY]


@pytest.mark.req("X3", "B5")
@pytest.mark.case("API-01")
def test_generated_requests_of_a_team_meet_only_documented_answers(
    web_server: WebServer, http: FlaskClient, runtime: Runtime, tmp_path: Any
) -> None:
    team = team_caller(http, runtime)
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"path.team_id" = "1"\n')
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{web_server.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {team.token}"),
        *("--include-path-regex", "^/api/projects/"),
        *("--max-examples", "20", "--seed", "1", "--checks", "all", "--no-color"),
        # Which names of fields, models and teams there are is beyond a schema.
        *("--exclude-checks", "positive_data_acceptance"),
        "--generation-deterministic",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=110
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "5 selected / 22 total" in done.stdout
    assert stored_jobs(runtime.redis), "the example was accepted"
