"""What does a builder of workflows get to know of the step? (B23)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from jobs.runtime import Runtime
from jobs.store.flags import WORKFLOWS_LLM_ACTION
from service.app import create_app
from tests.integration.service.team_caller import TeamCaller, team_caller

TEMPLATE = "template-workflow-llm"


@pytest.fixture
def team(http: FlaskClient, runtime: Runtime) -> TeamCaller:
    return team_caller(http, runtime, enable=False)


def address(team: TeamCaller, template_id: str = TEMPLATE) -> str:
    return f"/api/projects/{team.team_id}/step_templates/{template_id}/"


@pytest.fixture
def template(team: TeamCaller) -> dict[str, Any]:
    answer = team.http.get(address(team), headers=team.headers)
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert answer.json is not None
    body: dict[str, Any] = answer.json
    return body


@pytest.mark.req("B23")
def test_the_template_says_where_it_is_offered_and_how_a_new_step_behaves(
    template: dict[str, Any],
) -> None:
    facts = {name: template[name] for name in template if name != "inputs_schema"}
    assert facts.pop("description")
    assert facts == {
        "id": TEMPLATE,
        "type": "destination",
        "status": "hidden",
        "category": "AI",
        "name": "Generate text",
        "on_error": "abort",
        "metering": "fetch",
        "feature_flag": WORKFLOWS_LLM_ACTION,
    }


@pytest.mark.req("B23")
def test_it_has_three_inputs_in_the_order_of_the_panel(template: dict[str, Any]) -> None:
    prompt, output_fields, model = template["inputs_schema"]
    assert (prompt["key"], prompt["type"]) == ("prompt", "string")
    assert (prompt["required"], prompt["templating"]) == (True, "liquid")
    assert "{" in prompt["description"]
    assert (output_fields["key"], output_fields["type"]) == ("output_fields", "dictionary")
    assert (output_fields["required"], output_fields["choices"]) == (False, None)
    assert (model["key"], model["type"], model["searchable"]) == ("model", "choice", True)
    assert (model["required"], model["templating"]) == (True, False)
    assert "credits" in model["description"]
    assert {tuple(one) for one in template["inputs_schema"]} == {tuple(prompt)}


@pytest.mark.req("B20", "B23")
def test_the_models_are_six_in_groups_by_provider_cheapest_first(
    template: dict[str, Any],
) -> None:
    model = template["inputs_schema"][2]
    assert model["default"] == "gpt-5-mini"
    assert [(one["group"], one["value"]) for one in model["choices"]] == [
        ("openai", "gpt-4.1-mini"),
        ("openai", "gpt-5-mini"),
        ("openai", "gpt-5.4"),
        ("anthropic", "claude-haiku-4-5"),
        ("anthropic", "claude-sonnet-4-6"),
        ("anthropic", "claude-opus-4-8"),
    ]


@pytest.mark.req("B20", "B23")
def test_the_choices_are_the_picker_of_the_models_file_in_use(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    models = tmp_path / "models.toml"
    price = "input_usd_micros_per_mtok = 1\noutput_usd_micros_per_mtok = 1\n"
    models.write_text(
        'default_model = "own"\n[providers.mine]\ntype = "mock"\n'
        '[generations]\npicker = ["own"]\ndefault_model = "own"\n'
        f'[[models]]\nid = "own"\nprovider = "mine"\n{price}'
        f'[[models]]\nid = "other"\nprovider = "mine"\n{price}'
    )
    runtime = make_runtime(models_file=models)
    team = team_caller(create_app(runtime).test_client(), runtime)
    answer = team.http.get(address(team), headers=team.headers).json
    assert answer is not None
    model = answer["inputs_schema"][2]
    assert model["default"] == "own"
    assert model["choices"] == [{"value": "own", "label": "own", "group": "mine"}]


@pytest.mark.req("B23")
def test_without_its_last_slash_the_address_is_the_same_page(
    team: TeamCaller, template: dict[str, Any]
) -> None:
    answer = team.http.get(address(team).rstrip("/"), headers=team.headers)
    assert (answer.status_code, answer.json) == (200, template)


@pytest.mark.req("B5", "B23")
@pytest.mark.parametrize("template_id", ["template-email", "x", "é", "%00", "a" * 4000])
def test_another_template_is_404_in_the_shape_of_generations(
    team: TeamCaller, template_id: str
) -> None:
    answer = team.http.get(address(team, template_id), headers=team.headers)
    assert (answer.status_code, answer.mimetype) == (404, "application/json")
    assert answer.json == {
        "id": None,
        "status": "failed",
        "result": None,
        "error": {"code": "not_found", "message": "There is no such template."},
        "request_id": answer.headers["X-Request-Id"],
    }


@pytest.mark.req("B2", "B23")
def test_only_a_token_of_the_team_opens_it(team: TeamCaller, runtime: Runtime) -> None:
    key = {"Authorization": f"Bearer {runtime.credentials.create('acme', 'ann')[1]}"}
    other = team_caller(team.http, runtime, "2", "rival")
    for headers, status in (({}, 401), (key, 401), (other.headers, 404)):
        answer = team.http.get(address(team), headers=headers)
        assert answer.status_code == status
        assert answer.json is not None
        assert answer.json["error"]["code"] == {401: "unauthenticated", 404: "not_found"}[status]
