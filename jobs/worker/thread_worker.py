"""How does one RQ worker process run many attempts at once? (X8, decision 10)

A subclass of RQ's BaseWorker: `rq info`, `rq suspend`, the stop command and the dashboard see
an ordinary worker. Tickets are dequeued one at a time and each runs in a thread of its own;
what runs inside is the WorkPool's. The loop is ours, since RQ's ends on Redis errors.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from redis.exceptions import RedisError
from rq.command import parse_payload
from rq.exceptions import DequeueTimeout, StopRequested
from rq.suspension import is_suspended
from rq.timeouts import BaseDeathPenalty
from rq.worker import BaseWorker
from rq.worker.base import WorkerStatus

from jobs import maintenance
from jobs.domain.errors import StoreUnavailableError
from jobs.runtime import Runtime, build
from jobs.store.connection import store_errors
from jobs.tickets import TicketJob
from jobs.worker.assembly import Crew, assemble
from jobs.worker.current import set_current_pool
from jobs.worker.threads import DaemonThreads

logger = logging.getLogger(__name__)

DEQUEUE_S: Final = 5
"""Longest block on the ticket list: a half-open connection is noticed in this time."""

TICKET_PAUSE_S: Final = 0.05
"""Least time between two tickets. RQ's bookkeeping costs a ticket about 60 commands; a burst
of submits needs one ticket, not one each."""

ALIVE_EVERY_S: Final = 10.0
OUTAGE_PAUSE_MAX_S: Final = 2.0
COLD_SIGNAL_S: Final = 1.0
"""A second signal within this time is the same request, delivered twice."""

HAND_BACK_S: Final = 5.0


class NoDeathPenalty(BaseDeathPenalty):
    """Tickets have no timeout: deadlines are in the provider call (A11)."""

    def setup_death_penalty(self) -> None:
        """Nothing to set up."""

    def cancel_death_penalty(self) -> None:
        """Nothing to cancel."""


class ThreadWorker(BaseWorker):
    """Runs up to `concurrency` attempts at once; use it as `--worker-class` of the rq CLI too."""

    death_penalty_class = NoDeathPenalty
    log_job_description = False
    log_result_lifespan = False

    def __init__(
        self,
        queues: Any,
        *args: Any,
        runtime: Runtime | None = None,
        concurrency: int | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["serializer"] = "json"
        kwargs["job_class"] = kwargs.get("job_class") or TicketJob
        super().__init__(queues, *args, **kwargs)
        if len(self.queues) != 1:
            raise ValueError("a ThreadWorker works on exactly one queue of tickets")
        self._runtime = runtime
        self._concurrency = concurrency
        self._crew: Crew | None = None
        self._ticket_threads: DaemonThreads | None = None
        self._open: dict[str, tuple[Any, Any]] = {}
        self._is_dequeuing = False
        self._is_cold = False
        self._stop_at_s = 0.0
        self._alive_at_s = 0.0
        self._ticket_at_s = 0.0
        self._looked_at_s = 0.0
        self._swept_at_s: float | None = None

    @property
    def dequeue_timeout(self) -> int:
        """Seconds of the longest block; RQ derives the socket timeout from it."""
        return DEQUEUE_S

    def work(  # type: ignore[override]  # RQ's other options have no meaning here
        self, burst: bool = False, logging_level: str | None = "INFO", **_options: Any
    ) -> bool:
        """Work until told to stop, or with `burst` until there is no ticket and nothing runs.

        Redis errors are waited out. Answers whether any ticket was worked on.
        """
        runtime = self._runtime or build()
        settings = runtime.settings
        self._runtime = runtime
        concurrency = self._concurrency or settings.worker_concurrency
        self._bootstrap_patiently(logging_level)
        self._install_signal_handlers()
        self._crew = assemble(runtime, concurrency=concurrency, worker_name=self.name)
        self._ticket_threads = DaemonThreads(concurrency + 1, "ticket")
        set_current_pool(self._crew.pool)
        runtime.providers.preload()
        worked = False
        try:
            while not self._stop_requested:
                try:
                    ticket = self._step(runtime)
                    worked = worked or ticket
                    if burst and not ticket and self._crew.pool.is_idle:
                        break
                except StopRequested:
                    break
                except (RedisError, StoreUnavailableError) as error:
                    logger.warning("worker: Redis is away: %s", type(error).__name__)
                    self._sleep(OUTAGE_PAUSE_MAX_S)
        finally:
            self._finish(settings.shutdown_grace_s)
        return worked

    def _step(self, runtime: Runtime) -> bool:
        """One round of the loop; answers whether a ticket was taken."""
        crew = self._need_crew()
        self._show_life()
        self._stand_in_for_sweeps(runtime, crew)
        if is_suspended(self.connection):
            self.set_state(WorkerStatus.SUSPENDED)
            self._sleep(1.0)
            return False
        if self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()
        if not crew.pool.wants_ticket:
            with self._interruptible():
                crew.pool.wait_wanted(1.0)
            return False
        self._look_when_due(runtime, crew)
        pause_s = self._ticket_at_s + TICKET_PAUSE_S - time.monotonic()
        if pause_s > 0:
            self._sleep(pause_s)
        return self._take_ticket(crew)

    def _take_ticket(self, crew: Crew) -> bool:
        if crew.pool.is_idle and self.get_state() != WorkerStatus.IDLE:
            self.set_state(WorkerStatus.IDLE)
        due_in_s = crew.pool.due_in_s()
        wait_s = DEQUEUE_S if due_in_s is None else min(DEQUEUE_S, due_in_s)
        try:
            with self._interruptible():
                found = self.queue_class.dequeue_any(
                    self.queues,
                    # RQ takes whole seconds, and 0 for ever: a shorter wait is a look.
                    int(wait_s) if wait_s >= 1 else None,
                    connection=self.connection,
                    job_class=self.job_class,
                    serializer=self.serializer,
                    death_penalty_class=self.death_penalty_class,
                )
        except DequeueTimeout:
            return False
        if found is None:
            self._sleep(min(wait_s, 0.05))
            return False
        job, queue = found
        self._ticket_at_s = time.monotonic()
        self.execute_job(job, queue)
        return True

    def execute_job(self, job: Any, queue: Any) -> None:
        """Work on a ticket in a thread of its own."""
        job.redis_server_version = self.get_redis_server_version()
        execution = self.prepare_execution(job)
        self._open[execution.id] = (job, execution)

        def work() -> None:
            try:
                self.perform_job(job, queue, execution)
            except (RedisError, StoreUnavailableError) as error:
                # The ticket's own bookkeeping only: the attempts are settled by then.
                logger.warning("ticket %s: %s", job.id, type(error).__name__)
            finally:
                self.executions.pop(execution.id, None)
                self._open.pop(execution.id, None)

        assert self._ticket_threads is not None
        self._ticket_threads.run(work)

    def _look_when_due(self, runtime: Runtime, crew: Crew) -> None:
        """A scheduled job is due, or a ticket may have been lost."""
        now_s = time.monotonic()
        is_due = crew.pool.due_in_s() == 0.0
        if is_due or now_s - self._looked_at_s >= runtime.settings.idle_poll_s:
            self._looked_at_s = now_s
            done = maintenance.promote(runtime)
            crew.pool.note(done.due_in_ms, done.sweep_age_ms)

    def _stand_in_for_sweeps(self, runtime: Runtime, crew: Crew) -> None:
        """Sweep while nobody else does (decision 7), until another's sweep is seen."""
        settings = runtime.settings
        now_s = time.monotonic()
        if self._swept_at_s is None and not crew.pool.sweep_is_overdue:
            return
        if self._swept_at_s is not None and now_s - self._swept_at_s < settings.sweep_interval_s:
            return
        done = maintenance.reclaim(runtime)
        crew.pool.sweep_is_overdue = False
        is_first = self._swept_at_s is None
        others_swept = done.since_ms is not None and done.since_ms < 900 * settings.sweep_interval_s
        self._swept_at_s = None if others_swept and not is_first else now_s

    def _show_life(self) -> None:
        """Keep the worker and its open tickets registered, also after Redis lost them (RQ-17).
        Full memory must not keep it from the work that frees memory."""
        now_s = time.monotonic()
        if now_s - self._alive_at_s < ALIVE_EVERY_S:
            return
        self._alive_at_s = now_s
        try:
            with store_errors():
                self._register_if_unknown()
                self.heartbeat()
                for job, execution in list(self._open.values()):
                    self.maintain_heartbeats(job, execution)
        except StoreUnavailableError as error:
            logger.warning("worker %s is not shown as alive: %s", self.name, error)
            self._alive_at_s = now_s - ALIVE_EVERY_S + OUTAGE_PAUSE_MAX_S

    def _register_if_unknown(self) -> None:
        # Not by the key itself: a mere change of state makes that again.
        if self.connection.hexists(self.key, "birth"):
            return
        logger.warning("worker %s was not registered: Redis lost data", self.name)
        self.connection.delete(self.key)
        self.register_birth()
        self.set_state(self.get_state())

    def handle_payload(self, message: Any) -> None:
        """RQ's commands; a stopped ticket cancels the jobs that run under it."""
        payload = parse_payload(message)
        if payload["command"] not in {"stop-job", "stop-execution"}:
            super().handle_payload(message)
            return
        try:
            count = self._need_crew().pool.stop_ticket(payload.get("job_id", ""))
            logger.info("stop command: %d jobs cancelled", count)
        except StoreUnavailableError as error:
            logger.warning("stop command: %s", error)

    def request_stop(self, _signum: Any, _frame: FrameType | None) -> None:
        """Warm stop: claim nothing more, finish within the grace time, hand back the rest."""
        signal.signal(signal.SIGINT, self.request_force_stop)
        signal.signal(signal.SIGTERM, self.request_force_stop)
        self._stop_requested = True
        self._stop_at_s = time.monotonic()
        if self._crew is not None:
            self._crew.pool.stop_claiming()
        if self._is_dequeuing:
            raise StopRequested

    def request_force_stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Cold stop, by a second signal: hand everything back now."""
        if time.monotonic() - self._stop_at_s >= COLD_SIGNAL_S:
            self._is_cold = True

    def _finish(self, grace_s: float) -> None:
        crew = self._need_crew()
        crew.pool.stop_claiming()
        logger.info("worker %s: stopping, up to %g s for what runs", self.name, grace_s)
        until_s = time.monotonic() + grace_s
        while not self._is_cold and time.monotonic() < until_s:
            if crew.pool.wait_idle(0.1):
                break
        count = crew.pool.hand_back()
        if not crew.pool.wait_idle(HAND_BACK_S):
            crew.runner.leave()
            crew.pool.wait_idle(1.0)
        if count:
            logger.info("worker %s: handed %d attempts back", self.name, count)
        crew.heartbeat.stop()
        with contextlib.suppress(RedisError):
            self.teardown()

    def _need_crew(self) -> Crew:
        assert self._crew is not None, "work() was not called"
        return self._crew

    def _bootstrap_patiently(self, logging_level: str | None) -> None:
        """Register with RQ, once Redis lets us."""
        while True:
            try:
                self.bootstrap(logging_level)
            except RedisError as error:
                logger.warning("worker: Redis is away: %s", type(error).__name__)
                time.sleep(OUTAGE_PAUSE_MAX_S)
            else:
                return

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A block that a signal may end by StopRequested."""
        self._is_dequeuing = True
        try:
            if self._stop_requested:
                raise StopRequested
            yield
        finally:
            self._is_dequeuing = False

    def _sleep(self, for_s: float) -> None:
        with self._interruptible():
            time.sleep(max(0.0, for_s))
