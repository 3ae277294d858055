"""How do old jobs leave Redis from a shell, for cron or by hand? (A24)"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from jobs.archive_file import ArchiveFile, ArchiveFileError, archive
from jobs.runtime import build
from jobs.store.dossiers import Dossiers
from jobs.store.ticks import Ticks
from service.cli.moments import MOMENT, Moment
from service.cli.output import as_json_option, console, print_json
from service.instants import rfc3339

DAYS_KEPT: Final = 30
EXIT_FILE: Final = 1


@click.command("archive-old-jobs")
@click.option(
    "--before",
    type=MOMENT,
    default=f"{DAYS_KEPT}d",
    show_default=True,
    help="Jobs that ended before then: a day, RFC 3339, or so long ago.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("genqueue-archive.jsonl"),
    show_default=True,
    help="The file that the lines are appended to.",
)
@click.option("--dry-run", is_flag=True, help="Only say how many jobs that would be.")
@as_json_option
def archive_old_jobs(before: Moment, path: Path, dry_run: bool, as_json: bool) -> None:
    """Write ended jobs to a file, one JSON line each, and remove from Redis what was written.

    A line holds the record, the history, the prompt with its text, its responses, what was used and
    who decided, and of a chat turn its request with all attempts. Nothing is removed before its
    line is on the disk. A run that was killed may have written jobs that it did not remove: the
    next run writes those again and says how many; the last line of a job counts. Ids of archived
    jobs are remembered for 30 days.

    \b
    Example: genqueue archive-old-jobs --before 90d --file /var/backups/genqueue.jsonl
    """
    runtime = build()
    dossiers = Dossiers(runtime.redis)
    before_ms = before.resolve(Ticks(runtime.redis).now_ms())
    total = dossiers.count_ended_before(before_ms)
    if dry_run:
        _report({"would_remove": total, "before": rfc3339(before_ms)}, as_json)
        return
    try:
        with (
            ArchiveFile(path) as file,
            console(stderr=True).status("") as status,
        ):
            done = archive(
                file,
                runtime.records,
                dossiers,
                runtime.upkeep,
                before_ms=before_ms,
                on_progress=lambda removed: status.update(f"{removed} of {total} archived"),
            )
    except ArchiveFileError as error:
        click.echo(f"genqueue: {error}; nothing was removed that is not in the file.", err=True)
        sys.exit(EXIT_FILE)
    _report(
        {
            "removed": done.removed,
            "repeated": done.repeated,
            "left": done.left,
            "mended_bytes": done.mended_bytes,
            "before": rfc3339(before_ms),
            "file": str(path),
        },
        as_json,
    )


def _report(value: dict[str, int | str], as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    before = value["before"]
    if "would_remove" in value:
        click.echo(f"Would archive {value['would_remove']} jobs that ended before {before}.")
        return
    click.echo(f"Archived {value['removed']} jobs that ended before {before} in {value['file']}.")
    if value["repeated"]:
        click.echo(
            f"{value['repeated']} of them stand in it twice, since a run before was ended between"
            " writing and removing; the last line of a job counts."
        )
    if value["mended_bytes"]:
        click.echo(f"Cut off {value['mended_bytes']} bytes of a line that was never finished.")
    if value["left"]:
        click.echo(f"Left {value['left']} jobs, which moved meanwhile; run this again.")
