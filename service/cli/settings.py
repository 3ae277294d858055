"""Which variables may an operator set?"""

from __future__ import annotations

import re
from typing import Final

import click

from jobs.generation_intake import second_model
from jobs.providers.registry import build_providers, load
from jobs.settings import describe, from_environment
from service.cli.output import as_json_option, heading, print_json, print_table

_ROW: Final = re.compile(r" ?\([A-Z]\d+(?:, [A-Z]\d+)*\)")
"""The row of a document that a meaning comes from, which says nothing to operators."""


@click.command()
@as_json_option
def settings(as_json: bool) -> None:
    """List the environment variables that genqueue reads, with their defaults.

    \b
    Example: genqueue settings
    """
    rows = [(name, default, _ROW.sub("", meaning)) for name, default, meaning in describe()]
    if as_json:
        names = ("variable", "default", "meaning")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("variable", "default", "meaning"), rows, empty="There are no settings.")
    missing = _missing()
    if missing:
        heading("What generations lack in this environment")
        click.echo("\n".join(missing))


def _missing() -> list[str]:
    """What generations lack as this environment is set; their authors never read it (B5)."""
    current = from_environment()
    models = load(current.models_file)
    providers = build_providers(models, current.api_keys)
    offered = map(providers.unavailable_reason, models.picker)
    _, reason = second_model(models, providers, current.extraction_model)
    return list(dict.fromkeys(text for text in (*offered, reason) if text))
