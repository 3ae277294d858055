import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.entities import Usage
from jobs.domain.errors import ModelUnknownError, SettingsInvalidError
from jobs.domain.models import ModelRegistry, ModelSpec, ProviderSpec, cost_usd_micros

FILE: dict[str, Any] = {
    "default_model": "small",
    "providers": {
        "mock": {"type": "mock"},
        "main": {
            "type": "openai",
            "base_url": "https://llm.example/v1",
            "api_key_env": "MAIN_API_KEY",
        },
    },
    "models": [
        {
            "id": "small",
            "provider": "main",
            "provider_model": "vendor/small-v1",
            "input_usd_micros_per_mtok": 250_000,
            "output_usd_micros_per_mtok": 2_000_000,
            "supports": {
                "strict_schema": True,
                "temperature": False,
                "reasoning_efforts": ["minimal", "low"],
                "max_tokens_parameter": "max_completion_tokens",
            },
        },
        {"id": "fake", "provider": "mock"},
    ],
}


def problems_of(**changes: object) -> str:
    with pytest.raises(SettingsInvalidError) as caught:
        ModelRegistry.parse({**copy.deepcopy(FILE), **changes})
    return "\n".join(caught.value.problems)


def problems_of_model(**changes: object) -> str:
    return problems_of(models=[{**FILE["models"][0], **changes}])


@pytest.mark.req("X6")
def test_a_models_file_becomes_providers_and_models_by_name() -> None:
    registry = ModelRegistry.parse(FILE)

    assert registry.default_model == "small"
    assert registry.providers["main"] == ProviderSpec(
        "main", "openai", "https://llm.example/v1", "MAIN_API_KEY"
    )
    small = registry.resolve("small")
    assert (small.provider, small.provider_model) == ("main", "vendor/small-v1")
    assert small.supports.reasoning_efforts == ("minimal", "low")
    assert small.supports.max_tokens_parameter == "max_completion_tokens"


@pytest.mark.req("X6")
def test_what_is_left_out_has_the_plainest_meaning() -> None:
    fake = ModelRegistry.parse(FILE).resolve("fake")

    assert fake.provider_model == "fake"
    assert not fake.supports.strict_schema
    assert fake.supports.stream_usage
    assert fake.supports.temperature
    assert fake.supports.max_tokens_parameter == "max_tokens"
    assert fake.input_usd_micros_per_mtok is None


def test_an_unknown_model_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(ModelUnknownError) as caught:
        ModelRegistry.parse(FILE).resolve("huge")

    assert caught.value.model == "huge"
    assert caught.value.known == ("small", "fake")


def test_a_target_names_provider_and_model_and_leads_back_to_it() -> None:
    registry = ModelRegistry.parse(FILE)

    assert registry.target_of("small") == "main:small"
    assert registry.resolve_target("main:small") == registry.resolve("small")


def test_a_target_with_colons_in_the_model_leads_back_to_it() -> None:
    models = [{"id": "llama3:8b", "provider": "mock"}]
    registry = ModelRegistry.parse({**FILE, "models": models, "default_model": "llama3:8b"})

    assert registry.resolve_target("mock:llama3:8b").id == "llama3:8b"


def test_a_model_that_moved_to_another_provider_is_still_found_by_its_old_target() -> None:
    assert ModelRegistry.parse(FILE).resolve_target("before:small").provider == "main"


def test_a_target_of_a_removed_model_is_unknown() -> None:
    with pytest.raises(ModelUnknownError):
        ModelRegistry.parse(FILE).resolve_target("main:removed")


def test_all_problems_are_named_at_once() -> None:
    text = problems_of(
        extra=1,
        default_model=3,
        providers={"a b": {}, "x": {"type": "openai"}, "y": {"type": "carrier-pigeon"}},
        models=[{"id": "m", "provider": "nowhere"}, {"id": "no spaces", "provider": "x"}, 7],
    )

    for part in (
        "the file: unknown key 'extra'",
        "default_model: must be",
        "providers.a b: a name is",
        "providers.x: base_url is missing",
        "providers.y: type must be openai or mock",
        "model 'm': no provider 'nowhere'",
        "model 'no spaces': id must be",
        "models[3]: must be a table",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": "x" * 60}, "longer than 64 bytes"),
        ({"id": "straße"}, "id must be"),
        ({"id": ""}, "id must be"),
        ({"id": None}, "models[1]: id must be"),
        ({"input_usd_micros_per_mtok": -1}, "input_usd_micros_per_mtok must be"),
        ({"output_usd_micros_per_mtok": 0.5}, "output_usd_micros_per_mtok must be"),
        ({"output_usd_micros_per_mtok": True}, "output_usd_micros_per_mtok must be"),
        ({"provider": 5}, "provider must be the name"),
        ({"provider_model": ""}, "provider_model must be"),
        ({"price": 3}, "unknown key 'price'"),
        ({"supports": {"max_tokens_parameter": "limit"}}, "max_tokens_parameter must be"),
        ({"supports": {"max_tokens_parameter": ["max_tokens"]}}, "max_tokens_parameter must be"),
        ({"supports": {"vision": True}}, "supports: unknown key 'vision'"),
        ({"supports": {"strict_schema": 1}}, "strict_schema must be"),
        ({"supports": {"stream_usage": "no"}}, "stream_usage must be"),
        ({"supports": {"reasoning_efforts": "low"}}, "reasoning_efforts must be"),
        ({"supports": []}, "supports: must be a table"),
    ],
)
def test_a_wrong_model_is_refused_by_name(changes: dict[str, object], problem: str) -> None:
    assert problem in problems_of_model(**changes)


@pytest.mark.parametrize(
    "base_url",
    [
        "ftp://x/v1",
        "llm.example/v1",
        "https://user:secret@llm.example/v1",
        "https://llm.example/v1?key=1",
        "https://llm.example:99999/v1",
        "https://llm.example/v1\n",
        "https://",
        7,
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(base_url: object) -> None:
    text = problems_of(providers={"main": {"type": "openai", "base_url": base_url}})

    assert "providers.main: base_url must be an http or https address" in text
    assert "secret" not in text


def test_a_mock_takes_no_address() -> None:
    text = problems_of(providers={"mock": {"type": "mock", "base_url": "https://llm.example"}})

    assert "a mock takes no base_url" in text


def test_a_key_in_place_of_the_name_of_its_variable_is_refused() -> None:
    text = problems_of(
        providers={"m": {"type": "openai", "base_url": "https://x/v1", "api_key_env": "sk-12 3"}}
    )

    assert "api_key_env must be the name of an environment variable, ending in _API_KEY" in text
    assert "sk-12" not in text


def test_an_id_that_occurs_twice_is_refused() -> None:
    assert "the id occurs twice" in problems_of(models=[FILE["models"][0]] * 2)


def test_a_default_model_must_exist() -> None:
    assert "default_model: no model 'huge'" in problems_of(default_model="huge")


@pytest.mark.parametrize("value", [None, [], {}, "x", 3])
def test_an_empty_file_is_a_list_of_problems_not_a_crash(value: object) -> None:
    text = problems_of(providers=value, models=value)

    assert "providers: must be" in text
    assert "models: must be" in text


@pytest.mark.req("A19")
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_cost_is_rounded_up_and_exact(prompt_tokens: int, completion_tokens: int) -> None:
    spec = ModelSpec("m", "p", "m", 250_000, 2_000_000)
    exact = prompt_tokens * 250_000 + completion_tokens * 2_000_000

    cost = cost_usd_micros(spec, Usage(prompt_tokens, completion_tokens))

    assert cost is not None
    assert (cost - 1) * 1_000_000 < exact <= cost * 1_000_000


@pytest.mark.req("A19")
@pytest.mark.parametrize(
    ("usage", "price"),
    [(Usage(None, 5), 1), (Usage(5, None), 1), (Usage(5, 5), None)],
)
def test_cost_is_unknown_where_tokens_or_price_are(usage: Usage, price: int | None) -> None:
    assert cost_usd_micros(ModelSpec("m", "p", "m", price, price), usage) is None


@pytest.mark.req("A19")
def test_a_token_costs_at_least_a_micro_dollar_and_none_costs_nothing() -> None:
    spec = ModelSpec("m", "p", "m", 1, 1)

    assert cost_usd_micros(spec, Usage(1, 0)) == 1
    assert cost_usd_micros(spec, Usage(0, 0)) == 0


def model(model_id: str, price: int | None, provider: str = "main") -> dict[str, object]:
    prices = {} if price is None else {"input_usd_micros_per_mtok": 1}
    if price is not None:
        prices["output_usd_micros_per_mtok"] = price
    return {"id": model_id, "provider": provider, **prices}


PRICED: dict[str, Any] = {
    **FILE,
    "models": [
        model("small", 1),
        model("large", 9),
        model("free", 0, "mock"),
        model("unpriced", None),
    ],
}


@pytest.mark.req("B20")
def test_a_file_without_a_generations_table_offers_nothing_and_has_the_one_default() -> None:
    registry = ModelRegistry.parse(FILE)

    assert registry.picker == ()
    assert registry.generation_default == "small"


@pytest.mark.req("B20")
def test_the_picker_keeps_its_order_and_has_a_default_of_its_own() -> None:
    table = {"picker": ["small", "large", "free"], "default_model": "large"}
    registry = ModelRegistry.parse({**PRICED, "generations": table})

    assert registry.picker == ("small", "large", "free")
    assert registry.generation_default == "large"
    assert registry.default_model == "small"


@pytest.mark.req("B17", "B20")
def test_a_generation_may_ask_for_any_model_with_both_prices() -> None:
    half = {"id": "half", "provider": "main", "input_usd_micros_per_mtok": 1}
    registry = ModelRegistry.parse({**PRICED, "models": [*PRICED["models"], half]})

    assert list(registry.generation_models) == ["small", "large", "free"]


@pytest.mark.req("B20")
@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"picker": ["huge"]}, "no model 'huge'"),
        ({"picker": ["unpriced"]}, "model 'unpriced' has no price"),
        ({"picker": ["small", "small"]}, "the picker has 'small' twice"),
        ({"picker": ["large", "small"]}, "'small' after 'large', which costs more"),
        ({"picker": ["small", "free", "large"]}, "'large' apart from its provider's other"),
        ({"picker": "small"}, "picker must be a list"),
        ({"picker": ["small"], "default_model": "large"}, "'large' is not in the picker"),
        ({"default_model": "huge"}, "no model 'huge'"),
        ({"default_model": "unpriced"}, "model 'unpriced' has no price"),
        ({"default_model": 7}, "default_model must be the id of a model"),
        ({"choices": []}, "unknown key 'choices'"),
        ([], "must be a table"),
    ],
)
def test_a_picker_that_is_wrong_is_refused_by_name(table: object, problem: str) -> None:
    (text,) = problems_of(models=PRICED["models"], generations=table).splitlines()

    assert text.startswith("generations: ")
    assert problem in text


@pytest.mark.req("B20")
def test_of_two_models_with_the_same_price_of_output_that_of_input_decides() -> None:
    dear = {**model("dear", 1), "input_usd_micros_per_mtok": 5}
    models = [*PRICED["models"], dear]

    ModelRegistry.parse({**PRICED, "models": models, "generations": {"picker": ["small", "dear"]}})

    text = problems_of(models=models, generations={"picker": ["dear", "small"]})
    assert "'small' after 'dear'" in text
