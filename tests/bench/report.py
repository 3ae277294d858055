"""How are the figures told? As one table for people, as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure, shown

BEGIN = "<!-- figures: written by python -m tests.bench --markdown -->"
END = "<!-- end of figures -->"
VERDICTS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: ""}


def print_table(console: Console, figures: Sequence[tuple[str, Figure]], machine: str) -> None:
    """All figures, each under its bench."""
    table = Table(title=f"genqueue on {machine}", title_justify="left")
    for heading in ("bench", "figure"):
        table.add_column(heading)
    table.add_column("measured", justify="right")
    for heading in ("unit", "wanted", "", "note"):
        table.add_column(heading)
    before = ""
    for bench, figure in figures:
        if before and bench != before:
            table.add_section()
        table.add_row(
            bench if bench != before else "",
            figure.name,
            shown(figure.measured),
            figure.unit,
            figure.wanted,
            VERDICTS[figure.ok],
            figure.note,
        )
        before = bench
    console.print(table)


def write_json(path: Path, figures: Sequence[tuple[str, Figure]], machine: str) -> None:
    """All figures and the machine."""
    rows = [{"bench": bench, **asdict(figure)} for bench, figure in figures]
    path.write_text(json.dumps({"machine": machine, "figures": rows}, indent=2) + "\n")


def write_markdown(path: Path, figures: Sequence[tuple[str, Figure]], machine: str) -> None:
    """The table between the two marks in `path`. Raises ValueError where they are missing."""
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the figures: {BEGIN} … {END}")
    words = {True: "met", False: "**missed**", None: ""}
    lines = [
        f"Measured on {machine}.",
        "",
        "| bench | figure | measured | wanted | | note |",
        "|---|---|---:|---|---|---|",
    ]
    for bench, figure in figures:
        measured = f"{shown(figure.measured)} {figure.unit}".strip()
        cells = (bench, figure.name, measured, figure.wanted, words[figure.ok], figure.note)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    path.write_text(f"{head}{begin}\n" + "\n".join(lines) + f"\n{end}{tail}")
