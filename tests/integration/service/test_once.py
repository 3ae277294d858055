"""Does what came in over HTTP come out answered, with no worker up but cron's?"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from jobs.runtime import Runtime
from service.cli.main import genqueue
from tests.integration.service.conftest import Caller
from tests.integration.service.team_caller import team_caller


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """Both passes on the mock, which needs no key."""
    return make_runtime(extraction_model="mock-1")


@pytest.mark.req("A5", "A6")
def test_one_run_from_cron_answers_the_most_urgent_prompts_up_to_its_batch(
    caller: Caller, redis_url: str
) -> None:
    accepted = {
        priority: caller.post({"prompt": f"of {priority}", "priority": priority}).json
        for priority in (90, 10, 50)
    }
    command = ["run-worker", "--once", "--batch-size", "2", "--priority-ceiling", "60", "--json"]
    runs = [CliRunner(env={"REDIS_URL": redis_url}).invoke(genqueue, command) for _ in range(2)]
    assert [json.loads(run.stdout) for run in runs] == [{"attempts": 2}, {"attempts": 0}]
    states = {}
    for priority, answer in accepted.items():
        assert answer is not None
        prompt = caller.get(f"/v1/prompts/{answer['prompt_id']}").json
        assert prompt is not None
        states[priority] = prompt["jobs"][0]["state"]
        assert (prompt["response"] is None) == (priority == 90)
    assert states == {90: "queued", 10: "succeeded", 50: "succeeded"}


@pytest.mark.req("A6", "B1", "B4")
def test_one_run_from_cron_answers_a_generation_with_both_passes(
    http: FlaskClient, runtime: Runtime, redis_url: str
) -> None:
    team = team_caller(http, runtime)
    submitted = team.submit(output_fields={"subject": "A subject line."}).json
    assert submitted is not None
    variables = {"REDIS_URL": redis_url, "GENQUEUE_EXTRACTION_MODEL": "mock-1"}
    run = CliRunner(env=variables).invoke(genqueue, ["run-worker", "--once", "--json"])
    assert json.loads(run.stdout) == {"attempts": 1}
    collected = team.collect(submitted["id"])
    assert collected.status_code == 200
    assert collected.json is not None
    assert collected.json["status"] == "succeeded"
    assert collected.json["result"]["text"].startswith("This is mock text")
    assert collected.json["result"]["fields"]["subject"].startswith("mock subject")
