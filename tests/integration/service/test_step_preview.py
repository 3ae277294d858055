"""What does a step's author get to see of a try: of a preview, and of a test walk? (B31, B32)"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.runtime import Runtime
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from service.app import create_app
from service.context import fanout_of
from service.preview import PREVIEW_WITHIN_S, TIMED_OUT_COPY
from tests.integration.service.conftest import Keyspace
from tests.integration.service.step_caller import (
    GLOBALS,
    StepCaller,
    inputs,
    step_with,
    worker_and_matcher,
)
from tests.integration.service.team_caller import TeamCaller, stored_jobs, team_caller
from tests.support.waiting import wait_until

ROWS = [{"key": "body", "result_path": "text"}]
SLOW = inputs(prompt="[[mock delay=0.3]] Write.", output_fields={})


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """Both passes on the mock, which needs no key."""
    return make_runtime(extraction_model="mock-1")


@pytest.fixture
def steps(http: FlaskClient, runtime: Runtime) -> StepCaller:
    return StepCaller(team_caller(http, runtime))


def shown(answer: Any) -> dict[str, Any]:
    """What a try shows."""
    assert (answer.status_code, answer.mimetype) == (200, "application/json"), answer.data
    assert "Location" not in answer.headers
    trial: dict[str, Any] = answer.json
    assert set(trial) == {
        *("mode", "state", "text", "fields", "variables"),
        *("error", "message", "generation_id", "log"),
    }
    return trial


@pytest.mark.req("B31")
def test_a_preview_generates_for_real_and_shows_text_fields_and_variables(
    steps: StepCaller, runtime: Runtime, redis: Redis
) -> None:
    asked = inputs(model="mock-paid")
    with worker_and_matcher(runtime):
        trial = shown(steps.submit(mode="preview", output_variable=ROWS, inputs=asked))
    assert (trial["mode"], trial["state"]) == ("preview", "succeeded")
    assert (trial["error"], trial["message"]) == (None, None)
    assert trial["text"].startswith("This is mock text")
    assert trial["fields"]["subject"].startswith("mock subject")
    assert trial["variables"] == {
        "subject": trial["fields"]["subject"],
        "body": trial["text"],
        "n": 7,
    }
    assert [line["text"] for line in trial["log"]] == ["Prompt: Write to Ada."]
    # A generation was made and paid for, and no step was stored.
    assert stored_jobs(redis) == [trial["generation_id"]]
    assert runtime.credits.of_org("acme").spent_usd_micros > 0


@pytest.mark.req("B31")
def test_a_preview_answers_as_soon_as_its_generation_has_ended(
    steps: StepCaller, runtime: Runtime
) -> None:
    with worker_and_matcher(runtime):
        began_s = time.monotonic()
        trial = shown(steps.submit(mode="preview", inputs=SLOW))
        took_s = time.monotonic() - began_s
    assert trial["state"] == "succeeded"
    # A poll behind the events comes a second after the look before it.
    assert 0.3 <= took_s < 1


@pytest.mark.req("B31")
def test_a_preview_that_runs_out_of_time_is_a_message_and_its_generation_goes_on(
    steps: StepCaller, runtime: Runtime, redis: Redis
) -> None:
    began_s = time.monotonic()
    trial = shown(steps.submit(mode="preview"))
    took_s = time.monotonic() - began_s
    assert PREVIEW_WITHIN_S == 25
    assert PREVIEW_WITHIN_S <= took_s < PREVIEW_WITHIN_S + 1
    assert (trial["state"], trial["error"]) == ("preview_timeout", None)
    assert trial["message"] == TIMED_OUT_COPY
    assert (trial["text"], trial["fields"]) == (None, None)
    assert trial["variables"] == GLOBALS["variables"]
    assert stored_jobs(redis) == [trial["generation_id"]]
    assert steps.team.collect(trial["generation_id"]).status_code == 202

    with worker_and_matcher(runtime):
        again = shown(steps.submit(mode="preview"))
    assert again["state"] == "succeeded"
    assert again["generation_id"] == trial["generation_id"], "the same preview is not paid twice"


@pytest.mark.req("B6", "B29", "B31")
@pytest.mark.parametrize(("on_error", "subject"), [("abort", "old"), ("continue", "")])
def test_a_failed_preview_tells_code_message_and_the_variables_of_a_failed_step(
    steps: StepCaller, runtime: Runtime, on_error: str, subject: str
) -> None:
    asked = inputs(prompt="[[mock fault=refused]] Write.")
    with worker_and_matcher(runtime):
        trial = shown(steps.submit(mode="preview", inputs=asked, on_error=on_error))
    code = GenerationCode.MODEL_REFUSED
    assert trial["state"] == "failed"
    assert trial["error"] == {"code": code.value, "message": COPY[code]}
    assert (trial["text"], trial["fields"], trial["message"]) == (None, None, None)
    assert trial["variables"] == {**GLOBALS["variables"], "subject": subject}


@pytest.mark.req("B7", "B31")
def test_a_preview_without_credits_fails_at_once(http: FlaskClient, runtime: Runtime) -> None:
    steps = StepCaller(team_caller(http, runtime, cap_usd_micros=0))
    trial = shown(steps.submit(mode="preview"))
    assert trial["error"]["code"] == "quota_exceeded"


@pytest.mark.req("B8", "B21", "B31")
def test_a_preview_passes_the_gates_of_its_generation(
    make_runtime: Callable[..., Runtime], redis: Redis
) -> None:
    runtime = make_runtime(extraction_model="mock-1", generations_per_minute=1)
    app = create_app(runtime)
    steps = StepCaller(team_caller(app.test_client(), runtime, enable=False))
    unavailable = steps.submit(mode="preview")
    assert unavailable.status_code == 404
    assert unavailable.json is not None
    assert unavailable.json["error"]["code"] == "feature_unavailable"

    Flags(redis).enable(WORKFLOWS_LLM_ACTION, "acme")
    throttled = steps.submit(mode="preview")
    assert throttled.status_code == 429
    assert 1 <= int(throttled.headers["Retry-After"]) <= 60
    assert stored_jobs(redis) == []
    fanout_of(app).close()


@pytest.mark.req("B31")
def test_previews_count_as_held_requests_and_one_too_many_submits_nothing(
    make_runtime: Callable[..., Runtime], redis: Redis
) -> None:
    runtime = make_runtime(extraction_model="mock-1", stream_limit=1)
    app = create_app(runtime)
    steps = StepCaller(team_caller(app.test_client(), runtime))
    answers: list[Any] = []

    def wait_for_one(caller: TeamCaller) -> None:
        answers.append(StepCaller(caller).submit(mode="preview"))

    waiting = threading.Thread(target=wait_for_one, args=(steps.team.again(),))
    waiting.start()
    wait_until(lambda: len(stored_jobs(redis)) == 1, 5, "the first one waits")
    refused = steps.submit(mode="preview", invocation_id="run-2")
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json is not None
    assert refused.json["error"]["code"] == "too_many_streams"
    assert "nothing was submitted" in refused.json["error"]["message"]
    assert len(stored_jobs(redis)) == 1

    with worker_and_matcher(runtime):
        waiting.join(20)
    assert shown(answers[0])["state"] == "succeeded"
    assert fanout_of(app).clients == 0
    fanout_of(app).close()


@pytest.mark.req("B31")
def test_a_process_that_stops_lets_its_previews_go(
    steps: StepCaller, http: FlaskClient, redis: Redis
) -> None:
    answers: list[Any] = []
    caller = StepCaller(steps.team.again())
    waiting = threading.Thread(target=lambda: answers.append(caller.submit(mode="preview")))
    waiting.start()
    wait_until(lambda: len(stored_jobs(redis)) == 1, 5, "it waits")
    fanout_of(http.application).close()
    waiting.join(5)
    assert answers[0].status_code == 503
    assert answers[0].json["error"]["code"] == "not_ready"


@pytest.mark.req("B31")
def test_a_preview_whose_author_has_left_waits_no_longer(
    steps: StepCaller, http: FlaskClient
) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    began_s = time.monotonic()
    http.post(
        steps.address,
        json=step_with(mode="preview"),
        headers=steps.team.headers,
        environ_overrides={"gunicorn.socket": ours},
    )
    assert time.monotonic() - began_s < 5
    assert fanout_of(http.application).clients == 0
    ours.close()


@pytest.mark.req("B32")
def test_a_mock_shows_made_up_values_and_the_prompt_and_leaves_no_trace(
    http: FlaskClient, runtime: Runtime, keyspace: Callable[[], Keyspace]
) -> None:
    steps = StepCaller(team_caller(http, runtime, enable=False, cap_usd_micros=None))
    steps.get("x")
    before = keyspace()
    trial = shown(steps.submit("k", mode="mock", output_variable=ROWS))
    assert (trial["mode"], trial["state"]) == ("mock", "succeeded")
    assert (trial["error"], trial["message"], trial["generation_id"]) == (None, None, None)
    assert trial["fields"] == {"subject": "Example value for `subject`"}
    assert "example" in trial["text"]
    assert trial["variables"] == {
        "subject": "Example value for `subject`",
        "body": trial["text"],
        "n": 7,
    }
    (line,) = trial["log"]
    assert line["text"] == "Prompt: Write to Ada."
    assert line["at"].endswith("Z")
    assert keyspace() == before


@pytest.mark.req("B24", "B25", "B31", "B32")
@pytest.mark.parametrize("mode", ["live", "preview", "mock"])
def test_what_is_wrong_with_a_step_is_refused_in_every_mode(
    steps: StepCaller, redis: Redis, mode: str
) -> None:
    asked = inputs(prompt="Hi\n{{ person.name | nosuch }}", output_fields={"gone": "A field."})
    answer = steps.submit(mode=mode, inputs=asked)
    assert answer.status_code == 422
    assert answer.json is not None
    named = {one["field"]: one["reason"] for one in answer.json["error"]["errors"]}
    assert set(named) == {"inputs.prompt", "inputs.output_fields.gone"}
    assert named["inputs.prompt"].startswith("line 2: ")
    assert stored_jobs(redis) == []
