"""How is the way in which submits answer seen and switched? (A27)"""

from __future__ import annotations

import click

from jobs.runtime import build
from jobs.store.modes import CACHE_S, Mode
from service.cli.output import as_json_option, print_json

_MEANING = {
    Mode.SYNC: "a submit waits up to 60 s for its result, then 202",
    Mode.SHADOW: "as sync for the caller; its job is marked mode: shadow",
    Mode.ASYNC: "a submit answers 202 at once",
}


@click.command()
@click.argument("mode", required=False, type=click.Choice([mode.value for mode in Mode]))
@as_json_option
def mode(mode: str | None, as_json: bool) -> None:
    """Show how POST /v1/prompt answers, or switch it: sync, shadow or async.

    Nothing is deployed or restarted; jobs that are in the queue are not touched, and the
    provider is called by workers in every mode.

    \b
    Example: genqueue mode shadow
    """
    modes = build().modes
    if mode is not None:
        modes.switch(Mode(mode))
    current = modes.current()
    if as_json:
        print_json({"mode": current.value})
        return
    click.echo(f"{current.value}: {_MEANING[current]}")
    if mode is not None:
        click.echo(f"Every web process follows within {CACHE_S:.0f} s.")
