import json
from typing import Any

import pytest

from jobs.domain.formation import Agent
from jobs.domain.turn_plan import Plan, Task, plan_schema, read_plan
from jobs.providers.base import Call, Message
from jobs.providers.mock import MockProvider
from jobs.providers.schema_example import example_of


def example(schema: dict[str, Any]) -> Any:
    """The example of a property `x` of that schema."""
    return example_of({"properties": {"x": schema}}, lambda name: f"some {name}")["x"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "some x"),
        ({"type": "string"}, "some x"),
        ({"type": ["string", "null"]}, "some x"),
        ({"type": ["null", "integer"]}, 1),
        ({"type": "null"}, None),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "number", "exclusiveMinimum": 0.5}, 1.5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "boolean"}, True),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 3}, ["some x"] * 3),
        ({"type": "array"}, ["some x"]),
        ({"type": "object", "properties": {"y": {"type": "string"}}}, {"y": "some y"}),
        ({"properties": {"y": {"enum": [2]}}}, {"y": 2}),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"oneOf": [{"type": "array", "items": {"const": 1}}]}, [1]),
    ],
)
def test_a_schema_is_kept(schema: dict[str, Any], value: Any) -> None:
    assert example(schema) == value


def test_a_schema_that_refers_to_its_own_parts_is_kept() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {"properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}

    assert example_of(schema, str) == {"x": {"name": "name"}}


@pytest.mark.parametrize("reference", ["#", "#/properties/x", "#/nowhere"])
def test_a_schema_that_refers_to_itself_comes_to_an_end(reference: str) -> None:
    schema = {"properties": {"x": {"type": "array", "items": {"$ref": reference}}}}

    assert json.dumps(example_of(schema, str))


@pytest.mark.req("C1")
def test_the_schema_of_a_plan_is_answered_by_a_plan() -> None:
    agents = (Agent("writer"), Agent("checker"))
    value = example_of(plan_schema(agents)["schema"], lambda name: f"some {name}")

    assert read_plan(json.dumps(value), agents) == Plan((Task("writer", "some instruction"),))


@pytest.mark.req("B13")
def test_a_flat_schema_of_texts_is_answered_by_the_mock_as_ever() -> None:
    schema = {
        "name": "output_fields",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {name: {"type": ["string", "null"]} for name in ("subject", "body")},
            "required": ["subject", "body"],
            "additionalProperties": False,
        },
    }
    call = Call("mock-1", (Message("user", "hi"),), json_schema=schema)

    text = MockProvider("mock").complete(call).text

    assert text == '{"subject": "mock subject 97ee3f2abc6a", "body": "mock body 97ee3f2abc6a"}'
