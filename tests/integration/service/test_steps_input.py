"""Which submits of steps are refused, in which words, and without a trace? (B24, B25)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from jobs.runtime import Runtime
from tests.integration.service.conftest import Keyspace
from tests.integration.service.step_caller import (
    FIELDS,
    GLOBALS,
    StepCaller,
    inputs,
    step_with,
)
from tests.integration.service.team_caller import team_caller


@pytest.fixture
def steps(http: FlaskClient, runtime: Runtime) -> StepCaller:
    return StepCaller(team_caller(http, runtime))


def asks(**changes: Any) -> dict[str, Any]:
    return {"inputs": inputs(**changes)}


def knows(**changes: Any) -> dict[str, Any]:
    return {"globals": {**GLOBALS, **changes}}


def maps(*rows: object) -> dict[str, Any]:
    return {"output_variable": list(rows)}


def row(key: object, path: object) -> dict[str, object]:
    return {"key": key, "result_path": path}


def nested(levels: int) -> Any:
    """Objects in so many levels."""
    return {} if levels == 1 else {"a": nested(levels - 1)}


def json_of(size: int) -> dict[str, str]:
    """An object of so many bytes as compact JSON, with the declared variables of a step."""
    value = {"subject": "", "body": "", "x": ""}
    return {**value, "x": "y" * (size - len('{"subject":"","body":"","x":""}'))}


VALUES: list[tuple[str, dict[str, Any], str]] = [
    ("no invocation", {"invocation_id": ...}, "invocation_id"),
    ("invocation newline", {"invocation_id": "a\nb"}, "invocation_id"),
    ("flow empty", {"hog_flow_id": ""}, "hog_flow_id"),
    ("no inputs", {"inputs": ...}, "inputs"),
    ("inputs null", {"inputs": None}, "inputs"),
    ("inputs a list", {"inputs": []}, "inputs"),
    ("inputs unknown", asks(max_tokens=5), "inputs.max_tokens"),
    ("no prompt", asks(prompt=...), "inputs.prompt"),
    ("prompt null", asks(prompt=None), "inputs.prompt"),
    ("prompt a number", asks(prompt=5), "inputs.prompt"),
    ("prompt empty", asks(prompt=""), "inputs.prompt"),
    ("prompt empty once rendered", asks(prompt=" {{ person.gone }}\n"), "inputs.prompt"),
    ("prompt 64 KB and 1", asks(prompt="a" * 65_537), "inputs.prompt"),
    ("prompt NUL", asks(prompt="a\x00"), "inputs.prompt"),
    ("prompt an open tag", asks(prompt="Hi {{ person.name"), "inputs.prompt"),
    ("prompt an open if", asks(prompt="{% if person %}Hi"), "inputs.prompt"),
    ("prompt no tag", asks(prompt="{% nosuch %}"), "inputs.prompt"),
    ("prompt reads files", asks(prompt="{% include 'x' %}"), "inputs.prompt"),
    ("prompt endless", asks(prompt="{% for i in (1..10000000) %}x{% endfor %}"), "inputs.prompt"),
    ("no model", asks(model=...), "inputs.model"),
    ("model long", asks(model="m" * 65), "inputs.model"),
    ("fields a list", asks(output_fields=[]), "inputs.output_fields"),
    ("instruction a number", asks(output_fields={"subject": 1}), "inputs.output_fields.subject"),
    ("instruction blank", asks(output_fields={"subject": " "}), "inputs.output_fields.subject"),
    ("name digit first", asks(output_fields={"1a": "x"}), "inputs.output_fields.1a"),
    ("undeclared", asks(output_fields={"gone": "x"}), "inputs.output_fields.gone"),
    (
        "undeclared, no variables",
        {"globals": ...},
        "inputs.output_fields.subject",
    ),
    ("globals null", {"globals": None}, "globals"),
    ("globals a text", {"globals": "x"}, "globals"),
    ("globals unknown", knows(project={}), "globals.project"),
    ("person null", knows(person=None), "globals.person"),
    ("person a list", knows(person=[]), "globals.person"),
    ("event a text", knows(event="x"), "globals.event"),
    ("groups a number", knows(groups=1), "globals.groups"),
    ("variables a list", knows(variables=[]), "globals.variables"),
    ("variables 5,121 bytes", knows(variables=json_of(5_121)), "globals.variables"),
    ("person 64 KB and more", knows(person={"a": "x" * 65_600}), "globals.person"),
    (
        "64 KB together",
        knows(person={"a": "x" * 33_000}, event={"a": "x" * 33_000}),
        "globals",
    ),
    ("person 16 levels", knows(person=nested(16)), "globals.person"),
    ("person 5,000 levels", knows(person=nested(400)), "globals.person"),
    ("variable NUL", knows(variables={"subject": "\x00"}), "globals.variables.subject"),
    ("rows an object", {"output_variable": {}}, "output_variable"),
    ("rows null", {"output_variable": None}, "output_variable"),
    ("101 rows", maps(*[row("body", "text")] * 101), "output_variable"),
    ("row a text", maps("body"), "output_variable.0"),
    ("row unknown", maps({**row("body", "text"), "x": 1}), "output_variable.0.x"),
    ("row without key", maps({"result_path": "text"}), "output_variable.0.key"),
    ("row without path", maps({"key": "body"}), "output_variable.0.result_path"),
    ("row key empty", maps(row("", "text")), "output_variable.0.key"),
    ("row path a number", maps(row("body", 5)), "output_variable.0.result_path"),
    ("row undeclared", maps(row("n", "text"), row("x", "text")), "output_variable.1.key"),
    ("row no such path", maps(row("body", "result")), "output_variable.0.result_path"),
    ("row no such field", maps(row("body", "fields.x")), "output_variable.0.result_path"),
    ("row all fields", maps(row("body", "fields")), "output_variable.0.result_path"),
    ("row twice", maps(row("body", "text"), row("body", "text")), "output_variable.1.key"),
    ("row of a field's variable", maps(row("subject", "text")), "output_variable.0.key"),
    ("on_error unknown", {"on_error": "retry"}, "on_error"),
    ("on_error null", {"on_error": None}, "on_error"),
    ("mode unknown", {"mode": "test"}, "mode"),
    ("mode a number", {"mode": 1}, "mode"),
    ("callback null", {"callback_url": None}, "callback_url"),
    ("callback a number", {"callback_url": 5}, "callback_url"),
    ("callback by http", {"callback_url": "http://example.com/"}, "callback_url"),
    ("callback here", {"callback_url": "https://127.0.0.1/"}, "callback_url"),
    ("callback by number", {"callback_url": "https://0x7f000001/"}, "callback_url"),
    ("callback of a walk", {"callback_url": "https://[::1]/", "mode": "mock"}, "callback_url"),
    ("callback long", {"callback_url": "https://a.example/" + "x" * 2_048}, "callback_url"),
    ("unknown field", {"prompt": "x"}, "prompt"),
    ("team", {"team_id": "2"}, "team_id"),
]


@pytest.mark.req("B24", "B25", "B26")
@pytest.mark.parametrize(("changes", "field"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES])
def test_a_wrong_value_is_422_with_its_field_and_stores_nothing(
    steps: StepCaller, keyspace: Callable[[], Keyspace], changes: dict[str, Any], field: str
) -> None:
    before = keyspace()
    answer = steps.submit(**changes)
    assert (answer.status_code, answer.mimetype) == (422, "application/json")
    assert answer.json is not None
    error = answer.json["error"]
    assert (answer.json["id"], answer.json["status"]) == (None, "failed")
    assert (error["code"], bool(error["message"])) == ("invalid_request", True)
    assert field in [one["field"] for one in error["errors"]]
    assert all(one["reason"] for one in error["errors"])
    assert len(answer.get_data()) < 8_000, "the answer quotes what was sent"
    assert keyspace() == before


@pytest.mark.req("B25")
def test_a_field_that_no_variable_is_declared_for_is_told_so(steps: StepCaller) -> None:
    answer = steps.submit(inputs=inputs(output_fields={**FIELDS, "gone": "x"})).json
    assert answer is not None
    assert answer["error"]["errors"] == [
        {
            "field": "inputs.output_fields.gone",
            "reason": "is no variable that this workflow declares",
        }
    ]


@pytest.mark.req("B24")
def test_what_is_wrong_with_a_template_is_told_with_its_line_and_no_value(
    steps: StepCaller,
) -> None:
    asked = inputs(prompt="Hello\n\n{{ person.secret | append }}", output_fields={})
    person = {"person": {"secret": "s3cr3t"}}
    answer = steps.submit(inputs=asked, globals=person).json
    assert answer is not None
    (error,) = answer["error"]["errors"]
    assert error["field"] == "inputs.prompt"
    assert error["reason"].startswith("line 3: ")
    assert "s3cr3t" not in str(answer)


@pytest.mark.req("B26", "X12")
def test_an_address_that_must_not_be_called_back_is_told_with_all_else(steps: StepCaller) -> None:
    asked = inputs(prompt="{% if %}")
    answer = steps.submit(inputs=asked, callback_url="https://10.0.0.1/").json
    assert answer is not None
    errors = {one["field"]: one["reason"] for one in answer["error"]["errors"]}
    assert set(errors) == {"inputs.prompt", "callback_url"}
    assert errors["callback_url"] == "must not name an address of a private or reserved network"


@pytest.mark.req("X4")
@pytest.mark.parametrize("key", ["a b", "ü", "k" * 256])
def test_a_key_that_is_none_is_422(steps: StepCaller, key: str) -> None:
    answer = steps.submit(key)
    assert answer.status_code == 422
    assert answer.json is not None
    assert answer.json["error"]["errors"][0]["field"] == "Idempotency-Key"


@pytest.mark.req("B26")
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [(b"{", "application/json", 400), (b"{}", "text/plain", 415), (b"[]", "application/json", 422)],
)
def test_a_body_that_is_no_json_object_is_refused(
    steps: StepCaller, body: bytes, content_type: str, status: int
) -> None:
    headers = {**steps.team.headers, "Content-Type": content_type}
    answer = steps.team.http.post(steps.address, data=body, headers=headers)
    assert (answer.status_code, answer.mimetype) == (status, "application/json")


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("no fields at all", {"inputs": inputs(output_fields=..., prompt="Hi."), "globals": ...}),
    ("a bare brace", asks(prompt='Reply as {"a": {"b": 1}} please.')),
    ("64 KB of prompt", asks(prompt="a" * 65_536)),
    ("variables of 5,120 bytes", knows(variables=json_of(5_120))),
    ("variables of any value", knows(variables={"subject": None, "x": [1, {"y": True}]})),
    ("a variable of any name", knows(variables={"subject": "", "größe 🙂": 1})),
    ("15 levels below", knows(person=nested(15))),
    ("a field into another variable", maps(row("body", "fields.subject"))),
    ("a field into two", maps(row("body", "fields.subject"), row("subject", "fields.subject"))),
    ("text into two", maps(row("body", "text"), row("n", "text"))),
    ("an unknown model", asks(model="gpt-9")),
]


@pytest.mark.req("B24", "B25")
@pytest.mark.parametrize("changes", [a[1] for a in ACCEPTED], ids=[a[0] for a in ACCEPTED])
def test_what_is_odd_and_allowed_is_accepted(steps: StepCaller, changes: dict[str, Any]) -> None:
    answer = steps.post(step_with(**changes))
    assert answer.status_code == 202, answer.get_data(as_text=True)
