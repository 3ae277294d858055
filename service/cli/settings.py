"""Which variables may an operator set?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

from jobs.domain.formation import Agent
from jobs.generation_intake import second_model
from jobs.runtime import Runtime, build
from jobs.settings import describe
from service.cli.output import as_json_option, heading, print_fields, print_json, print_table

_ROW: Final = re.compile(r" ?\([A-Z]\d+(?:, [A-Z]\d+)*\)")
"""The row of a document that a meaning comes from, which says nothing to operators."""

_NOTHING: Final = {"", "None", "()"}
"""How a default is spelled that is none."""


@click.command()
@as_json_option
def settings(as_json: bool) -> None:
    """List the environment variables that genqueue reads, with their defaults, and say who answers
    chat turns as they are set here, and what is lacking.

    \b
    Example: genqueue settings
    """
    names = ("variable", "default", "meaning")
    rows = [
        (name, None if default in _NOTHING else default, _ROW.sub("", meaning))
        for name, default, meaning in describe()
    ]
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    shown = [(name, default or "none", meaning) for name, default, meaning in rows]
    print_table(names, shown, empty="There are no settings.")
    runtime = build()
    _print_missing("generations", _missing_of_generations(runtime))
    heading("Chat turns in this environment")
    print_fields(_formation_fields(runtime))
    _print_missing("chat turns", _missing_of_turns(runtime))


def _print_missing(whose: str, missing: Iterable[str | None]) -> None:
    texts = dict.fromkeys(text for text in missing if text)
    if texts:
        heading(f"What {whose} lack in this environment")
        click.echo("\n".join(texts))


def _missing_of_generations(runtime: Runtime) -> list[str | None]:
    """What generations lack as this environment is set; their authors never read it (B5)."""
    models, providers = runtime.models, runtime.providers
    _, reason = second_model(models, providers, runtime.settings.extraction_model)
    return [*map(providers.unavailable_reason, models.picker), reason]


def _formation_fields(runtime: Runtime) -> list[tuple[str, str]]:
    """What the formation file says of who answers. Of client keys only how many there are."""
    formation, default = runtime.formation, runtime.models.default_model
    keys = len(runtime.settings.formation_keys)
    return [
        ("formation file", str(runtime.settings.formation_file)),
        ("formation", formation.id),
        *(
            (f"agent {agent.id}", ", then ".join(_models_of(agent, default)))
            for agent in formation.agents
        ),
        ("planner", formation.planner_model or default),
        ("client keys", f"{keys} set" if keys else "none set"),
    ]


def _models_of(agent: Agent, default: str) -> tuple[str, ...]:
    return (agent.model or default, *agent.fallbacks)


def _missing_of_turns(runtime: Runtime) -> list[str | None]:
    """What chat turns lack: keys of the providers of models, and those of clients (C4)."""
    formation, default = runtime.formation, runtime.models.default_model
    models = [model for agent in formation.agents for model in _models_of(agent, default)]
    models.append(formation.planner_model or default)
    missing = [*map(runtime.providers.unavailable_reason, models)]
    if not runtime.settings.formation_keys:
        missing.append("/v1/chat knows no client: set GENQUEUE_FORMATION_KEYS")
    return missing
