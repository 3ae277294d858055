"""What is answered of a live step, from its submit to its end? (B25-B29)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.states import State
from jobs.domain.step_variables import VariableRow
from jobs.runtime import Runtime
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.worker.assembly import assemble
from service.app import create_app
from tests.integration.service.step_caller import (
    GLOBALS,
    STEP,
    StepCaller,
    inputs,
    worker_and_matcher,
)
from tests.integration.service.team_caller import TeamCaller, stored_jobs, team_caller
from tests.support.factories import claim_one, new_id
from tests.support.invariants import problems_of


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """Both passes on the mock, which needs no key."""
    return make_runtime(extraction_model="mock-1")


@pytest.fixture
def steps(http: FlaskClient, runtime: Runtime) -> StepCaller:
    return StepCaller(team_caller(http, runtime))


def accepted(answer: Any) -> dict[str, Any]:
    """The view of a step that was accepted."""
    assert answer.status_code == 202, answer.get_data(as_text=True)
    view: dict[str, Any] = answer.json
    return view


@pytest.mark.req("B26")
def test_an_accepted_step_is_202_with_its_view_and_the_address_to_look_at(
    steps: StepCaller, redis: Redis
) -> None:
    answer = steps.submit()
    view = accepted(answer)
    created_at = view.pop("created_at")
    assert created_at.endswith("Z")
    assert view == {
        "id": view["id"],
        "state": "queued",
        "run": None,
        "on_error": "abort",
        "executions": 0,
        "generation_id": None,
        "text": None,
        "fields": None,
        "variables": GLOBALS["variables"],
        "error": None,
        "log": [],
        "finished_at": None,
    }
    assert answer.headers["Location"] == f"{steps.address}{view['id']}/"
    assert steps.view(view["id"]) == {**view, "created_at": created_at}
    assert stored_jobs(redis) == [view["id"]]
    assert redis.llen("rq:queue:genqueue") == 1
    assert problems_of(redis) == []


@pytest.mark.req("B25", "B26", "B33")
def test_a_step_ends_with_its_variables_its_log_and_a_run_that_goes_on(
    steps: StepCaller, runtime: Runtime
) -> None:
    rows = [{"key": "body", "result_path": "text"}]
    step_id = accepted(steps.submit(output_variable=rows))["id"]
    with worker_and_matcher(runtime):
        view = steps.ended(step_id)
    assert (view["state"], view["run"], view["error"]) == ("succeeded", "continue", None)
    assert view["text"].startswith("This is mock text")
    assert view["fields"]["subject"].startswith("mock subject")
    assert view["variables"] == {
        "subject": view["fields"]["subject"],
        "body": view["text"],
        "n": 7,
    }
    assert view["finished_at"] >= view["created_at"]
    assert view["executions"] >= 2
    assert 2 <= len(view["log"]) <= 10
    assert all(line["at"].endswith("Z") and line["text"] for line in view["log"])
    assert steps.team.collect(view["generation_id"]).status_code == 200


@pytest.mark.req("B24")
def test_the_generation_gets_the_prompt_rendered_and_the_step_s_own_names(
    steps: StepCaller, runtime: Runtime
) -> None:
    template = '{% if person.vip %}Dear{% endif %}{{ person.name }} {"a": {}}{{ person.gone }}'
    steps.submit(
        hog_flow_id="flow-1",
        inputs=inputs(prompt=template),
        globals={**GLOBALS, "person": {"name": "{{ event }}", "vip": True}},
    )
    attempt = claim_one(runtime.queue)
    assert attempt.prompt_text == 'Dear{{ event }} {"a": {}}'
    stored = runtime.steps.load(attempt.job.id)
    assert stored is not None
    assert (stored.inputs.invocation_id, stored.inputs.hog_flow_id) == ("run-1", "flow-1")
    assert stored.inputs.rows == (VariableRow("subject", "fields.subject"),)


@pytest.mark.req("B29")
@pytest.mark.parametrize(
    ("on_error", "run", "subject"), [("abort", "stop", "old"), ("continue",) * 2 + ("",)]
)
def test_a_failed_step_tells_code_and_message_and_what_the_run_does_next(
    steps: StepCaller, runtime: Runtime, on_error: str, run: str, subject: str
) -> None:
    asked = inputs(prompt="[[mock fault=refused]] Write.", output_fields={"subject": "A subject."})
    step_id = accepted(steps.submit(inputs=asked, on_error=on_error))["id"]
    with worker_and_matcher(runtime):
        view = steps.ended(step_id)
    assert (view["state"], view["run"], view["on_error"]) == ("failed", run, on_error)
    assert view["error"]["code"] == "model_refused"
    assert (view["text"], view["fields"]) == (None, None)
    assert view["variables"] == {**GLOBALS["variables"], "subject": subject}
    told = [line["text"] for line in view["log"] if "model_refused" in line["text"]]
    assert len(told) == 1
    assert view["error"]["message"] in told[0]


@pytest.mark.req("B21", "B29")
def test_a_step_of_an_organisation_without_the_feature_is_accepted_and_fails_as_such(
    steps: StepCaller, runtime: Runtime
) -> None:
    Flags(runtime.redis).disable(WORKFLOWS_LLM_ACTION, "acme")
    step_id = accepted(steps.submit())["id"]
    with worker_and_matcher(runtime):
        view = steps.ended(step_id)
    code = GenerationCode.FEATURE_UNAVAILABLE
    assert view["error"] == {"code": code.value, "message": COPY[code]}
    assert view["generation_id"] is None


@pytest.mark.req("B29")
def test_a_cancelled_step_stops_its_run(steps: StepCaller, runtime: Runtime) -> None:
    step_id = accepted(steps.submit(on_error="continue"))["id"]
    runtime.queue.cancel(step_id, "acme")
    view = steps.view(step_id)
    assert (view["state"], view["run"], view["error"]) == (State.CANCELLED, "stop", None)


@pytest.mark.req("B26")
def test_a_step_that_waits_for_its_generation_is_parked(
    steps: StepCaller, runtime: Runtime
) -> None:
    step_id = accepted(steps.submit())["id"]
    crew = assemble(runtime, concurrency=1)
    attempt = claim_one(runtime.queue)
    crew.runner.run(attempt, crew.runner.scope(attempt))
    crew.heartbeat.stop()

    view = steps.view(step_id)
    assert (view["state"], view["run"], view["executions"]) == ("parked", None, 1)
    assert view["variables"] == GLOBALS["variables"]
    assert steps.team.collect(view["generation_id"]).status_code == 202


@pytest.mark.req("X4")
def test_the_same_key_with_the_same_payload_is_the_same_step(
    steps: StepCaller, redis: Redis
) -> None:
    first = steps.submit("k")
    reordered = {name: STEP[name] for name in reversed(STEP)}
    again = steps.post({**reordered, "on_error": "abort", "output_variable": []}, "k")
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (again.status_code, again.json) == (202, first.json)
    assert len(stored_jobs(redis)) == 1

    other = steps.submit("k", on_error="continue")
    assert other.status_code == 422
    assert other.json is not None
    assert other.json["error"]["code"] == "idempotency_key_reused"
    assert accepted(steps.submit("l"))["id"] != accepted(first)["id"]


@pytest.mark.req("X4", "B2")
def test_a_key_counts_among_the_steps_of_one_team_alone(
    steps: StepCaller, runtime: Runtime
) -> None:
    user = {
        "Authorization": f"Bearer {runtime.credentials.create('acme', 'ann')[1]}",
        "Idempotency-Key": "k",
    }
    prompt = steps.team.http.post("/v1/prompt", json={"prompt": "hello"}, headers=user)
    assert prompt.status_code == 202
    second = StepCaller(team_caller(steps.team.http, runtime, "2", "acme"))
    mine, theirs = accepted(steps.submit("k")), accepted(second.submit("k"))
    assert mine["id"] != theirs["id"]


@pytest.mark.req("B2")
def test_ids_that_name_no_step_of_the_team_are_404(steps: StepCaller, runtime: Runtime) -> None:
    theirs = accepted(StepCaller(team_caller(steps.team.http, runtime, "2", "acme")).submit())
    generation = steps.team.submit().json
    assert generation is not None
    for step_id in (theirs["id"], generation["id"], new_id(), "x", "%00", "é", "a" * 4000):
        answer = steps.get(step_id)
        assert (answer.status_code, answer.mimetype) == (404, "application/json")
        assert answer.json == {
            "id": None,
            "status": "failed",
            "result": None,
            "error": {"code": "not_found", "message": "There is no such step."},
            "request_id": answer.headers["X-Request-Id"],
        }


@pytest.mark.req("B2")
def test_only_a_token_of_the_team_opens_the_routes(steps: StepCaller, runtime: Runtime) -> None:
    key = {"Authorization": f"Bearer {runtime.credentials.create('acme', 'ann')[1]}"}
    other = team_caller(steps.team.http, runtime, "2", "acme").headers
    before = stored_jobs(runtime.redis)
    for headers, status in (({}, 401), (key, 401), (other, 404)):
        posted = steps.team.http.post(steps.address, json=STEP, headers=headers)
        looked = steps.team.http.get(f"{steps.address}{new_id()}/", headers=headers)
        assert (posted.status_code, looked.status_code) == (status, status)
    assert stored_jobs(runtime.redis) == before


@pytest.mark.req("B26")
def test_without_its_last_slash_an_address_is_the_same_page(steps: StepCaller) -> None:
    address = steps.address.rstrip("/")
    posted = steps.team.http.post(address, json=STEP, headers=steps.team.headers)
    place = posted.headers["Location"].rstrip("/")
    looked = steps.team.http.get(place, headers=steps.team.headers)
    assert (looked.status_code, looked.json) == (200, accepted(posted))


@pytest.mark.req("X13")
def test_with_redis_away_or_full_a_team_is_told_when_to_come_back(
    steps: StepCaller, redis: Redis, make_runtime: Callable[..., Runtime]
) -> None:
    nobody = create_app(make_runtime(redis_url="redis://127.0.0.1:1/0")).test_client()
    away = StepCaller(TeamCaller(nobody, steps.team.token, steps.team.team_id))
    assert steps.get(new_id()).status_code == 404
    redis.config_set("maxmemory", 1)
    try:
        answers = [steps.submit(), away.submit(), away.get(new_id())]
    finally:
        redis.config_set("maxmemory", 0)
    for answer in answers:
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json is not None
        assert answer.json["error"]["code"] == "store_unavailable"
    assert stored_jobs(redis) == []
