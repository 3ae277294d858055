"""Does a prompt that came in over HTTP come out answered, with no worker up but cron's?"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from service.cli.main import genqueue
from tests.integration.service.conftest import Caller


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
