"""What does `genqueue` do, and how does it end when something is wrong?"""

from __future__ import annotations

import sys
from typing import Final

import click

from jobs.domain.errors import SettingsInvalidError, StoreUnavailableError
from service.cli.archive import archive_old_jobs
from service.cli.deliveries import deliveries
from service.cli.jobs import cancel_job, job_details, list_jobs, retry_job
from service.cli.keys import keys
from service.cli.metrics import queue_metrics
from service.cli.mode import mode
from service.cli.orgs import orgs
from service.cli.proof import proof
from service.cli.quota import quota
from service.cli.settings import settings
from service.cli.submit import submit
from service.cli.sweeps import reclaim_stuck_jobs
from service.cli.teams import teams
from service.cli.watch import watch
from service.cli.worker import run_worker, worker

EXIT_SETTINGS: Final = 2
EXIT_STORE: Final = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def genqueue() -> None:
    """A queue service that owns the execution of LLM work.

    Status 0 is success, 1 is "there is none", 2 is a wrong command line or setting, 3 is Redis
    away.

    \b
    Example: genqueue keys create --org acme --user ann
    """


genqueue.add_command(keys)
genqueue.add_command(teams)
genqueue.add_command(orgs)
genqueue.add_command(worker)
genqueue.add_command(run_worker)
genqueue.add_command(settings)
genqueue.add_command(mode)
genqueue.add_command(submit)
genqueue.add_command(watch)
genqueue.add_command(list_jobs)
genqueue.add_command(job_details)
genqueue.add_command(cancel_job)
genqueue.add_command(retry_job)
genqueue.add_command(deliveries)
genqueue.add_command(quota)
genqueue.add_command(queue_metrics)
genqueue.add_command(proof)
genqueue.add_command(reclaim_stuck_jobs)
genqueue.add_command(archive_old_jobs)


def main() -> None:
    """Run the command line of this process; ends the process."""
    try:
        genqueue(prog_name="genqueue")
    except SettingsInvalidError as error:
        for problem in error.problems:
            click.echo(f"genqueue: {problem}", err=True)
        sys.exit(EXIT_SETTINGS)
    except StoreUnavailableError as error:
        click.echo(f"genqueue: {error.reason}; see REDIS_URL", err=True)
        sys.exit(EXIT_STORE)
