"""Are values taken as they are, and shown as the documents say?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marshmallow import ValidationError

from jobs.domain.canonical_json import canonical_json
from service.instants import rfc3339
from service.schemas.fields import (
    JsonObject,
    Number,
    WholeNumber,
    as_entity_id,
    is_deeper_than,
)
from service.submission import PromptSubmission

LATEST_MS = 253_402_300_799_999


@given(st.integers(0, LATEST_MS))
def test_an_instant_is_rfc_3339_in_utc_with_its_milliseconds(at_ms: int) -> None:
    text = rfc3339(at_ms)
    assert len(text) == len("2026-01-31T12:00:00.123Z")
    parsed = datetime.fromisoformat(text)
    elapsed = parsed - datetime(1970, 1, 1, tzinfo=UTC)
    assert (elapsed.days * 86_400 + elapsed.seconds) * 1000 + elapsed.microseconds // 1000 == at_ms


@pytest.mark.parametrize("value", ["5", 5.0, True, None, [], float("nan")])
def test_a_whole_number_is_nothing_else(value: Any) -> None:
    with pytest.raises(ValidationError):
        WholeNumber().deserialize(value)


@pytest.mark.parametrize("value", ["5", True, None, [], 10**400])
def test_a_number_is_no_text_and_no_truth(value: Any) -> None:
    with pytest.raises(ValidationError):
        Number().deserialize(value)


def test_depth_is_counted_in_objects_and_lists_without_recursion() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert is_deeper_than(deep, 99_999)
    assert not is_deeper_than({"a": [{}]}, 3)
    assert is_deeper_than({"a": [{}]}, 2)
    assert not is_deeper_than("text", 0)


def test_an_object_is_measured_in_bytes_of_compact_json() -> None:
    field = JsonObject(max_bytes=12, max_depth=1)
    assert field.deserialize({"a": "üü"}) == {"a": "üü"}
    for large in ({"a": "üü1"}, {"a": []}):
        with pytest.raises(ValidationError):
            field.deserialize(large)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0" * 32,
        "{" + "0" * 8 + "-0000-0000-0000-" + "0" * 12 + "}",
        "0" * 8 + "-0000-0000-0000-" + "0" * 12 + "\n",
    ],
)
def test_only_the_usual_spelling_of_a_uuid_is_an_id(text: str) -> None:
    assert as_entity_id(text) is None


@pytest.mark.req("X4")
def test_the_hash_of_a_payload_sees_every_field_and_no_spelling() -> None:
    plain = PromptSubmission("hello")
    others = [
        PromptSubmission("hello "),
        PromptSubmission("hello", priority=49),
        PromptSubmission("hello", max_attempts=2),
        PromptSubmission("hello", model="mock-1"),
        PromptSubmission("hello", execution_options={"depth": 1}),
        PromptSubmission("hello", parent_id="p"),
        PromptSubmission("hello", correlation_id="p"),
        PromptSubmission("hello", causation_id="p"),
        PromptSubmission("hello", metadata={"a": 1}),
    ]
    hashes = {one.payload_hash() for one in (plain, *others)}
    assert len(hashes) == 1 + len(others)
    ordered = PromptSubmission("hello", metadata={"a": 1, "b": 2})
    assert (
        ordered.payload_hash()
        == PromptSubmission("hello", metadata={"b": 2, "a": 1}).payload_hash()
    )
    assert canonical_json({"b": "ü", "a": [1]}) == '{"a":[1],"b":"ü"}'.encode()
