"""Which models may be asked for, who serves them, and what do they cost? (X6, B20)

The models file is data; `ModelRegistry.parse` turns its mapping into frozen values or names
every problem at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self, cast

from jobs.domain.entities import Usage
from jobs.domain.errors import ModelUnknownError, SettingsInvalidError
from jobs.domain.file_table import (
    Table,
    is_base_url,
    is_bool,
    is_name,
    is_price,
    is_text_list,
    matches,
)

TARGET_MAX_BYTES: Final = 64
TOKENS_PER_PRICE: Final = 1_000_000

PROVIDER_TYPES: Final = ("openai", "mock")
MAX_TOKENS_PARAMETERS: Final = ("max_tokens", "max_completion_tokens")

_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_MODEL_ID: Final = re.compile(r"[A-Za-z0-9._:/-]+")
_ENV_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*_API_KEY")
_FILE_KEYS: Final = frozenset({"default_model", "providers", "models", "generations"})
_PROVIDER_KEYS: Final = frozenset({"type", "base_url", "api_key_env"})
_MODEL_KEYS: Final = frozenset(
    {
        "id",
        "provider",
        "provider_model",
        "input_usd_micros_per_mtok",
        "output_usd_micros_per_mtok",
        "supports",
    }
)
_SUPPORTS_KEYS: Final = frozenset(
    {
        "strict_schema",
        "temperature",
        "reasoning_efforts",
        "max_tokens_parameter",
        "stream_usage",
    }
)
_GENERATIONS_KEYS: Final = frozenset({"default_model", "picker"})


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A place that serves models. `type` chooses the implementation: `openai` is anything that
    speaks chat completions at `base_url`. `api_key_env` is the name of the environment variable
    that holds the key, never the key, and ends in `_API_KEY`, since no others are read; None
    where no key is needed."""

    name: str
    type: str
    base_url: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """What a model takes. A parameter that it does not take is left out of the call.

    `max_tokens_parameter` is the name under which the provider expects the limit.
    `stream_usage` says whether a streamed call may ask for its token counts
    (`stream_options`): without them nobody knows what it cost, but a server that refuses what
    it does not know refuses the call.
    """

    strict_schema: bool = False
    temperature: bool = True
    reasoning_efforts: tuple[str, ...] = ()
    max_tokens_parameter: str = "max_tokens"
    stream_usage: bool = True


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as callers ask for it (`id`) and as its provider calls it (`provider_model`).

    Prices are whole micro-dollars per million tokens; None where nobody wrote one down.
    """

    id: str
    provider: str
    provider_model: str
    input_usd_micros_per_mtok: int | None = None
    output_usd_micros_per_mtok: int | None = None
    supports: ModelFeatures = field(default_factory=ModelFeatures)

    @property
    def target(self) -> str:
        """`provider:id`: at most 64 bytes of `[A-Za-z0-9._:/-]`, the lane a job waits in."""
        return f"{self.provider}:{self.id}"

    @property
    def is_priced(self) -> bool:
        """Whether both prices are written down, so that a call can be billed."""
        return None not in (self.input_usd_micros_per_mtok, self.output_usd_micros_per_mtok)


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """All models of the models file, in its order, and the providers that serve them.

    `picker` are the ids that the generation step offers, in groups by provider, cheapest first
    within a group; `generation_default` is the one that is chosen where nobody chose (B20).
    """

    providers: Mapping[str, ProviderSpec]
    models: Mapping[str, ModelSpec]
    default_model: str
    picker: tuple[str, ...]
    generation_default: str

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> Self:
        """The registry that `mapping` (a read models file) describes.

        Raises SettingsInvalidError with every problem: unknown keys, wrong types, names that
        point at nothing, ids that occur twice.
        """
        problems: list[str] = []
        Table("the file", mapping, problems).refuse_others(_FILE_KEYS)
        providers = _parse_providers(mapping.get("providers"), problems)
        models = _parse_models(mapping.get("models"), providers, problems)
        default_model = mapping.get("default_model")
        if not isinstance(default_model, str):
            problems.append("default_model: must be the id of a model")
        elif default_model not in models and not problems:
            problems.append(f"default_model: no model {default_model!r}")
        picker, chosen = _parse_generations(mapping.get("generations", {}), models, problems)
        if problems:
            raise SettingsInvalidError(problems)
        default = cast("str", default_model)
        return cls(providers, models, default, picker, chosen or default)

    @property
    def generation_models(self) -> Mapping[str, ModelSpec]:
        """The models that a generation may ask for: those with a price, since the others can't
        be billed (B17). The picker is a part of them, so that a new picker breaks no saved
        workflow (B20)."""
        return {model_id: spec for model_id, spec in self.models.items() if spec.is_priced}

    def resolve(self, model_id: str) -> ModelSpec:
        """The model that callers know as `model_id`. Raises ModelUnknownError."""
        spec = self.models.get(model_id)
        if spec is None:
            raise ModelUnknownError(model_id, tuple(self.models))
        return spec

    def target_of(self, model_id: str) -> str:
        """`provider:model`, at most 64 bytes. Raises ModelUnknownError."""
        return self.resolve(model_id).target

    def resolve_target(self, target: str) -> ModelSpec:
        """The model of a stored target. Only its id counts: a model that moved to another
        provider while its jobs waited runs there. Raises ModelUnknownError."""
        return self.resolve(target.partition(":")[2])


def cost_usd_micros(spec: ModelSpec, usage: Usage) -> int | None:
    """What a call cost in micro-dollars, rounded up; None where tokens or price are unknown."""
    counts = (usage.prompt_tokens, usage.completion_tokens)
    prices = (spec.input_usd_micros_per_mtok, spec.output_usd_micros_per_mtok)
    total = 0
    for count, price in zip(counts, prices, strict=True):
        if count is None or price is None:
            return None
        total += count * price
    return -(-total // TOKENS_PER_PRICE)


def _parse_providers(tables: Any, problems: list[str]) -> dict[str, ProviderSpec]:
    if not isinstance(tables, Mapping) or not tables:
        problems.append("providers: must be tables like [providers.NAME], at least one")
        return {}
    providers = {}
    for name, table in tables.items():
        where = f"providers.{name}"
        if not matches(_PROVIDER_NAME)(name):
            problems.append(f"{where}: a name is letters, digits and . _ -")
        elif not isinstance(table, Mapping):
            problems.append(f"{where}: must be a table")
        else:
            providers[name] = _parse_provider(
                name, Table(where, table, problems), table.get("type")
            )
    return providers


def _parse_provider(name: str, table: Table, kind: Any) -> ProviderSpec:
    table.refuse_others(_PROVIDER_KEYS)
    base_url: str | None = table.take(
        "base_url",
        is_base_url,
        "an http or https address without user, query or fragment",
        None,
    )
    api_key_env: str | None = table.take(
        "api_key_env",
        matches(_ENV_NAME),
        "the name of an environment variable, ending in _API_KEY",
        None,
    )
    if kind not in PROVIDER_TYPES:
        table.note(f"type must be {' or '.join(PROVIDER_TYPES)}")
    elif kind == "openai" and base_url is None:
        table.note("base_url is missing")
    elif kind == "mock" and (base_url or api_key_env):
        table.note("a mock takes no base_url and no api_key_env")
    return ProviderSpec(name, str(kind), base_url, api_key_env)


def _parse_models(
    tables: Any, providers: Mapping[str, ProviderSpec], problems: list[str]
) -> dict[str, ModelSpec]:
    if not isinstance(tables, list) or not tables:
        problems.append("models: must be tables like [[models]], at least one")
        return {}
    models: dict[str, ModelSpec] = {}
    for position, values in enumerate(tables, start=1):
        if not isinstance(values, Mapping):
            problems.append(f"models[{position}]: must be a table")
            continue
        model_id = values.get("id")
        where = f"model {model_id!r}" if isinstance(model_id, str) else f"models[{position}]"
        table = Table(where, values, problems)
        spec = _parse_model(table, values, problems)
        if spec is None:
            continue
        if spec.provider not in providers:
            table.note(f"no provider {spec.provider!r}")
        if len(spec.target.encode()) > TARGET_MAX_BYTES:
            table.note(f"provider:id is longer than {TARGET_MAX_BYTES} bytes")
        if spec.id in models:
            table.note("the id occurs twice")
        models[spec.id] = spec
    return models


def _parse_model(table: Table, values: Mapping[str, Any], problems: list[str]) -> ModelSpec | None:
    table.refuse_others(_MODEL_KEYS)
    price = "a whole number of micro-dollars, 0 or more"
    prices: list[int | None] = [
        table.take(f"{side}_usd_micros_per_mtok", is_price, price, None)
        for side in ("input", "output")
    ]
    supports = _parse_supports(f"{table.where}: supports", values.get("supports", {}), problems)
    provider_model: str | None = table.take("provider_model", is_name, "a name", None)
    model_id, provider = values.get("id"), values.get("provider")
    has_id = isinstance(model_id, str) and _MODEL_ID.fullmatch(model_id) is not None
    if not has_id:
        table.note("id must be letters, digits and . _ : / -")
    if not isinstance(provider, str):
        table.note("provider must be the name of a provider")
        return None
    if not isinstance(model_id, str) or not has_id:
        return None
    return ModelSpec(model_id, provider, provider_model or model_id, prices[0], prices[1], supports)


def _parse_supports(where: str, values: Any, problems: list[str]) -> ModelFeatures:
    table = Table(where, values if isinstance(values, Mapping) else {}, problems)
    if not isinstance(values, Mapping):
        table.note("must be a table")
    table.refuse_others(_SUPPORTS_KEYS)
    efforts: list[str] = table.take("reasoning_efforts", is_text_list, "a list of names", [])
    return ModelFeatures(
        strict_schema=table.take("strict_schema", is_bool, "true or false", False),
        temperature=table.take("temperature", is_bool, "true or false", True),
        reasoning_efforts=tuple(efforts),
        max_tokens_parameter=table.take(
            "max_tokens_parameter",
            MAX_TOKENS_PARAMETERS.__contains__,
            " or ".join(MAX_TOKENS_PARAMETERS),
            MAX_TOKENS_PARAMETERS[0],
        ),
        stream_usage=table.take("stream_usage", is_bool, "true or false", True),
    )


def _parse_generations(
    values: Any, models: Mapping[str, ModelSpec], problems: list[str]
) -> tuple[tuple[str, ...], str | None]:
    """The picker, and the model that it begins with where the file names one."""
    table = Table("generations", values if isinstance(values, Mapping) else {}, problems)
    if not isinstance(values, Mapping):
        table.note("must be a table")
    table.refuse_others(_GENERATIONS_KEYS)
    picker: list[str] = table.take("picker", is_text_list, "a list of ids of models", [])
    default: str | None = table.take("default_model", is_name, "the id of a model", None)
    for position, model_id in enumerate(picker):
        _note_unusable(model_id, models, table)
        if model_id in picker[:position]:
            table.note(f"the picker has {model_id!r} twice")
    if default is not None and default not in picker:
        _note_unusable(default, models, table)
        if picker:
            table.note(f"default_model {default!r} is not in the picker")
    _note_disorder([models[model_id] for model_id in picker if model_id in models], table)
    return tuple(picker), default


def _note_unusable(model_id: str, models: Mapping[str, ModelSpec], table: Table) -> None:
    spec = models.get(model_id)
    if spec is None:
        table.note(f"no model {model_id!r}")
    elif not spec.is_priced:
        table.note(f"model {model_id!r} has no price, so it can't be billed")


def _note_disorder(picked: Sequence[ModelSpec], table: Table) -> None:
    """Note what breaks the picker's order. A generation is mostly paid for what it writes, so
    the price of output counts, and that of input where the former is the same."""
    ended_groups: set[str] = set()
    for before, spec in pairwise(picked):
        if spec.provider != before.provider:
            ended_groups.add(before.provider)
            if spec.provider in ended_groups:
                table.note(f"the picker has {spec.id!r} apart from its provider's other models")
        elif before.is_priced and spec.is_priced and _price_order(spec) < _price_order(before):
            table.note(f"the picker has {spec.id!r} after {before.id!r}, which costs more")


def _price_order(spec: ModelSpec) -> tuple[int, int]:
    return spec.output_usd_micros_per_mtok or 0, spec.input_usd_micros_per_mtok or 0
