"""How does a part of the scheduler work on an RQ queue of its own? (decision 9)

`rq info` shows it as a worker. It keeps none of RQ's books (registries, results), which cost more
than what it runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError
from rq.worker import BaseWorker
from rq.worker.base import WorkerStatus

from jobs.domain.errors import StoreUnavailableError
from jobs.store.connection import store_errors
from jobs.tickets import TicketJob
from scheduler.patience import keep_on

logger = logging.getLogger(__name__)

BLOCK_S: Final = 1
"""Longest block on the queue: a stop is noticed in this time."""

ALIVE_EVERY_S: Final = 10.0
DRAIN_MAX: Final = 1000


def newest_of_each(ids: Iterable[bytes]) -> list[bytes]:
    """The last of equal ids, in the order of those."""
    return list(dict.fromkeys(reversed(list(ids))))[::-1]


class QueueWorker(BaseWorker):
    """Takes what is on the RQ queue `queue_name`, one after another. It ignores `rq suspend`: what
    it does must go on while attempts are suspended."""

    def __init__(
        self, queue_name: str, redis: Redis, job_class: type[TicketJob], part: str
    ) -> None:
        name = f"{queue_name}-{uuid.uuid4().hex[:12]}"
        super().__init__(
            [queue_name],
            name=name,
            connection=redis,
            job_class=job_class,
            serializer="json",
            worker_ttl=60,
            prepare_for_work=False,  # it asks Redis, which may be away; see _show_life
        )
        self._part = part
        self._is_known = False
        self._alive_at_s = 0.0

    @property
    def connection_timeout(self) -> int:
        """Seconds of RQ's least socket timeout."""
        return 5

    @abstractmethod
    def run_each(self, ids: list[str]) -> None:
        """Work on the RQ jobs of these ids."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop`; whatever goes wrong is logged, and the worker goes on."""
        keep_on(self.step, stop, self._part)
        if self._is_known:
            with contextlib.suppress(RedisError):
                self.register_death()

    def step(self) -> int:
        """Wait up to a second for RQ jobs and run them; answers how many. Raises RedisError and
        StoreUnavailableError."""
        self._show_life()
        key = self.queues[0].key
        popped: Any = self.connection.blpop([key], BLOCK_S)
        if popped is None:
            return 0
        waiting: Any = self.connection.lpop(key, DRAIN_MAX) or []
        ids = newest_of_each([popped[1], *waiting])
        if len(waiting) >= len(ids):
            logger.info("%s: %d copies dropped", self._part, len(waiting) + 1 - len(ids))
        self.run_each([raw_id.decode("utf-8", "replace") for raw_id in ids])
        return len(ids)

    def fetch(self, job_id: str) -> Any:
        """The RQ job of that id, or None where it can't be read. Raises StoreUnavailableError."""
        try:
            with store_errors():
                return self.job_class.fetch(job_id, connection=self.connection)
        except StoreUnavailableError:
            raise
        except Exception as error:
            logger.warning("%s: dropped %.80r: %s", self._part, job_id, type(error).__name__)
            return None

    def _show_life(self) -> None:
        """Be registered with RQ, also after Redis lost it; full memory must not stop it."""
        now_s = time.monotonic()
        if self._is_known and now_s - self._alive_at_s < ALIVE_EVERY_S:
            return
        self._alive_at_s = now_s
        try:
            with store_errors():
                self._register_if_unknown()
                self.heartbeat()
        except StoreUnavailableError as error:
            logger.warning("%s: not shown as a worker: %s", self._part, error)
        else:
            self._is_known = True

    def _register_if_unknown(self) -> None:
        if not self.connection.exists(self.key):
            self.hostname, self.pid = os.uname().nodename, os.getpid()
            self.register_birth()
            self.set_state(WorkerStatus.IDLE)
