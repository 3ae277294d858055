"""Which process runs the clock? `python -m scheduler`: the scheduler, the worker of its ticks, the
matcher of wakes, and the pool that posts outcomes.

Any number of them may run; each firing goes to one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final

import click

from jobs import logs
from jobs.delivery.assembly import assemble_pool
from jobs.delivery.pool import set_current_pool
from jobs.domain.errors import SettingsInvalidError
from jobs.runtime import Runtime, build
from jobs.store.scripts import Scripts
from jobs.store.ticks import TickLog, Ticks
from jobs.tickets import connect_rq
from jobs.wake_matcher import WakeMatcher
from scheduler.clock import TickScheduler
from scheduler.delivery_worker import DeliveryWorker
from scheduler.schedule import ticks
from scheduler.tick_worker import TickWorker

EXIT_SETTINGS: Final = 2
STOP_WITHIN_S: Final = 4.0
SOCKET_TIMEOUT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.2


class StopAsked:
    """Whether SIGTERM or SIGINT came. The handler only sets a flag: it may interrupt anything."""

    def __init__(self) -> None:
        self.yes = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.yes = True


def run(runtime: Runtime) -> int:
    """Run all parts until told to stop; answers the exit status, 1 where a part ended by
    itself. Redis may be away at the start and later."""
    settings = runtime.settings
    queue_name = f"{settings.queue_name}-ticks"
    scripts = Scripts(runtime.redis, rq_prefix=settings.rq_prefix, queue_name=settings.queue_name)
    log = TickLog(scripts)
    redis = connect_rq(settings.redis_url, socket_timeout_s=SOCKET_TIMEOUT_S)
    clock = TickScheduler(ticks(settings), redis, queue_name, log, Ticks(runtime.redis))
    worker = TickWorker(queue_name, redis, log)
    matcher = WakeMatcher(runtime.wakes, runtime.steps, runtime.tickets.issue)
    pool = assemble_pool(settings, runtime.deliveries, runtime.turns)
    set_current_pool(pool)
    signals = DeliveryWorker(settings.delivery_queue_name, redis)
    stop, asked = threading.Event(), StopAsked()
    # Daemons: a part that hangs must not keep the process.
    parts = [
        threading.Thread(target=part.run, args=(stop,), name=name, daemon=True)
        for name, part in (
            *(("clock", clock), ("ticks", worker), ("wakes", matcher)),
            *(("deliveries", pool), ("delivery-signals", signals)),
        )
    ]
    for part in parts:
        part.start()
    while not asked.yes and all(part.is_alive() for part in parts):
        time.sleep(LOOK_EVERY_S)
    stop.set()
    until_s = time.monotonic() + STOP_WITHIN_S
    for part in parts:
        part.join(max(0.0, until_s - time.monotonic()))
    return 0 if asked.yes else 1


@click.command()
def main() -> None:
    """Fire the ticks of genqueue (promotion of due jobs, sweeps, …) and run them, and post
    outcomes, until SIGTERM.

    \b
    Example: python -m scheduler
    """
    # rq-scheduler reads crontab strings in local time, whatever it is asked for.
    os.putenv("TZ", "UTC")
    time.tzset()
    try:
        runtime = build()
    except SettingsInvalidError as error:
        for problem in error.problems:
            click.echo(f"scheduler: {problem}", err=True)
        sys.exit(EXIT_SETTINGS)
    logs.configure(runtime.settings)
    sys.exit(run(runtime))


if __name__ == "__main__":
    main(prog_name="python -m scheduler")
