"""What does a builder of workflows need to know to offer the step? (B23)"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jobs.domain.models import ModelRegistry

STEP_TEMPLATE_ID: Final = "template-workflow-llm"
_FILE: Final = "step_template.toml"
_CHOICE: Final = "choice"


def step_template(models: ModelRegistry) -> dict[str, Any]:
    """The template `template-workflow-llm`. The model's choices are the picker of `models`, in
    groups by provider and the cheapest first within a group, as the registry has it (B20)."""
    template = _shipped()
    inputs = [_with_choices(one, models) for one in template["inputs_schema"]]
    return {**template, "inputs_schema": inputs}


def _with_choices(entry: Mapping[str, Any], models: ModelRegistry) -> dict[str, Any]:
    if entry["type"] != _CHOICE:
        return {"searchable": False, "default": None, "choices": None, **entry}
    choices = [
        {"value": model_id, "label": model_id, "group": models.resolve(model_id).provider}
        for model_id in models.picker
    ]
    return {**entry, "default": models.generation_default, "choices": choices}


@cache
def _shipped() -> dict[str, Any]:
    return tomllib.loads(files("jobs").joinpath(_FILE).read_text("utf-8"))
