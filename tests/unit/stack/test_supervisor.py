"""Does the supervisor watch its children, start the dead again, and stop in order?"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from service.stack.child import Child, ChildSpec
from service.stack.errors import ChildDiedError
from service.stack.stop_request import StopRequest
from service.stack.supervisor import Supervisor, process_table
from tests.support.waiting import wait_until

# Writes its process id, and at SIGTERM its name, to files beside the logs.
STEADY = """
import os, pathlib, signal, sys, time
name = sys.argv[1]
pathlib.Path(f"{name}.pid").write_text(str(os.getpid()))
def end(*_):
    with open("ends", "a") as ends: ends.write(f"{name}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(f"{name}.{os.getpid()}").touch()
while True: time.sleep(60)
"""
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("grandchild").write_text(str(grandchild.pid))
time.sleep(600)
"""

Build = Callable[..., Supervisor]


def spec(name: str, code: str, stop_within_s: float = 10.0) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code, name), stop_within_s)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def request_to_stop() -> StopRequest:
    return StopRequest()


@pytest.fixture
def build(folder: Path, request_to_stop: StopRequest) -> Iterator[Build]:
    built: list[Supervisor] = []

    def make(*table: ChildSpec) -> Supervisor:
        built.append(Supervisor(table, os.environ, folder / "log", None, request_to_stop))
        return built[-1]

    yield make
    for supervisor in built:
        supervisor.stop()


def number_in(path: Path) -> int:
    return wait_until(lambda: path.exists() and path.read_text(), 10, f"{path.name} was written")


def serving(supervisor: Supervisor, until: Callable[[], bool], request: StopRequest) -> None:
    """Serve in this thread until a condition holds, which a second thread looks for."""

    def ask_for_stop() -> None:
        try:
            wait_until(until, 20, "the condition to stop serving")
        finally:
            request.ask()

    watcher = threading.Thread(target=ask_for_stop)
    watcher.start()
    supervisor.serve()
    watcher.join()


def test_children_stop_one_after_another_in_the_order_of_the_table(
    build: Build, folder: Path
) -> None:
    supervisor = build(spec("first", STEADY), spec("second", STEADY), spec("third", STEADY))
    supervisor.start()
    for name in ("first", "second", "third"):
        wait_until(lambda n=name: list(folder.glob(f"{n}.[0-9]*")), 10, f"{name} is up")
    supervisor.stop()
    assert (folder / "ends").read_text().split() == ["first", "second", "third"]


def test_a_child_that_ignores_the_stop_is_ended_with_all_of_its_group(
    build: Build, folder: Path
) -> None:
    supervisor = build(spec("stubborn", STUBBORN, stop_within_s=0.2))
    supervisor.start()
    grandchild = int(number_in(folder / "grandchild"))
    supervisor.stop()
    wait_until(lambda: not psutil.pid_exists(grandchild), 5, "the grandchild is gone")


def test_asking_twice_stops_a_child_at_once_that_would_take_its_time(
    build: Build, folder: Path, request_to_stop: StopRequest
) -> None:
    supervisor = build(spec("stubborn", STUBBORN, stop_within_s=600))
    supervisor.start()
    grandchild = int(number_in(folder / "grandchild"))
    request_to_stop.ask()
    threading.Timer(0.2, request_to_stop.ask).start()
    began_at_s = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began_at_s < 30
    wait_until(lambda: not psutil.pid_exists(grandchild), 5, "the grandchild is gone")


def test_a_killed_child_is_started_again_and_the_person_is_told(
    build: Build, folder: Path, request_to_stop: StopRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = build(spec("steady", STEADY))
    supervisor.start()
    first_pid = int(number_in(folder / "steady.pid"))
    psutil.Process(first_pid).kill()
    serving(supervisor, lambda: len(list(folder.glob("steady.[0-9]*"))) == 2, request_to_stop)
    assert int((folder / "steady.pid").read_text()) != first_pid
    assert "steady | ended (signal 9), starts again in 1 s" in capsys.readouterr().err


def test_a_child_that_ends_before_the_stack_is_ready_is_told_with_its_last_lines(
    build: Build, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = build(spec("broken", "import sys; print('no such module'); sys.exit(3)"))
    supervisor.start()

    def error() -> ChildDiedError | None:
        try:
            supervisor.check_none_ended()
        except ChildDiedError as caught:
            return caught
        return None

    caught = wait_until(error, 10, "the end of the child is seen")
    assert "broken ended before the stack was ready (exit status 3)" in str(caught)
    assert str(folder / "log/broken.log") in str(caught)
    assert "broken | no such module" in capsys.readouterr().err


def test_output_of_children_goes_to_their_logs_and_not_to_the_terminal(
    build: Build, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor = build(spec("chatty", f"print('hello', flush=True)\n{STEADY}"))
    supervisor.start()
    number_in(folder / "chatty.pid")
    supervisor.stop()
    assert (folder / "log/chatty.log").read_text() == "hello\n"
    assert capfd.readouterr() == ("", "")


def test_the_pause_before_a_new_start_doubles_up_to_half_a_minute(folder: Path) -> None:
    child = Child(spec("dying", "raise SystemExit"), os.environ, folder)
    child.start()
    assert [child.next_pause_s() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    child.end_group()


def test_a_log_beyond_its_limit_is_put_aside_at_the_next_start(folder: Path) -> None:
    (folder / "noisy.log").write_bytes(b"x" * 10_000_001)
    child = Child(spec("noisy", "print('new')"), os.environ, folder)
    child.start()
    wait_until(child.how_it_ended, 10, "the child is over")
    assert (folder / "noisy.log").read_text() == "new\n"
    assert (folder / "noisy.log.1").stat().st_size == 10_000_001


@pytest.mark.req("X1")
def test_the_api_stops_before_the_workers_and_listens_on_loopback_only() -> None:
    table = process_table(port=8080)
    assert [row.name for row in table] == ["api", "scheduler", "worker"]
    assert "127.0.0.1:8080" in table[0].command
