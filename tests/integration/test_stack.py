"""Does `python -m service.stack` run the whole of genqueue, and leave nothing behind but data?"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from redis import Redis

from jobs.store.teams import Teams
from service.stack.free_port import free_port
from tests.support.redis_server import redis_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.req("X1"), pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN_S = 90.0
STOP_WITHIN_S = 45.0
# Told in an order that is not the right one: parts seen ended in one look would come out wrong.
PROGRAMS = {
    "redis": "-server",
    "worker": "service.cli worker",
    "scheduler": "-m scheduler",
    "api": "gunicorn",
}


@dataclass
class Stack:
    """One `python -m service.stack` in a process of its own, its output in files."""

    data: Path
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    seen: list[psutil.Process] = field(default_factory=list)

    def start(self, *words: str) -> "Stack":
        self.data.parent.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if k not in {"REDIS_URL", "PORT"}}
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(
                self.command(*words),
                cwd=ROOT,
                env=environment | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def command(self, *words: str) -> list[str]:
        place = ("--port", str(self.port), "--data", str(self.data))
        return [sys.executable, "-m", "service.stack", *place, *words]

    @property
    def output_path(self) -> Path:
        return self.data.with_suffix(".output")

    @property
    def output(self) -> str:
        return self.output_path.read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.data / "dev-key").read_text().strip()

    @property
    def token(self) -> str:
        return (self.data / "dev-team-token").read_text().strip()

    def wait_until_serving(self) -> None:
        def serving() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.output
            return "Serving until Ctrl-C" in self.output

        wait_until(serving, START_WITHIN_S, "the stack serves")

    def sample_job(self) -> str:
        found = re.search(r"\(job ([0-9a-zA-Z_-]+),", self.output)
        assert found is not None, self.output
        return found[1]

    def get_job(self, job_id: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return requests.get(f"{self.url}/v1/jobs/{job_id}", headers=headers, timeout=10)

    def get_generation(self) -> requests.Response:
        found = re.search(r"\(generation ([0-9a-zA-Z_-]+),", self.output)
        assert found is not None, self.output
        address = f"{self.url}/api/projects/dev/workflow_llm_generations/{found[1]}/"
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.get(address, headers=headers, timeout=10)

    def descendants(self) -> list[psutil.Process]:
        assert self.process is not None
        found = psutil.Process(self.process.pid).children(recursive=True)
        self.seen += found
        return found

    def send(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(STOP_WITHIN_S)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path / "var")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.send(signal.SIGTERM)
    for process in made.seen:
        if process.is_running():
            process.kill()


def one_line_error(stack: Stack) -> str:
    ended = subprocess.run(
        stack.command("--once"),
        cwd=ROOT,
        env=os.environ | {"REDIS_URL": ""} | stack.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stdout == ""
    return ended.stderr


def names(processes: list[psutil.Process]) -> str:
    return " ".join(" ".join(process.cmdline()) for process in processes)


def none_alive(processes: list[psutil.Process]) -> bool:
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


def order_of_ends(stack: Stack, children: list[psutil.Process]) -> list[str]:
    """Press Ctrl-C; the parts of the stack in the order in which their last process ended."""
    parts = {
        part: [child for child in children if program in names([child])]
        for part, program in PROGRAMS.items()
    }
    assert all(parts.values()), names(children)
    ended: list[str] = []

    def all_ended() -> bool:
        for part, processes in parts.items():
            if part not in ended and none_alive(processes):
                ended.append(part)
        return len(ended) == len(parts)

    assert stack.process is not None
    stack.process.send_signal(signal.SIGINT)
    wait_until(all_ended, STOP_WITHIN_S, "every part of the stack ended")
    return ended


def pasted(command: str) -> dict[str, Any]:
    """What a command answers that was copied from the output as it stands."""
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=30, check=True
    )
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def exported(stack: Stack) -> dict[str, str]:
    """The variables of a shell in which the lines for another terminal were pasted."""
    lines = re.findall(r"^  (export .+)$", stack.output, re.MULTILINE)
    script = "\n".join([*lines, "env"])
    ended = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=10, check=True
    )
    return dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)


def test_once_answers_the_samples_shows_where_things_are_and_ends_with_status_0(
    stack: Stack,
) -> None:
    stack.start("--once")
    assert stack.process is not None
    assert stack.process.wait(START_WITHIN_S) == 0, stack.output
    output = stack.output
    assert f"API         {stack.url}\n" in output
    assert f"{stack.url}/docs" in output
    assert re.search(r"^Answer: +\S", output, re.MULTILINE)
    assert "This text is made up: the mock provider answered." in output
    assert re.search(r"^Text: +\S", output, re.MULTILINE)
    assert re.search(r"^Field: +subject_line = mock subject_line", output, re.MULTILINE)
    assert f"curl -s {stack.url}/v1/prompt -H 'Authorization: Bearer gq_" in output
    assert f"curl -s {stack.url}/api/projects/dev/workflow_llm_generations/ -H" in output
    assert "Serving" not in output


def test_ctrl_c_stops_all_in_order_and_a_second_start_still_knows_the_sample(
    stack: Stack,
) -> None:
    stack.start().wait_until_serving()
    sample, key, token = stack.sample_job(), stack.key, stack.token
    variables = exported(stack)
    assert (variables["GENQUEUE_KEY"], variables["TEAM_TOKEN"]) == (key, token)
    assert variables["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    children = stack.descendants()
    assert stack.get_job(sample).json()["state"] == "succeeded"
    ended = order_of_ends(stack, children)
    assert stack.process is not None
    assert stack.process.wait(STOP_WITHIN_S) == 0, stack.output
    assert ended == ["api", "scheduler", "worker", "redis"]
    assert none_alive(children)
    assert "Traceback" not in (stack.data / "log/worker.log").read_text()
    assert "Traceback" not in (stack.data / "log/scheduler.log").read_text()
    assert "Traceback" not in (stack.data / "log/api.log").read_text()
    assert "Received SIGTERM" in (stack.data / "redis/redis.log").read_text()

    stack.start().wait_until_serving()
    assert (stack.key, stack.token) == (key, token)
    assert exported(stack)["REDIS_URL"] == variables["REDIS_URL"]
    assert stack.get_job(sample).json()["state"] == "succeeded"


@pytest.mark.req("B1", "B9")
def test_the_pasted_curl_lines_are_accepted_and_the_samples_can_be_read(stack: Stack) -> None:
    stack.start().wait_until_serving()
    prompt, generation, chat = (
        part.split("\n\n")[0] for part in stack.output.split("  curl -s")[1:]
    )
    assert "job_id" in pasted(f"curl -s {prompt}")
    assert pasted(f"curl -s {chat}")["data"]["status"] == "escalated"
    assert re.search(r"^Outcome: +completed: \S", stack.output, re.MULTILINE)

    first = pasted(f"curl -s {generation}")
    ended: dict[str, Any] = {}

    def succeeded() -> bool:
        ended.update(pasted(f"curl -s {generation}"))
        return bool(ended["status"] == "succeeded")

    wait_until(succeeded, 10, "the same line answers the result")
    assert ended["id"] == first["id"]
    assert ended["result"]["fields"].keys() == {"subject_line"}
    assert stack.get_generation().json()["status"] == "succeeded"


def test_key_and_token_are_readable_by_their_owner_only(stack: Stack) -> None:
    stack.start().wait_until_serving()
    for name in ("dev-key", "dev-team-token", "dev-client-key"):
        assert stat.S_IMODE((stack.data / name).stat().st_mode) == 0o600


def test_a_key_and_a_token_that_no_longer_open_are_replaced(stack: Stack) -> None:
    stack.data.mkdir()
    (stack.data / "dev-key").write_text("gq_from_another_redis\n")
    (stack.data / "dev-team-token").write_text("gqt_from_another_redis\n")
    stack.start().wait_until_serving()
    assert stack.key != "gq_from_another_redis"
    assert stack.get_generation().json()["status"] == "succeeded"


@pytest.mark.req("B13")
def test_where_a_real_model_would_read_the_fields_the_sample_asks_for_none(stack: Stack) -> None:
    stack.variables["OPENAI_API_KEY"] = "sk-never-sent"
    stack.start("--once")
    assert stack.process is not None
    assert stack.process.wait(START_WITHIN_S) == 0, stack.output
    assert re.search(r"^Text: +\S", stack.output, re.MULTILINE)
    assert "Field:" not in stack.output
    assert "No fields were asked for" in stack.output
    assert "output_fields" not in stack.output


@pytest.mark.req("B21")
def test_a_team_whose_flag_was_switched_off_is_told_so_and_the_stack_serves(
    stack: Stack, tmp_path: Path
) -> None:
    with redis_server(tmp_path / "given") as server:
        stack.variables["REDIS_URL"] = server.url
        with Redis.from_url(server.url, decode_responses=True) as redis:
            Teams(redis).create("dev", "dev")
        stack.start("--once")
        assert stack.process is not None
        assert stack.process.wait(START_WITHIN_S) == 0, stack.output
    assert "Refused:           feature_unavailable: " in stack.output


def test_a_worker_that_was_killed_is_started_again(stack: Stack) -> None:
    stack.start().wait_until_serving()
    (worker,) = (p for p in stack.descendants() if "service.cli worker" in names([p]))
    worker.kill()

    def another_worker() -> bool:
        return any(
            "service.cli worker" in names([child]) and child.pid != worker.pid
            for child in stack.descendants()
            if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
        )

    wait_until(another_worker, 20, "a new worker is up")
    assert re.search(r"worker +\| ended \(signal 9\), starts again in 1 s", stack.output)


@pytest.mark.req("X13")
def test_a_redis_that_was_killed_comes_back_with_its_data(stack: Stack) -> None:
    stack.start().wait_until_serving()
    sample = stack.sample_job()
    (server,) = (p for p in stack.descendants() if "-server" in p.name())
    server.kill()

    def sample_is_back() -> bool:
        answer = stack.get_job(sample)
        return answer.ok and answer.json()["state"] == "succeeded"

    wait_until(sample_is_back, 30, "the sample is readable again")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux only")
def test_nothing_is_left_running_when_the_supervisor_itself_is_killed(stack: Stack) -> None:
    stack.start().wait_until_serving()
    children = stack.descendants()
    stack.send(signal.SIGKILL)
    wait_until(lambda: none_alive(children), STOP_WITHIN_S, "all processes of the stack ended")


def test_a_second_start_on_the_same_data_folder_is_one_clear_line(stack: Stack) -> None:
    stack.start().wait_until_serving()
    second = Stack(stack.data)
    assert "is in use by another genqueue" in one_line_error(second)
    assert stack.process is not None
    assert stack.process.poll() is None


def test_a_busy_port_is_one_clear_line(stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", stack.port)):
        assert f"port {stack.port} is in use" in one_line_error(stack)


def test_a_redis_url_that_does_not_answer_is_one_clear_line(stack: Stack) -> None:
    stack.variables["REDIS_URL"] = f"redis://:hunter2@127.0.0.1:{free_port()}/0"
    line = one_line_error(stack)
    assert "cannot be used" in line
    assert line.endswith("; unset REDIS_URL to have make run start its own\n")
    assert "hunter2" not in line


def test_a_setting_that_is_wrong_is_one_clear_line(stack: Stack) -> None:
    stack.variables["GENQUEUE_WORKER_CONCURRENCY"] = "many"
    assert "GENQUEUE_WORKER_CONCURRENCY" in one_line_error(stack)
    assert not stack.data.exists()


def test_a_redis_that_may_drop_keys_is_one_clear_line(stack: Stack, tmp_path: Path) -> None:
    with redis_server(tmp_path / "lru", extra=("--maxmemory-policy", "allkeys-lru")) as server:
        stack.variables["REDIS_URL"] = server.url
        assert "allkeys-lru" in one_line_error(stack)


def test_a_given_redis_is_used_and_goes_on_after_the_stack_ended(
    stack: Stack, tmp_path: Path
) -> None:
    with redis_server(tmp_path / "given") as server:
        stack.variables["REDIS_URL"] = server.url
        stack.start("--once")
        assert stack.process is not None
        assert stack.process.wait(START_WITHIN_S) == 0, stack.output
        assert server.pid is not None
        assert not (stack.data / "redis").exists()
        assert "REDIS_URL=" not in stack.output
