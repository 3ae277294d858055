"""How is one process of the stack started, watched, started again and stopped?"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.stack import leash
from service.stack.stop_request import StopRequest

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0
LOG_LIMIT_BYTES = 10_000_000
POLL_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A row of the process table: a name, a command line, and how long a stop may take."""

    name: str
    command: tuple[str, ...]
    stop_within_s: float


class Child:
    """A process in a group of its own, so that Ctrl-C reaches the supervisor alone.

    What it prints goes to a file, which outlives both.
    """

    def __init__(self, spec: ChildSpec, environment: Mapping[str, str], log_folder: Path) -> None:
        self.name = spec.name
        self.log_path = log_folder / f"{spec.name}.log"
        self._spec = spec
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._log_begins_at = 0

    @property
    def pid(self) -> int | None:
        """The process id of the last start, else None."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it; call it from the main thread, whose end would end the child too."""
        self._keep_log_small()
        with self.log_path.open("ab") as log:
            self._log_begins_at = log.tell()
            self._process = subprocess.Popen(
                [*leash.command(), *self._spec.command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started_at_s = time.monotonic()

    def how_it_ended(self) -> str | None:
        """`exit status 3` or `signal 9`; None while it runs or before it was started."""
        status = self._process.poll() if self._process else None
        if status is None:
            return None
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def next_pause_s(self) -> float:
        """How long to wait before the next start: twice as long each time, again 1 s after a
        steady minute."""
        if time.monotonic() - self._started_at_s > STEADY_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s

    def last_lines(self, count: int = 15) -> str:
        """The end of what it printed since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_begins_at)
            text = log.read().decode("utf-8", "replace")
        return "\n".join(text.rstrip().splitlines()[-count:])

    def stop(self, request: StopRequest) -> None:
        """Ask it to end (SIGTERM), wait, then end whatever is left of its group.

        A further request to stop while this waits cuts the wait short.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
        deadline, requests_before = time.monotonic() + self._spec.stop_within_s, request.count
        while self._process.poll() is None and time.monotonic() < deadline:
            request.wait(POLL_PAUSE_S)
            if request.count > max(requests_before, 1):
                break
        self.end_group()

    def end_group(self) -> None:
        """End all that is left of its group with SIGKILL, and wait for the process itself."""
        if self._process is not None:
            # Mostly all of the group are gone already, as they should be.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _keep_log_small(self) -> None:
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_LIMIT_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
