"""How do commands print? A table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Rows under column names; `empty` is said where there are none."""
    if not rows:
        click.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text, since a cell with brackets is no markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
