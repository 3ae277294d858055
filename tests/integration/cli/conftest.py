"""What do the tests of the command line share? It, in this process and as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from jobs.runtime import Runtime
from service.cli.main import genqueue
from tests.support.factories import new_job
from tests.support.processes import ROOT, Fleet, fleet

Invoke = Callable[..., Result]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]
Submit = Callable[..., str]


@pytest.fixture
def invoke(redis_url: str) -> Invoke:
    """A command in this process, on a wide terminal."""

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        runner = CliRunner(env={"REDIS_URL": redis_url, "COLUMNS": "250"})
        return runner.invoke(genqueue, words, input=stdin)

    return run


@pytest.fixture
def invoke_json(invoke: Invoke) -> Callable[..., Any]:
    """What a command that must succeed prints with --json."""

    def run(*words: str, exit_code: int = 0) -> Any:
        done = invoke(*words, "--json")
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)

    return run


@pytest.fixture
def shell(redis_url: str) -> Shell:
    """A command as a process of its own, as a user has it."""

    def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        variables = {"REDIS_URL": redis_url, "COLUMNS": "250", **options.pop("variables", {})}
        return subprocess.run(
            [sys.executable, "-m", "service.cli", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            **options,
        )

    return run


@pytest.fixture
def submit(runtime: Runtime) -> Submit:
    """Submits a prompt as the API does, ticket included; answers the job's id."""

    def submit_one(text: str = "Say hello.", **changes: object) -> str:
        job = new_job(prompt_text=text, **changes)
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()
        return job.id

    return submit_one


@pytest.fixture
def ships(redis_url: str, redis: Redis, tmp_path: Path) -> Iterator[Fleet]:
    """Worker processes for this test."""
    with fleet(redis_url, tmp_path) as processes:
        yield processes
