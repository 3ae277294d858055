"""How does a model's name become a provider that can be called? (X6)

Reads the models file and builds each provider when it is first needed. Importing this module
does not import the openai SDK.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from jobs.domain.errors import SettingsInvalidError
from jobs.domain.models import ModelRegistry, ModelSpec, ProviderSpec
from jobs.providers.base import Provider
from jobs.providers.mock import MockProvider
from jobs.providers.tls import SharedTls

SHIPPED_MODELS_FILE: Final = Path(__file__).parent.parent / "models.toml"


def load(path: Path) -> ModelRegistry:
    """The registry in the TOML file at `path`. Raises SettingsInvalidError, naming the file."""
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsInvalidError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalidError([f"{path}: {error}"]) from error
    try:
        return ModelRegistry.parse(mapping)
    except SettingsInvalidError as error:
        raise SettingsInvalidError([f"{path}: {text}" for text in error.problems]) from None


class Providers:
    """The providers of a registry, each built when it is first asked for, once per process: a
    connection or a lock that was used before a fork is not safe after it."""

    def __init__(self, registry: ModelRegistry, api_keys: Mapping[str, str]) -> None:
        self._registry = registry
        self._keys = {name: key.strip() for name, key in api_keys.items()}
        self._of_process = _Built(os.getpid())

    def get(self, name: str) -> Provider:
        """The provider called `name` in the models file. Raises KeyError where there is none."""
        # A local name: two threads may both replace what a fork left, and either may win.
        built = self._of_process
        if built.pid != os.getpid():
            built = self._of_process = _Built(os.getpid())
        provider = built.providers.get(name)
        if provider is None:
            spec = self._registry.providers[name]
            # Of two that were built at once the first stays; the other has no connection yet.
            provider = built.providers.setdefault(name, self._build(spec, built.tls))
        return provider

    def unavailable_reason(self, model_id: str) -> str | None:
        """Why `model_id` can't be asked for: a sentence that names the variable to set, or None
        where it can. Raises ModelUnknownError."""
        spec = self._registry.resolve(model_id)
        env_name = self._registry.providers[spec.provider].api_key_env
        if env_name is None:
            return None
        key = self._keys.get(env_name, "")
        if not key:
            return f"model {model_id} needs the key of provider {spec.provider}: set {env_name}"
        if not (key.isascii() and key.isprintable()) or " " in key:
            return f"the key in {env_name} has characters that no key has"
        return None

    def preload(self) -> None:
        """Import what the providers with a key will need, without building one: a process that
        forks a child for each job spares every child most of a second."""
        usable = (spec for spec in self._registry.models.values() if self._is_remote(spec))
        if any(self.unavailable_reason(spec.id) is None for spec in usable):
            import jobs.providers.openai_chat  # noqa: F401, PLC0415  # the import is the purpose

    def _is_remote(self, spec: ModelSpec) -> bool:
        return self._registry.providers[spec.provider].type == "openai"

    def _build(self, spec: ProviderSpec, tls: SharedTls) -> Provider:
        if spec.type == "mock":
            return MockProvider(spec.name)
        # Costs most of a second and 40 MB, which a web process never needs.
        from jobs.providers.openai_chat import OpenAIChatProvider  # noqa: PLC0415  # see above

        api_key = self._keys.get(spec.api_key_env) if spec.api_key_env else None
        return OpenAIChatProvider(spec, api_key, self._models_of(spec.name), tls)

    def _models_of(self, provider: str) -> Iterable[ModelSpec]:
        return [spec for spec in self._registry.models.values() if spec.provider == provider]


class _Built:
    """What one process has built."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.tls = SharedTls()
        self.providers: dict[str, Provider] = {}


def build_providers(registry: ModelRegistry, api_keys: Mapping[str, str]) -> Providers:
    """The providers of `registry`; `api_keys` maps names of environment variables
    (`ModelRegistry.api_key_envs`) to their values."""
    return Providers(registry, api_keys)
