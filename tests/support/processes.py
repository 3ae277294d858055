"""How does a test run a worker as its user would: as a process of its own?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from redis import Redis

from jobs.store import keys
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_S = 20.0
THREAD_WORKER = (
    sys.executable,
    "-c",
    """
import logging, sys
from jobs.runtime import build
from jobs.worker.run import run_worker

logging.basicConfig(level="INFO")
sys.exit(run_worker(build()))
""",
)
RQ_CLASSES = ("--job-class", "jobs.tickets.TicketJob", "--serializer", "json")


def rq_command(*words: str) -> tuple[str, ...]:
    """The rq command line of this environment."""
    return (sys.executable, "-m", "rq.cli", *words)


class Process:
    """A child in a process group of its own; its output goes to a file that a failure shows."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the child has not ended."""
        return self._popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Signal the child alone."""
        self._popen.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, within_s: float) -> int:
        """The exit status; fails the test where the child does not end in time."""
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s} s:\n{self.output()}") from None

    def output(self) -> str:
        """What the child printed."""
        return self.log.read_text("utf-8", "replace")

    def end(self) -> None:
        """Kill what is left."""
        self.signal_group(signal.SIGCONT)
        self.signal_group(signal.SIGKILL)
        self._popen.wait(10)


class Fleet:
    """The worker processes of one test, all on one Redis; they are gone when it ends."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self.redis_url = redis_url
        self._folder = folder
        self._processes: list[Process] = []

    def start(self, command: Sequence[str], **settings: object) -> Process:
        """Start `command`; settings by keyword, `lease_window_s=3` for GENQUEUE_LEASE_WINDOW_S."""
        environment = {"REDIS_URL": self.redis_url, "RQ_REDIS_URL": self.redis_url}
        environment |= {f"GENQUEUE_{name.upper()}": str(v) for name, v in settings.items()}
        log = self._folder / f"process-{len(self._processes)}.log"
        process = Process(command, environment, log)
        self._processes.append(process)
        return process

    def thread_worker(self, redis: Redis, **settings: object) -> Process:
        """A ThreadWorker that has registered with RQ."""
        before = redis.scard("rq:workers")
        process = self.start(THREAD_WORKER, **settings)
        wait_until(
            lambda: redis.scard("rq:workers") > before or not process.is_running,
            START_S,
            "the worker registers",
        )
        assert process.is_running, process.output()
        return process

    def end(self) -> None:
        """End every process."""
        for process in self._processes:
            process.end()


@contextlib.contextmanager
def fleet(redis_url: str, folder: Path) -> Iterator[Fleet]:
    """A fleet for the block."""
    ships = Fleet(redis_url, folder)
    try:
        yield ships
    finally:
        ships.end()


def states(redis: Redis, job_ids: Sequence[str]) -> list[str | None]:
    """The stored state of each job, None where there is no such job."""
    pipe = redis.pipeline(transaction=False)
    for job_id in job_ids:
        pipe.hget(keys.JOB(job_id), "state")
    return pipe.execute()


def wait_for_states(redis: Redis, job_ids: Sequence[str], state: str, within_s: float) -> None:
    """Wait until every job is in `state`."""

    def all_there() -> bool:
        return set(states(redis, job_ids)) == {state}

    wait_until(all_there, within_s, f"all {len(job_ids)} jobs are {state}")
