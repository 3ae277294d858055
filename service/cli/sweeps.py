"""How are stuck jobs taken back from a shell, for cron or by hand? (A8, A12, A22)"""

from __future__ import annotations

import dataclasses
from typing import Final

import click

from jobs import maintenance
from jobs.runtime import Runtime, build
from service.cli.moments import duration
from service.cli.output import as_json_option, print_json

FULL_BATCH: Final = 100
"""A sweep that took so many may have left some."""


@click.command("reclaim-stuck-jobs")
@click.option("--repair", is_flag=True, help="Also look over all stored jobs and put them right.")
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    help="How often this is called, where nothing else sweeps.  [default: as the scheduler]",
)
@as_json_option
def reclaim_stuck_jobs(repair: bool, every_s: int | None, as_json: bool) -> None:
    """Take back the attempts of workers that stopped renewing their leases.

    Each goes back to the queue as its next attempt, or fails as stuck. The scheduler does this
    every 15 seconds; cron may do it where there is none, and has to say how often. A sweep that
    comes much later than that after the one before takes nothing and renews every lease: Redis
    may have been away, and the workers alive.

    \b
    Example: genqueue reclaim-stuck-jobs --every 300
    Example: genqueue reclaim-stuck-jobs --repair
    """
    runtime = build()
    if every_s is not None:
        settings = dataclasses.replace(runtime.settings, sweep_interval_s=every_s)
        runtime = dataclasses.replace(runtime, settings=settings)
    swept = _sweep(runtime)
    if repair:
        swept |= _repair(runtime)
    if as_json:
        print_json(swept)
        return
    if swept["renewed"]:
        click.echo(_renewed(runtime, swept["since_ms"]))
    else:
        click.echo(
            f"Took back {swept['requeued']} attempts, failed {swept['failed']} jobs as stuck,"
            f" removed {swept['dangling']} ids that name no running job."
        )
    if repair:
        click.echo(
            f"Looked at {swept['looked_at']} jobs: put {swept['mended']} back where they belong,"
            f" removed {swept['dangling_ids']} ids that name no job."
        )


def _sweep(runtime: Runtime) -> dict[str, int | bool | None]:
    """Sweep until there is nothing more to take; the sums, and what the first one said."""
    done = maintenance.reclaim(runtime)
    requeued, failed, dangling = done.requeued, done.failed, done.dangling
    swept: dict[str, int | bool | None] = {"renewed": done.renewed, "since_ms": done.since_ms}
    while done.requeued + done.failed + done.dangling >= FULL_BATCH:
        done = maintenance.reclaim(runtime)
        requeued += done.requeued
        failed += done.failed
        dangling += done.dangling
    return swept | {"requeued": requeued, "failed": failed, "dangling": dangling}


def _repair(runtime: Runtime) -> dict[str, int | bool | None]:
    """End the round that the clock is in, then a whole one of our own."""
    looked_at = mended = dangling = rounds = 0
    while rounds < 2:
        done = maintenance.repair(runtime)
        looked_at += done.looked_at if rounds else 0
        mended += done.mended
        dangling += done.dangling
        rounds += done.is_round_done
    return {"looked_at": looked_at, "mended": mended, "dangling_ids": dangling}


def _renewed(runtime: Runtime, since_ms: int | bool | None) -> str:
    window = duration(runtime.settings.lease_window_s * 1000)
    if since_ms is None:
        why = "nobody swept before"
    elif since_ms < 0:
        why = "the clock of Redis was set back since the last sweep"
    else:
        why = (
            f"the last sweep was {duration(since_ms)} ago, and one was expected every"
            f" {runtime.settings.sweep_interval_s} s"
        )
    return (
        f"Took nothing: {why}. Redis may have been away while workers lived, so every lease was"
        f" renewed; those of dead workers end in {window}. Call this again then."
    )
