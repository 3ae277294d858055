import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.domain.errors import ModelUnknownError, SettingsInvalidError
from jobs.domain.models import ModelRegistry
from jobs.providers.base import Call, Message
from jobs.providers.registry import SHIPPED_MODELS_FILE, build_providers, load
from jobs.settings import Settings

REGISTRY = ModelRegistry.parse(
    {
        "default_model": "fake",
        "providers": {
            "mock": {"type": "mock"},
            "keyed": {
                "type": "openai",
                "base_url": "http://127.0.0.1:9/v1",
                "api_key_env": "SOME_API_KEY",
            },
            "local": {"type": "openai", "base_url": "http://127.0.0.1:9/v1"},
        },
        "models": [
            {"id": "fake", "provider": "mock"},
            {"id": "paid", "provider": "keyed"},
            {"id": "own", "provider": "local"},
        ],
    }
)
ONLY_MOCK = ModelRegistry.parse(
    {
        "default_model": "fake",
        "providers": {"mock": {"type": "mock"}},
        "models": [{"id": "fake", "provider": "mock"}],
    }
)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.req("X6", "X1")
def test_the_shipped_file_answers_without_any_key() -> None:
    registry = load(SHIPPED_MODELS_FILE)
    providers = build_providers(registry, {})
    spec = registry.resolve(registry.default_model)

    answer = providers.get(spec.provider).complete(
        Call(spec.provider_model, (Message("user", "hi"),))
    )

    assert providers.unavailable_reason(spec.id) is None
    assert answer.text.startswith("This is mock text")


@pytest.mark.req("X6")
def test_the_shipped_file_names_prices_for_every_model() -> None:
    models = load(SHIPPED_MODELS_FILE).models.values()

    assert all(spec.input_usd_micros_per_mtok is not None for spec in models)
    assert all(spec.output_usd_micros_per_mtok is not None for spec in models)


@pytest.mark.req("B20")
def test_the_shipped_picker_is_inside_the_set_that_a_generation_may_ask_for() -> None:
    registry = load(SHIPPED_MODELS_FILE)

    assert registry.picker == (
        "gpt-4.1-mini",
        "gpt-5-mini",
        "gpt-5.4",
        "claude-haiku-4-5",
        "claude-sonnet-4-6",
        "claude-opus-4-8",
    )
    assert set(registry.picker) <= set(registry.generation_models)
    assert registry.generation_default == "gpt-5-mini"


@pytest.mark.req("B13")
def test_the_shipped_file_has_the_default_model_of_the_second_pass() -> None:
    spec = load(SHIPPED_MODELS_FILE).resolve(Settings().extraction_model)

    assert spec.is_priced
    assert spec.supports.strict_schema
    assert "minimal" in spec.supports.reasoning_efforts


@pytest.mark.req("X6")
def test_a_model_without_its_key_says_which_variable_to_set() -> None:
    providers = build_providers(REGISTRY, {})

    assert providers.unavailable_reason("paid") == (
        "model paid needs the key of provider keyed: set SOME_API_KEY"
    )
    assert providers.unavailable_reason("own") is None


@pytest.mark.req("X6")
def test_a_key_makes_its_models_available_also_with_a_line_end() -> None:
    assert build_providers(REGISTRY, {"SOME_API_KEY": "sk-1\n"}).unavailable_reason("paid") is None


@pytest.mark.parametrize("key", ["sk 1", "sk\n1", "schlüssel"])
def test_a_key_that_is_none_is_refused_without_repeating_it(key: str) -> None:
    reason = build_providers(REGISTRY, {"SOME_API_KEY": key}).unavailable_reason("paid")

    assert reason == "the key in SOME_API_KEY has characters that no key has"


def test_the_availability_of_an_unknown_model_is_an_error() -> None:
    with pytest.raises(ModelUnknownError):
        build_providers(REGISTRY, {}).unavailable_reason("huge")


@pytest.mark.req("X6")
def test_a_provider_is_built_once_and_each_has_its_own() -> None:
    providers = build_providers(REGISTRY, {"SOME_API_KEY": "sk-1"})

    assert providers.get("keyed") is providers.get("keyed")
    assert providers.get("keyed") is not providers.get("local")
    assert providers.get("keyed").name == "keyed"
    with pytest.raises(KeyError):
        providers.get("nowhere")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_after_a_fork_builds_its_own_provider() -> None:
    providers = build_providers(ONLY_MOCK, {})
    before = providers.get("mock")
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=lambda: answer.put(providers.get("mock") is before))
    child.start()
    child.join(timeout=20)

    assert answer.get() is False
    assert providers.get("mock") is before


def test_importing_and_asking_the_registry_does_not_import_the_sdk() -> None:
    code = (
        "import sys\n"
        "import jobs.providers.registry as r, jobs.providers.mock, jobs.providers.errors\n"
        "p = r.build_providers(r.load(r.SHIPPED_MODELS_FILE), {'OPENAI_API_KEY': 'x'})\n"
        "p.unavailable_reason('gpt-5-mini'); p.get('mock')\n"
        "print([m for m in ('openai', 'httpx2', 'httpcore2', 'pydantic') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_importing_the_network_modules_does_not_import_the_sdk() -> None:
    code = (
        "import sys\n"
        "import jobs.providers.network, jobs.providers.transport, jobs.providers.chat_answer\n"
        "print('openai' in sys.modules)"
    )
    assert run_python(code) == "False"


@pytest.mark.parametrize(
    ("keys", "is_loaded"), [("{}", "False"), ("{'OPENAI_API_KEY': 'x'}", "True")]
)
def test_preloading_imports_the_sdk_only_where_a_key_is_set(keys: str, is_loaded: str) -> None:
    code = (
        "import sys\n"
        "import jobs.providers.registry as r\n"
        f"r.build_providers(r.load(r.SHIPPED_MODELS_FILE), {keys}).preload()\n"
        "print('openai' in sys.modules)"
    )
    assert run_python(code) == is_loaded


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"default_model = [", "models.toml: "),
        (b"\xff", "models.toml: "),
        (b"surprise = 1", "models.toml: the file: unknown key 'surprise'"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "models.toml"
    path.write_bytes(content)

    with pytest.raises(SettingsInvalidError) as caught:
        load(path)
    assert problem in "\n".join(caught.value.problems)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalidError, match=r"nothing\.toml"):
        load(tmp_path / "nothing.toml")
