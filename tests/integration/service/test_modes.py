"""Can the way in which submits answer be switched without a deploy? (A27)"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from redis import Redis

from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.modes import CACHE_S, Mode, Modes
from service.cli.main import genqueue
from tests.integration.service.conftest import Caller
from tests.integration.service.streams import stream_server
from tests.integration.service.test_wait import post, worker
from tests.support.waiting import wait_until


@pytest.mark.req("A27")
def test_it_is_async_where_nothing_was_set(caller: Caller, redis: Redis) -> None:
    answer = post(caller)
    assert (answer.status_code, answer.headers["Genqueue-Mode"]) == (202, "async")
    redis.set(keys.MODE(), "nonsense")
    assert Modes(redis).current() is Mode.ASYNC


@pytest.mark.req("A27")
@pytest.mark.parametrize("mode", [Mode.SYNC, Mode.SHADOW])
def test_in_sync_and_shadow_mode_a_submit_answers_the_result(
    caller: Caller, runtime: Runtime, mode: Mode
) -> None:
    runtime.modes.switch(mode)
    with worker(runtime):
        answer = post(caller, {"execution_options": {"max_tokens": 5}})
    assert (answer.status_code, answer.headers["Genqueue-Mode"]) == (200, mode.value)
    assert answer.json is not None
    assert answer.json["response"]["text"] == "Hello."
    job = answer.json["job"]
    assert job["priority"] == 5
    mark = {"mode": "shadow"} if mode is Mode.SHADOW else {}
    assert job["execution_options"] == {"max_tokens": 5, **mark}
    assert job["worker_claim"], "the call is made by a worker in every mode"


@pytest.mark.req("A27")
def test_a_caller_may_ask_for_the_receipt_in_sync_mode(caller: Caller, runtime: Runtime) -> None:
    runtime.modes.switch(Mode.SYNC)
    answer = post(caller, Prefer="respond-async")
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "respond-async"


@pytest.mark.req("A27", "X4")
def test_a_switch_between_two_sends_of_a_submit_makes_no_second_job(
    caller: Caller, runtime: Runtime
) -> None:
    first = post(caller, Idempotency_Key="k").json
    runtime.modes.switch(Mode.SHADOW)
    with worker(runtime):
        second = post(caller, Idempotency_Key="k").json
    assert first is not None
    assert second is not None
    assert second["job_id"] == first["job_id"]


@pytest.mark.req("A27")
def test_a_process_follows_a_switch_within_the_time_promised(redis: Redis) -> None:
    now_s = 100.0
    modes = Modes(redis, clock=lambda: now_s)
    assert modes.current() is Mode.ASYNC
    Modes(redis).switch(Mode.SYNC)
    now_s += CACHE_S - 0.1
    assert modes.current() is Mode.ASYNC
    now_s += 0.1
    assert modes.current() is Mode.SYNC
    assert CACHE_S <= 5


@pytest.mark.req("A27")
def test_the_command_line_switches_a_running_service(
    tmp_path: Path, redis_url: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    key = runtime.credentials.create("acme", "ada")[1]
    headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}

    def run(*words: str) -> str:
        done = CliRunner().invoke(genqueue, ["mode", *words])
        assert done.exit_code == 0, done.output
        return done.output

    with stream_server(tmp_path, redis_url) as server:

        def mode() -> str:
            answer = requests.post(
                f"{server.url}/v1/prompt", json={"prompt": "hello"}, headers=headers, timeout=5
            )
            return answer.headers["Genqueue-Mode"]

        assert mode() == "async"
        assert "shadow" in run("shadow")
        wait_until(lambda: mode() == "shadow", 5, "the process follows")
        assert json.loads(run("--json")) == {"mode": "shadow"}
        run("async")
        wait_until(lambda: mode() == "async", 5, "the process follows back")
    assert CliRunner().invoke(genqueue, ["mode", "off"]).exit_code == 2


@pytest.mark.req("A27")
def test_a_mode_of_one_app_is_the_mode_of_all(
    make_runtime: Callable[..., Runtime],
) -> None:
    one, other = make_runtime(), make_runtime()
    one.modes.switch(Mode.SYNC)
    assert other.modes.current() is Mode.SYNC
