"""Which value does a JSON schema allow? One that says of itself that it is made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

DEPTH_MAX: Final = 16
"""Deeper than this a schema that refers to itself is answered with null."""

ITEMS_MAX: Final = 20

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


def example_of(schema: Mapping[str, Any], say: Callable[[str], str]) -> dict[str, Any]:
    """An object as `schema` asks for, with all of its properties; `say` makes the text of the
    property of a name. What the schema leaves open is a text, and patterns are not kept."""
    properties = schema.get("properties", {})
    return {name: _value(schema, part, name, say, 1) for name, part in properties.items()}


def _value(
    root: Mapping[str, Any], schema: Any, name: str, say: Callable[[str], str], depth: int
) -> Any:
    schema = _resolved(root, schema)
    if depth > DEPTH_MAX:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in _ALTERNATIVES:
        if schema.get(key):
            return _value(root, schema[key][0], name, say, depth + 1)
    kind = _kind_of(schema)
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: _value(root, part, key, say, depth + 1) for key, part in properties.items()}
    if kind == "array":
        count = min(max(1, schema.get("minItems", 1)), ITEMS_MAX)
        items = schema.get("items", {})
        return [_value(root, items, name, say, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "boolean":
        return True
    return None if kind == "null" else say(name)


def _kind_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind is None and "properties" in schema:
        return "object"
    return kind if isinstance(kind, str) else "string"


def _number(schema: Mapping[str, Any]) -> Any:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    return min(1, schema.get("maximum", 1))


def _resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """The part of `root` that `schema` refers to, or `schema`; an empty one where there is none."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, Mapping):
            return {}
        path = schema.get("$ref")
        if not isinstance(path, str):
            return schema
        schema = root
        for key in path.removeprefix("#").strip("/").split("/"):
            schema = schema.get(key) if key and isinstance(schema, Mapping) else schema
    return {}
