"""Can a prompt be sent and its answer waited for from a shell, with and without the API? (A1)"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.records import Records
from service.stack.free_port import free_port
from tests.integration.cli.conftest import Invoke, Shell
from tests.support.processes import Fleet, wait_for_states
from tests.support.waiting import wait_until

ReadJson = Callable[..., Any]


def job_of(records: Records, told: dict[str, Any]) -> Any:
    view = records.job(told["job_id"])
    assert view is not None
    return view.job


@pytest.mark.req("A1")
def test_a_prompt_goes_straight_to_redis_and_a_worker_is_called(
    shell: Shell, records: Records, redis: Redis
) -> None:
    words = ("--priority", "7", "--max-attempts", "2", "--org", "acme", "--user", "ann", "--json")
    done = shell("submit", "Why is the [bold]sky[/bold] blue?", *words)
    assert done.returncode == 0, done.stderr
    job = job_of(records, json.loads(done.stdout))
    assert (job.state, job.priority, job.max_attempts) == (State.QUEUED, 7, 2)
    assert (job.org_id, job.created_by, job.target) == ("acme", "ann", "mock:mock-1")
    prompt = records.prompt(job.prompt_id)
    assert prompt is not None
    assert prompt.prompt.text == "Why is the [bold]sky[/bold] blue?"
    assert redis.llen("rq:queue:genqueue") == 1


def test_a_prompt_may_come_on_standard_input(invoke: Invoke, records: Records) -> None:
    told = json.loads(invoke("submit", "-", "--json", stdin="two\nlines\n").stdout)
    prompt = records.prompt(told["prompt_id"])
    assert prompt is not None
    assert prompt.prompt.text == "two\nlines\n"


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("",), None, "prompt: must not be empty"),
        (("-",), b"\xff\xfe", "not UTF-8 at byte 0"),
        (("-",), b"a\0b", "contains a NUL"),
        (("x", "--model", "no-such"), None, "no-such"),
        (("x", "--model", "gpt-5-mini"), None, "OPENAI_API_KEY"),
        (("x", "--max-attempts", "11"), None, "max_attempts: must be a whole number from 1 to 10"),
        (("x", "--priority", "101"), None, "--priority"),
        (("x", "--org", "a|b"), None, "--org must be"),
        (("x", "--within", "3"), None, "--within goes with --wait"),
        (("x", "--key", "gq_0123456789ab_x"), None, "--key goes with --url"),
        (("x", "--url", "http://127.0.0.1:1"), None, "GENQUEUE_KEY"),
    ],
)
def test_what_can_not_be_asked_is_a_usage_error_and_nothing_is_stored(
    invoke: Invoke, redis: Redis, words: tuple[str, ...], stdin: bytes | None, said: str
) -> None:
    done = invoke("submit", *words, stdin=stdin)
    assert done.exit_code == 2
    assert said in done.stderr
    assert redis.dbsize() == 0


@pytest.mark.req("A1", "A22")
def test_wait_prints_the_answer_alone_and_its_progress_beside(
    shell: Shell, ships: Fleet, redis: Redis
) -> None:
    ships.thread_worker(redis)
    done = shell("submit", "[[mock delay=0.5]] Hello.", "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("This is mock text")
    assert len(done.stdout.splitlines()) == 1
    assert "running" in done.stderr

    failed = shell("submit", "[[mock error=provider_4xx]]", "--wait", "--json")
    assert failed.returncode == 1
    told = json.loads(failed.stdout)
    assert (told["state"], told["error_kind"], told["text"]) == ("failed", "provider_4xx", None)


def test_wait_ends_after_its_time_and_the_job_goes_on(
    invoke: Invoke, redis: Redis, records: Records
) -> None:
    done = invoke("submit", "Nobody runs this.", "--wait", "--within", "0.5")
    assert done.exit_code == 1
    assert "is still queued, waits on queue; it goes on." in done.stderr
    (job_id,) = redis.zrange(keys.CHANGED("dev"), 0, -1)
    view = records.job(job_id)
    assert view is not None
    assert view.job.state is State.QUEUED


@pytest.mark.req("A32")
def test_ctrl_c_while_waiting_cancels_nothing(
    ships: Fleet, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    ships.thread_worker(redis)
    command = (sys.executable, "-m", "service.cli", "submit", "[[mock delay=2]]", "--wait")
    waiting = ships.start(command)
    wait_until(lambda: redis.zcard(keys.RUNNING()) == 1, 20, "the job runs")
    (job_id,) = redis.zrange(keys.RUNNING(), 0, -1)
    waiting.signal(signal.SIGINT)
    assert waiting.wait(10) == 130
    assert f"The job goes on: genqueue job-details {job_id}" in waiting.output()
    wait_for_states(redis, [job_id], State.SUCCEEDED, 10)


@pytest.fixture
def api(ships: Fleet) -> str:
    """The API over this test's Redis."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"]
    command += ["--bind", f"127.0.0.1:{port}", "--workers", "1", "--threads", "9"]
    server = ships.start([*command, "--no-control-socket"])
    wait_until(lambda: "Listening at" in server.output() or not server.is_running, 30, "it serves")
    return f"http://127.0.0.1:{port}"


@pytest.mark.req("A1", "X12")
def test_with_an_address_and_a_key_the_prompt_goes_through_the_api(
    shell: Shell, api: str, ships: Fleet, redis: Redis, runtime: Runtime, records: Records
) -> None:
    ships.thread_worker(redis)
    key = runtime.credentials.create("acme", "ann")[1]
    # No way to Redis: only the API may be used.
    variables = {"REDIS_URL": "redis://127.0.0.1:1/0", "GENQUEUE_URL": api, "GENQUEUE_KEY": key}
    done = shell("submit", "Hello.", "--wait", "--priority", "3", "--json", variables=variables)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["text"].startswith("This is mock text")
    job = job_of(records, told)
    assert (job.org_id, job.created_by, job.priority) == ("acme", "ann", 3)

    failed = shell("submit", "[[mock error=auth]]", "--wait", variables=variables)
    assert failed.returncode == 1
    assert "failed: auth" in failed.stderr
    bad = shell("submit", "  ", variables=variables)
    assert bad.returncode == 2
    assert "prompt" in bad.stderr
    stranger = {**variables, "GENQUEUE_KEY": "gq_000000000000_" + "x" * 43}
    refused = shell("submit", "Hello.", variables=stranger)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("genqueue: the API answered 401: ")
    assert key not in done.stderr + failed.stderr + bad.stderr + refused.stderr
    other = shell("submit", "Hello.", "--org", "umbrella", variables=variables)
    assert other.returncode == 2
    assert "--org is for Redis" in other.stderr


def test_an_api_that_is_away_is_one_line_and_status_3(shell: Shell) -> None:
    words = ("--url", "http://127.0.0.1:1", "--key", "gq_0123456789ab_x")
    done = shell("submit", "Hello.", *words)
    assert done.returncode == 3
    assert done.stderr.strip().splitlines() == [
        "genqueue: http://127.0.0.1:1 does not answer: ConnectionError"
    ]


def test_an_address_of_the_api_leaves_the_other_commands_as_they_are(shell: Shell) -> None:
    variables = {"GENQUEUE_URL": "http://127.0.0.1:1", "GENQUEUE_KEY": "gq_0123456789ab_x"}
    done: subprocess.CompletedProcess[str] = shell("list-jobs", variables=variables)
    assert done.returncode == 0, done.stderr
