"""How do commands print? A table for people, JSON for programs, nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_NO_TERMINAL: Final = 200
"""Columns of a table that goes to a file or a pipe, where nothing has to be folded."""

_STYLES: Final = {
    "queued": "cyan",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "superseded": "dim",
    "delivered": "green",
    "given_up": "red",
    "gone": "magenta",
}
_HARMLESS: Final = "\u00a0\u200c\u200d\u202f\u3000"
"""Joiners and spaces that some scripts and emoji are written with; no terminal obeys them."""

_UNSAFE_IN_JSON: Final = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff\ufeff]"
)

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def shown(text: str) -> str:
    """`text` on one line, with every character escaped that a terminal might obey: prompts and
    error messages are written by strangers."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def shown_block(text: str) -> str:
    """As `shown`, but line feeds and tabs stay."""
    return "".join(c if c in "\n\t" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    if char.isprintable() or char in _HARMLESS:
        return char
    return char.encode("unicode_escape").decode("ascii")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output; on one line where `indent` is None."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    click.echo(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def console(*, stderr: bool = False) -> Console:
    """Where tables go; as wide as the terminal."""
    width = shutil.get_terminal_size((WIDTH_NO_TERMINAL, 24)).columns
    return Console(width=width, stderr=stderr, highlight=False)


def state_cell(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_STYLES.get(state, ""))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table of rows under column names. Columns that end in `id` are never cut or folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column.endswith("id"))
    for row in rows:
        # Text, since a cell with brackets is no markup.
        table.add_row(*(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row))
    return table


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, empty: str
) -> None:
    """Print a table; `empty` is said where there are no rows."""
    if not rows:
        click.echo(empty)
        return
    console().print(make_table(columns, rows))


def print_fields(fields: Iterable[tuple[str, str | Text]]) -> None:
    """Names and values below each other; those without a value are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(shown(value)))
    console().print(table)


def heading(text: str) -> None:
    """A title of what follows, after an empty line."""
    click.echo()
    click.secho(text, bold=True)
