"""Which models may be asked for, who serves them, and what do they cost? (X6, B20)

The models file is data; `ModelRegistry.parse` turns its mapping into frozen values or names
every problem at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit

from jobs.domain.entities import Usage
from jobs.domain.errors import ModelUnknownError, SettingsInvalidError

TARGET_MAX_BYTES: Final = 64
TOKENS_PER_PRICE: Final = 1_000_000

PROVIDER_TYPES: Final = ("openai", "mock")
MAX_TOKENS_PARAMETERS: Final = ("max_tokens", "max_completion_tokens")

_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_MODEL_ID: Final = re.compile(r"[A-Za-z0-9._:/-]+")
_ENV_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*_API_KEY")
_FILE_KEYS: Final = frozenset({"default_model", "providers", "models"})
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
    {"strict_schema", "temperature", "reasoning_efforts", "max_tokens_parameter"}
)

T = TypeVar("T")


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
    """

    strict_schema: bool = False
    temperature: bool = True
    reasoning_efforts: tuple[str, ...] = ()
    max_tokens_parameter: str = "max_tokens"


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


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """All models of the models file, in its order, and the providers that serve them."""

    providers: Mapping[str, ProviderSpec]
    models: Mapping[str, ModelSpec]
    default_model: str

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> Self:
        """The registry that `mapping` (a read models file) describes.

        Raises SettingsInvalidError with every problem: unknown keys, wrong types, names that
        point at nothing, ids that occur twice.
        """
        problems: list[str] = []
        _Table("the file", mapping, problems).refuse_others(_FILE_KEYS)
        providers = _parse_providers(mapping.get("providers"), problems)
        models = _parse_models(mapping.get("models"), providers, problems)
        default_model = mapping.get("default_model")
        if not isinstance(default_model, str):
            problems.append("default_model: must be the id of a model")
        elif default_model not in models and not problems:
            problems.append(f"default_model: no model {default_model!r}")
        if problems:
            raise SettingsInvalidError(problems)
        return cls(providers, models, cast("str", default_model))

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


class _Table:
    """One table of the file: answers values that fit and notes what does not."""

    def __init__(self, where: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.where = where
        self._values = values
        self._problems = problems

    def refuse_others(self, known: frozenset[str]) -> None:
        """Note every key that is not `known`."""
        for key in self._values:
            if key not in known:
                self.note(f"unknown key {key!r}")

    def note(self, problem: str) -> None:
        """Add a problem of this table."""
        self._problems.append(f"{self.where}: {problem}")

    def take(self, key: str, fits: Callable[[Any], bool], expected: str, default: T) -> T:
        """The value of `key`; `default` where it is left out or (noted) does not fit."""
        if key not in self._values:
            return default
        value = self._values[key]
        if not fits(value):
            self.note(f"{key} must be {expected}")
            return default
        return cast("T", value)


def _is_base_url(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        has_port_or_none = parts.port is None or parts.port > 0
    except ValueError:
        return False
    # Credentials in an address would end up in logs; a query would be lost.
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_http and is_plain and has_port_or_none and value.isascii() and value.isprintable()


def _is_price(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_model_name(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _parse_providers(tables: Any, problems: list[str]) -> dict[str, ProviderSpec]:
    if not isinstance(tables, Mapping) or not tables:
        problems.append("providers: must be tables like [providers.NAME], at least one")
        return {}
    providers = {}
    for name, table in tables.items():
        where = f"providers.{name}"
        if not _matches(_PROVIDER_NAME)(name):
            problems.append(f"{where}: a name is letters, digits and . _ -")
        elif not isinstance(table, Mapping):
            problems.append(f"{where}: must be a table")
        else:
            providers[name] = _parse_provider(
                name, _Table(where, table, problems), table.get("type")
            )
    return providers


def _parse_provider(name: str, table: _Table, kind: Any) -> ProviderSpec:
    table.refuse_others(_PROVIDER_KEYS)
    base_url: str | None = table.take(
        "base_url",
        _is_base_url,
        "an http or https address without user, query or fragment",
        None,
    )
    api_key_env: str | None = table.take(
        "api_key_env",
        _matches(_ENV_NAME),
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
        table = _Table(where, values, problems)
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


def _parse_model(table: _Table, values: Mapping[str, Any], problems: list[str]) -> ModelSpec | None:
    table.refuse_others(_MODEL_KEYS)
    price = "a whole number of micro-dollars, 0 or more"
    prices: list[int | None] = [
        table.take(f"{side}_usd_micros_per_mtok", _is_price, price, None)
        for side in ("input", "output")
    ]
    supports = _parse_supports(f"{table.where}: supports", values.get("supports", {}), problems)
    provider_model: str | None = table.take("provider_model", _is_model_name, "a name", None)
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
    table = _Table(where, values if isinstance(values, Mapping) else {}, problems)
    if not isinstance(values, Mapping):
        table.note("must be a table")
    table.refuse_others(_SUPPORTS_KEYS)
    efforts: list[str] = table.take("reasoning_efforts", _is_text_list, "a list of names", [])
    return ModelFeatures(
        strict_schema=table.take("strict_schema", _is_bool, "true or false", False),
        temperature=table.take("temperature", _is_bool, "true or false", True),
        reasoning_efforts=tuple(efforts),
        max_tokens_parameter=table.take(
            "max_tokens_parameter",
            MAX_TOKENS_PARAMETERS.__contains__,
            " or ".join(MAX_TOKENS_PARAMETERS),
            MAX_TOKENS_PARAMETERS[0],
        ),
    )
