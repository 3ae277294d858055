"""Which variables may an operator set?"""

from __future__ import annotations

import click

from jobs.settings import describe
from service.cli.output import as_json_option, print_json, print_table


@click.command()
@as_json_option
def settings(as_json: bool) -> None:
    """List the environment variables that genqueue reads, with their defaults.

    \b
    Example: genqueue settings
    """
    rows = describe()
    if as_json:
        names = ("variable", "default", "meaning")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("variable", "default", "meaning"), rows, empty="There are no settings.")
