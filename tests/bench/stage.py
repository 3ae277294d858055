"""Where does a bench run? On servers and processes of its own, which end with it.

Everything is started from the main thread, tied to this process, and ended by its process id,
also on Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import psutil  # type: ignore[import-untyped]  # it ships none

from service.stack import leash
from service.stack.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
STOP_WITHIN_S = 15.0
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Started:
    """A process of the stage. `pid` leads a group of its own; `log` is what it prints."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def stop(self) -> None:
        """SIGTERM, a while to end, then SIGKILL for what is left of its group."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_WITHIN_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Stage:
    """The servers and processes of one bench; `quick` asks for small amounts."""

    def __init__(self, folder: Path, *, quick: bool, say: Callable[[str], None]) -> None:
        self.quick = quick
        self.say = say
        self._folder = folder
        self._ends = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def amount(self, whole: int, quick: int) -> int:
        """How many: `whole`, or `quick` in a quick run."""
        return quick if self.quick else whole

    def redis(self) -> RedisServer:
        """A fresh server without AOF, with the settings of the stack."""
        server = RedisServer(self._path("redis"), aof=False)
        server.start()
        self._ends.callback(server.stop)
        return server

    def path(self, name: str) -> Path:
        """A path for a file of the bench."""
        return self._folder / name

    def spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Started:
        """Start a process with `environment` on top of ours; its output goes to a file."""
        log = self._path(name).with_suffix(".log")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*leash.command(), *command],
                env={**_own_environment(), **(environment or {})},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = Started(name, process, log)
        self._ends.callback(started.stop)
        return started

    def python(
        self, name: str, words: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Started:
        """As `spawn`, for a command line of this Python."""
        return self.spawn(name, [sys.executable, *words], environment)

    def _path(self, name: str) -> Path:
        self._count += 1
        return self._folder / f"{self._count:02d}-{name}"


def _own_environment() -> dict[str, str]:
    """What children inherit: nothing that sets genqueue or that could name a real provider."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GENQUEUE_", "OPENAI_", "RQ_")) and not name.endswith("_API_KEY")
    } | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}


def wait_for(
    predicate: Callable[[], Answer], within_s: float, what: str, pause_s: float = 0.02
) -> Answer:
    """The first truthy answer; TimeoutError with `what` where there is none."""
    until_s = time.monotonic() + within_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > until_s:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(pause_s)


def cpu_s(pids: Sequence[int]) -> float:
    """User and system seconds so far of these processes and of their ended children."""
    total_s = 0.0
    for pid in pids:
        times = psutil.Process(pid).cpu_times()
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def pss_bytes(pid: int) -> int:
    """The proportional share of memory that a process holds."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no Pss for process {pid}")
