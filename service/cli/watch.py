"""What moves right now? A live table from the event stream. (A21, A22)"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from jobs.domain.states import LIVE
from jobs.runtime import Runtime, build
from jobs.store.events import STATE_CHANGED, Event
from jobs.store.listing import Filter
from service.cli.following import Follower, Heard
from service.cli.output import (
    as_json_option,
    console,
    make_table,
    print_json,
    shown,
    state_cell,
)
from service.instants import rfc3339

ROWS_MAX: Final = 200
"""Jobs that a watch remembers; the terminal shows as many as it has lines."""

PRELOADED: Final = 20
LINES_AROUND: Final = 6


@click.command()
@click.option("--org", help="Only this organisation.  [default: all]")
@click.option(
    "--for",
    "for_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End by itself.  [default: with Ctrl-C]",
)
@as_json_option
def watch(org: str | None, for_s: float | None, as_json: bool) -> None:
    """Watch jobs move: a live table on a terminal, a line a move elsewhere, a JSON object a line
    with --json. What is queued or running at the start is in the table.

    \b
    Example: genqueue watch --org acme
    """
    runtime = build()
    heard = _until(Follower(runtime, org), for_s)
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _print_lines(heard, as_json=as_json)
        else:
            _print_live(heard, _preloaded(runtime, org))


def _until(follower: Iterable[Heard], for_s: float | None) -> Iterable[Heard]:
    end_s = None if for_s is None else time.monotonic() + for_s
    for heard in follower:
        yield heard
        if end_s is not None and time.monotonic() >= end_s:
            return


def _print_lines(heard: Iterable[Heard], *, as_json: bool) -> None:
    for one in heard:
        if one.trouble:
            click.echo(f"genqueue: {one.trouble}", err=True)
        for event in one.events:
            if as_json:
                print_json(_as_json(event), indent=None)
            else:
                click.echo("  ".join(_words(event)).rstrip())
        sys.stdout.flush()


def _words(event: Event) -> tuple[str, ...]:
    at = rfc3339(event.at_ms)
    if event.type != STATE_CHANGED:
        return (at, event.job_id, event.type, f"attempt {event.attempt}", event.state)
    move = f"{event.source or '-'} -> {event.state}"
    how = f"by {event.verb}, attempt {event.attempt}"
    return (at, event.job_id, move, how, shown(event.reason))


def _as_json(event: Event) -> dict[str, Any]:
    return {
        "type": event.type,
        "seq": event.seq,
        "at": rfc3339(event.at_ms),
        "job_id": event.job_id,
        "prompt_id": event.prompt_id,
        "user": event.user_id,
        "state": event.state,
        "from": event.source or None,
        "verb": event.verb,
        "attempt": event.attempt,
        "reason": event.reason,
    }


def _preloaded(runtime: Runtime, org: str | None) -> dict[str, tuple[str, ...]]:
    """The rows of what is queued or running now, the one that moved last at the end."""
    jobs = [
        job
        for name in ([org] if org else runtime.stats.by_org())
        for job in runtime.listing.jobs(name, Filter(states=LIVE), PRELOADED, None).jobs
    ]
    jobs = sorted(jobs, key=lambda job: job.updated_at_ms)[-ROWS_MAX:]
    return {
        job.id: (rfc3339(job.updated_at_ms), job.id, job.state, "", str(job.attempt), "")
        for job in jobs
    }


def _print_live(heard: Iterable[Heard], rows: dict[str, tuple[str, ...]]) -> None:
    screen = console()
    moves: Counter[str] = Counter()
    trouble = ""
    with Live(console=screen, auto_refresh=False, screen=False) as live:
        for one in heard:
            trouble = one.trouble
            for event in one.events:
                if event.type != STATE_CHANGED:
                    continue
                moves[event.verb] += 1
                rows.pop(event.job_id, None)
                rows[event.job_id] = _row(event)
            for job_id in list(rows)[:-ROWS_MAX]:
                del rows[job_id]
            live.update(_page(rows, moves, trouble, screen.height), refresh=True)


def _row(event: Event) -> tuple[str, ...]:
    at = rfc3339(event.at_ms)
    return (at, event.job_id, event.state, event.verb, str(event.attempt), event.reason)


def _page(
    rows: dict[str, tuple[str, ...]], moves: Counter[str], trouble: str, height: int
) -> Group:
    last_first = list(rows.values())[::-1][: max(1, height - LINES_AROUND)]
    table = make_table(
        ("moved", "job id", "state", "verb", "attempt", "reason"),
        [
            (at, job_id, state_cell(state), verb, attempt, reason)
            for at, job_id, state, verb, attempt, reason in last_first
        ],
    )
    counted = ", ".join(f"{count} {verb}" for verb, count in sorted(moves.items()))
    head = Text(f"Moves since the start: {counted or 'none'}. Ctrl-C ends.")
    return Group(head, Text(trouble, style="red"), table)
