"""What happens by the clock, and how often? The table of ticks, and the arithmetic of due times.

A tick is one line here and a function `tick_…` in jobs.entrypoints: an idempotent claim that
takes about a second at most, may run twice or late, and answers how much it did (decision 9).
All instants are seconds of Redis's clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from jobs.settings import Settings

OVERDUE_AFTER_S: Final = 60.0
"""A tick that did not run so long after it should have is fired again: its firing was lost."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One row: what runs (a dotted path that RQ stores) and the seconds between two runs."""

    name: str
    entry_point: str
    interval_s: float

    @property
    def job_id(self) -> str:
        """The id of its RQ job, the same in every process and after every start."""
        return f"genqueue-tick-{self.name}"


def ticks(settings: Settings) -> tuple[Tick, ...]:
    """The table. `report_usage` and `drain` are in it where the settings ask for
    them (B17, A6)."""
    table: tuple[Tick, ...] = (
        Tick("promote", "jobs.entrypoints.tick_promote", 1),
        Tick("reclaim", "jobs.entrypoints.tick_reclaim", settings.sweep_interval_s),
        Tick("repair", "jobs.entrypoints.tick_repair", settings.sweep_interval_s),
        Tick("mirror", "jobs.entrypoints.tick_mirror", 1),
        Tick("outbox", "jobs.entrypoints.tick_outbox", 5),
    )
    if settings.capture_url:
        table += (Tick("report_usage", "jobs.entrypoints.tick_report_usage", 2),)
    if settings.drain_interval_s:
        table += (Tick("drain", "jobs.entrypoints.tick_drain", settings.drain_interval_s),)
    return table


def first_due_s(interval_s: float, ran_at_s: float | None, now_s: float) -> float:
    """When a tick is due that nothing has scheduled: a restart neither repeats a daily tick
    nor puts it off."""
    if ran_at_s is None:
        return now_s
    return max(now_s, min(ran_at_s, now_s) + interval_s)


def latest_due_s(interval_s: float, ran_at_s: float | None, now_s: float) -> float:
    """The latest time for which a tick may be scheduled: an interval from now, also after the
    clock was set back; now where a firing was lost."""
    if ran_at_s is not None and ran_at_s + interval_s + OVERDUE_AFTER_S < now_s:
        return now_s
    return now_s + interval_s


def next_due_s(due_s: float, interval_s: float, now_s: float) -> float:
    """The due time after `due_s`: the first one beyond now in the same rhythm, so that what was
    missed is made up for once. Raises ValueError for an interval that is none."""
    if not 0 < interval_s < math.inf:
        raise ValueError("not an interval")
    return due_s + interval_s * (math.floor(max(0.0, now_s - due_s) / interval_s) + 1)
