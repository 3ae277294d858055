"""How is work run from a shell? As a service that stays, or once, for cron. (A5, A6)"""

from __future__ import annotations

import sys

import click

from jobs import logs
from jobs.domain.job import PRIORITY_MAX, PRIORITY_MIN
from jobs.runtime import build
from service.cli.output import as_json_option, print_json

BATCH_SIZE_MAX = 512


@click.command()
@click.option(
    "--concurrency",
    type=click.IntRange(1, 512),
    help="Attempts at once.  [default: GENQUEUE_WORKER_CONCURRENCY]",
)
def worker(concurrency: int | None) -> None:
    """Run work until SIGTERM, many attempts at once in one process.

    \b
    Example: genqueue worker --concurrency 64
    """
    _run_worker(concurrency)


@click.command("run-worker")
@click.option("--once", is_flag=True, help="Run what is there now, then end.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, BATCH_SIZE_MAX),
    default=5,
    show_default=True,
    help="Most attempts of one run.",
)
@click.option(
    "--priority-ceiling",
    type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX),
    default=PRIORITY_MAX,
    show_default=True,
    help="Leave work of a higher number, which is less urgent.",
)
@as_json_option
@click.pass_context
def run_worker(
    context: click.Context, once: bool, batch_size: int, priority_ceiling: int, as_json: bool
) -> None:
    """Run one batch of work with --once, for cron; without it, the same as `genqueue worker`.

    \b
    Example: genqueue run-worker --once --batch-size 5 --priority-ceiling 40
    """
    if not once:
        for name in ("batch_size", "priority_ceiling", "as_json"):
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                option = {"as_json": "--json"}.get(name, f"--{name.replace('_', '-')}")
                raise click.UsageError(f"{option} goes with --once.")
        _run_worker(None)
    # Imported late: no other command needs what a worker needs.
    from jobs.worker.run import run_once  # noqa: PLC0415  # see above

    attempts = run_once(build(), batch_size, priority_ceiling)
    if as_json:
        print_json({"attempts": attempts})
    else:
        click.echo(f"Ran {attempts} attempt{'' if attempts == 1 else 's'}.")


def _run_worker(concurrency: int | None) -> None:
    from jobs.worker.run import run_worker as run  # noqa: PLC0415  # see run_worker above

    runtime = build()
    logs.configure(runtime.settings)
    sys.exit(run(runtime, concurrency=concurrency))
