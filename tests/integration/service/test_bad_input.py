"""What is refused, in which words, and does it leave a trace?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.runtime import Runtime
from service.app import create_app
from tests.integration.service.conftest import Caller

Keyspace = Callable[[], dict[bytes, bytes]]
LONE = "\\ud83d"


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def assert_refused(
    caller: Caller, keyspace: Keyspace, body: bytes | object, **expected: Any
) -> None:
    """The answer is a problem of `status` that names `field`, and nothing was stored."""
    before = keyspace()
    content_type = expected.get("content_type", "application/json")
    sent = caller.post_raw(body, content_type) if isinstance(body, bytes) else caller.post(body)
    assert sent.status_code == expected["status"], sent.get_data(as_text=True)[:500]
    assert sent.mimetype == "application/problem+json"
    problem = sent.json
    assert problem is not None
    assert problem["status"] == expected["status"]
    assert problem["request_id"] == sent.headers["X-Request-Id"]
    assert expected["field"] in [error["field"] for error in problem["errors"]]
    assert all(error["reason"] for error in problem["errors"])
    assert len(sent.get_data()) < 8_000, "the answer quotes what was sent"
    assert keyspace() == before


VALUES: list[tuple[str, object, str]] = [
    ("no prompt", {}, "prompt"),
    ("prompt null", {"prompt": None}, "prompt"),
    ("prompt empty", {"prompt": ""}, "prompt"),
    ("prompt blank", {"prompt": " \t\n\u2003"}, "prompt"),
    ("prompt a number", {"prompt": 5}, "prompt"),
    ("prompt a list", {"prompt": ["a"]}, "prompt"),
    ("prompt with NUL", {"prompt": "a\x00b"}, "prompt"),
    ("priority 101", {"prompt": "a", "priority": 101}, "priority"),
    ("priority -1", {"prompt": "a", "priority": -1}, "priority"),
    ("priority text", {"prompt": "a", "priority": "5"}, "priority"),
    ("priority true", {"prompt": "a", "priority": True}, "priority"),
    ("priority 1.0", {"prompt": "a", "priority": 1.0}, "priority"),
    ("priority null", {"prompt": "a", "priority": None}, "priority"),
    ("priority huge", {"prompt": "a", "priority": 10**400}, "priority"),
    ("max_attempts 0", {"prompt": "a", "max_attempts": 0}, "max_attempts"),
    ("max_attempts 11", {"prompt": "a", "max_attempts": 11}, "max_attempts"),
    ("unknown field", {"prompt": "a", "promt": "a"}, "promt"),
    ("endless name", {"prompt": "a", "x" * 100_000: 1}, "x" * 64 + "…"),
    ("unknown model", {"prompt": "a", "model": "gpt-9"}, "model"),
    ("model a number", {"prompt": "a", "model": 4}, "model"),
    (
        "two models",
        {"prompt": "a", "model": "mock-1", "execution_options": {"model": "gpt-5-mini"}},
        "execution_options.model",
    ),
    ("options a list", {"prompt": "a", "execution_options": []}, "execution_options"),
    ("options null", {"prompt": "a", "execution_options": None}, "execution_options"),
    ("unknown option", {"prompt": "a", "execution_options": {"n": 1}}, "execution_options.n"),
    (
        "max_tokens 0",
        {"prompt": "a", "execution_options": {"max_tokens": 0}},
        "execution_options.max_tokens",
    ),
    (
        "temperature true",
        {"prompt": "a", "execution_options": {"temperature": True}},
        "execution_options.temperature",
    ),
    (
        "temperature huge",
        {"prompt": "a", "execution_options": {"temperature": 10**400}},
        "execution_options.temperature",
    ),
    (
        "system too long",
        {"prompt": "a", "execution_options": {"system": "ü" * 4097}},
        "execution_options.system",
    ),
    ("parent no uuid", {"prompt": "a", "parent_id": "p-1"}, "parent_id"),
    ("parent with newline", {"prompt": "a", "parent_id": "0" * 8 + "\n"}, "parent_id"),
    ("metadata a text", {"prompt": "a", "metadata": "x"}, "metadata"),
    ("metadata too large", {"prompt": "a", "metadata": {"a": "ü" * 2048}}, "metadata"),
    ("metadata 9 deep", {"prompt": "a", "metadata": nested(9)}, "metadata"),
    ("metadata 400 deep", {"prompt": "a", "metadata": nested(400)}, "metadata"),
    ("metadata NUL", {"prompt": "a", "metadata": {"a": {"b": ["\x00"]}}}, "metadata.a.b"),
    ("NUL in a name", {"prompt": "a", "metadata": {"a\x00": 1}}, "metadata.a?"),
    ("a list", [], "body"),
    ("a text", "prompt", "body"),
    ("null", None, "body"),
    ("too many values", {"prompt": "a", "metadata": {"a": [0] * 20_000}}, "body"),
]


@pytest.mark.req("X12", "X3")
@pytest.mark.parametrize(("payload", "field"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES])
def test_a_wrong_value_is_422_with_its_field(
    caller: Caller, keyspace: Keyspace, payload: object, field: str
) -> None:
    assert_refused(caller, keyspace, payload, status=422, field=field)


SURROGATES = [
    (f'{{"prompt": "{LONE}"}}', "prompt"),
    (f'{{"prompt": "a", "metadata": {{"a": "x{LONE}y"}}}}', "metadata.a"),
    (f'{{"prompt": "a", "metadata": {{"{LONE}": 1}}}}', "metadata.?"),
    (f'{{"prompt": "a", "execution_options": {{"system": "{LONE}"}}}}', "execution_options.system"),
    (f'{{"prompt": "a", "execution_options": {{"{LONE}": 1}}}}', "execution_options.?"),
    (f'{{"prompt": "a", "{LONE}": 1}}', "?"),
]


@pytest.mark.case("LLM-11")
@pytest.mark.req("X12")
@pytest.mark.parametrize(("body", "field"), SURROGATES)
def test_a_lone_surrogate_is_422_wherever_it_is(
    caller: Caller, keyspace: Keyspace, body: str, field: str
) -> None:
    assert_refused(caller, keyspace, body.encode(), status=422, field=field)


@pytest.mark.case("LLM-11")
def test_a_surrogate_pair_is_a_character_like_any_other(caller: Caller) -> None:
    accepted = caller.post_raw(b'{"prompt": "\\ud83d\\ude42"}')
    assert accepted.status_code == 202
    assert accepted.json is not None
    prompt = caller.get(f"/v1/prompts/{accepted.json['prompt_id']}").json
    assert prompt is not None
    assert prompt["text"] == "🙂"


BODIES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("blank", b"  "),
    ("cut off", b'{"prompt": "a'),
    ("two values", b'{"prompt": "a"}{}'),
    ("python", b"{'prompt': 'a'}"),
    ("form", b"prompt=a"),
    ("NaN", b'{"prompt": "a", "priority": NaN}'),
    ("Infinity", b'{"prompt": "a", "metadata": {"a": -Infinity}}'),
    ("overflow", b'{"prompt": "a", "metadata": {"a": 1e999}}'),
    ("name twice", b'{"prompt": "a", "prompt": "b"}'),
    ("100,000 lists deep", b'{"prompt": "a", "metadata": {"a": ' + b"[" * 100_000),
    ("100,000 objects deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("5,000 digits", b'{"prompt": "a", "priority": ' + b"9" * 5000 + b"}"),
    ("not UTF-8", b'{"prompt": "\xff"}'),
    ("UTF-16", '{"prompt": "a"}'.encode("utf-16")),
    ("encoded surrogate", b'{"prompt": "\xed\xa0\xbd"}'),
    ("raw NUL", b'{"prompt": "a\x00"}'),
    ("byte order mark", b'\xef\xbb\xbf{"prompt": "a"}'),
]


@pytest.mark.req("X12", "X3")
@pytest.mark.parametrize("body", [b[1] for b in BODIES], ids=[b[0] for b in BODIES])
def test_a_body_that_is_no_json_is_400(caller: Caller, keyspace: Keyspace, body: bytes) -> None:
    assert_refused(caller, keyspace, body, status=400, field="body")


@pytest.mark.req("X3")
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_another_content_type_is_415(caller: Caller, keyspace: Keyspace, content_type: str) -> None:
    assert_refused(
        caller,
        keyspace,
        b'{"prompt": "a"}',
        content_type=content_type,
        status=415,
        field="Content-Type",
    )


def test_a_compressed_body_is_415(caller: Caller) -> None:
    headers = {**caller.headers, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert caller.http.post("/v1/prompt", data=b"\x1f\x8b", headers=headers).status_code == 415


def test_json_in_utf_8_may_say_so(caller: Caller) -> None:
    answer = caller.post_raw(b'{"prompt": "a"}', 'application/json; charset="UTF-8"')
    assert answer.status_code == 202


@pytest.mark.req("X12")
def test_a_body_over_the_limit_is_413_and_one_at_the_limit_is_not(
    caller: Caller, keyspace: Keyspace
) -> None:
    limit = 1_048_576
    frame = len('{"prompt": ""}')
    assert_refused(
        caller, keyspace, {"prompt": "a" * (limit - frame + 1)}, status=413, field="body"
    )
    assert caller.post({"prompt": "a" * (limit - frame)}).status_code == 202


@pytest.mark.req("X4")
@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "k\u00e9y", "tab\there"])
def test_a_bad_idempotency_key_is_422_naming_the_header(
    caller: Caller, keyspace: Keyspace, key: str
) -> None:
    before = keyspace()
    answer = caller.post({"prompt": "a"}, Idempotency_Key=key)
    assert answer.status_code == 422
    assert answer.json is not None
    assert [error["field"] for error in answer.json["errors"]] == ["Idempotency-Key"]
    assert keyspace() == before


def test_all_that_is_wrong_is_told_at_once_but_not_without_end(caller: Caller) -> None:
    answer = caller.post({"priority": "5", **{f"x{n}": 1 for n in range(500)}}).json
    assert answer is not None
    assert {"prompt", "priority"} <= {error["field"] for error in answer["errors"]}
    assert len(answer["errors"]) == 20


def test_an_unknown_model_is_answered_with_the_known_ones(caller: Caller) -> None:
    answer = caller.post({"prompt": "a", "model": "gpt-9"}).json
    assert answer is not None
    assert "mock-1, mock-paid, gpt-4.1-mini" in answer["errors"][0]["reason"]


@pytest.mark.req("X3")
def test_unknown_pages_and_methods_are_problems_too(caller: Caller) -> None:
    missing, wrong = caller.get("/v1/nothing"), caller.get("/v1/prompt")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert wrong.headers["Allow"] == "OPTIONS, POST"
    for answer in (missing, wrong):
        assert answer.mimetype == "application/problem+json"
        assert answer.json is not None
        assert answer.json["type"].startswith("urn:genqueue:problem:")


@pytest.mark.req("X3")
def test_an_error_of_ours_is_a_500_that_says_nothing(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(runtime)

    @app.get("/broken")
    def break_down() -> str:
        raise RuntimeError("secret s3cr3t")

    answer = app.test_client().get("/broken", headers={"X-Request-Id": "r-1"})
    assert answer.status_code == 500
    assert answer.mimetype == "application/problem+json"
    assert "s3cr3t" not in answer.get_data(as_text=True)
    assert "RuntimeError" not in answer.get_data(as_text=True)
    assert "r-1" in caplog.text
    assert "s3cr3t" in caplog.text
