"""How does a lease stay ours, and how does a running call learn that it is not? (A7, A17)

One thread a process: once a second it asks one script which of the running attempts lost
their lease or were cancelled, and every `interval_s` it renews all of them in one script.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from jobs.domain.abort import AbortScope
from jobs.domain.errors import StoreUnavailableError
from jobs.domain.job import Attempt
from jobs.store.queue import Queue

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 1.0


class Heartbeat:
    """Keeps the leases of what runs in this process; `on_lost` hears each lost job id."""

    def __init__(
        self,
        queue: Queue,
        *,
        interval_s: float,
        window_s: float,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self._queue = queue
        self._interval_s = interval_s
        self._window_ms = int(window_s * 1000)
        self._on_lost = on_lost
        self._held: dict[str, tuple[str, AbortScope]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._renewed_at_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; call it in the process that runs the attempts, after any fork."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; leases run out by themselves."""
        self._stopped.set()
        self._wake.set()

    def add(self, attempt: Attempt, scope: AbortScope) -> None:
        """Keep the lease of `attempt` and abort `scope` when it is lost."""
        with self._lock:
            self._held[attempt.job.id] = (attempt.token, scope)
        self._wake.set()

    def remove(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        with self._lock:
            if self._held.get(attempt.job.id, ("", None))[0] == attempt.token:
                del self._held[attempt.job.id]

    def holds(self, job_id: str) -> bool:
        """Whether an attempt of this job runs here, by what this process knows."""
        return job_id in self._held

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._held:
                self._wake.clear()
                if not self._held:
                    self._wake.wait()
                continue
            self._stopped.wait(LOOK_INTERVAL_S)
            try:
                self._beat()
            except StoreUnavailableError as error:
                logger.warning("heartbeat: %s", error)
            except Exception:
                # The thread must outlive any surprise: without it every lease would run out.
                logger.exception("heartbeat: unexpected failure")

    def _beat(self) -> None:
        with self._lock:
            held = dict(self._held)
        if not held:
            return
        tokens = {job_id: token for job_id, (token, _) in held.items()}
        now_s = time.monotonic()
        if now_s - self._renewed_at_s >= self._interval_s:
            lost = self._queue.renew(tokens, window_ms=self._window_ms)
            self._renewed_at_s = now_s
        else:
            lost = self._queue.check(tokens)
        for job_id, state in lost.items():
            _, scope = held[job_id]
            if not scope.is_aborted:
                scope.abort("cancelled" if state == "cancelled" else "the lease is lost")
                if self._on_lost:
                    self._on_lost(job_id)
