import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.storable_text import storable
from jobs.providers.chat_answer import read_answer
from tests.support.openai_server import completion


def read(body: object, request_id: str | None = None) -> Any:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_answer(encoded, request_id, "asked-model")


def failure_of(body: object) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        read(body)
    return caught.value


def test_a_whole_answer_is_read() -> None:
    answer = read(completion("Hi.", model="served", answer_id="chatcmpl-9"))

    assert (answer.text, answer.model, answer.finish_reason) == ("Hi.", "served", "stop")
    assert answer.usage == Usage(7, 3)
    assert answer.provider_request_id == "chatcmpl-9"


@pytest.mark.req("A15")
def test_the_request_id_of_the_http_answer_goes_before_that_of_the_body() -> None:
    assert read(completion(), "req_1").provider_request_id == "req_1"


@pytest.mark.req("A15")
@pytest.mark.parametrize("answer_id", ["", "x" * 201, "a\nb", "ä", 5, None])
def test_an_id_that_can_not_be_stored_is_none(answer_id: object) -> None:
    assert read({**completion(), "id": answer_id}).provider_request_id is None


def test_the_asked_model_stands_in_where_the_answer_names_none() -> None:
    assert read({**completion(), "model": None}).model == "asked-model"


@pytest.mark.req("A9")
@pytest.mark.case("LLM-17")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"<html>hello</html>",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"choices": NaN}',
        b'{"id": ' + b"9" * 5000 + b"}",
        json.dumps(completion()).encode()[:-5],
        b'{"choices": [], "choices": []}',
        {**completion(), "choices": None},
        {**completion(), "choices": []},
        {**completion(), "choices": {}},
        {**completion(), "choices": ["x"]},
        {**completion(), "choices": [{"finish_reason": "stop"}]},
        {**completion(), "choices": [{"finish_reason": "stop", "message": None}]},
        completion(None),
        completion(""),
        completion(" \n"),
        completion([{"type": "text", "text": "x"}]),  # type: ignore[arg-type]
        completion("x", finish_reason=None),
        completion("x", finish_reason="tool_calls"),
        completion("x", finish_reason=["stop"]),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_completion_is_a_parse_error(body: object) -> None:
    error = failure_of(body)

    assert (error.kind, error.fault) == (ErrorKind.PARSE, Fault.MALFORMED)


@pytest.mark.req("A9")
@pytest.mark.case("LLM-07")
@pytest.mark.parametrize("finish_reason", ["length", "max_tokens"])
@pytest.mark.parametrize("text", ["half an ans", '{"valid": "json"}'])
def test_a_cut_off_answer_is_never_a_success(finish_reason: str, text: str) -> None:
    error = failure_of(completion(text, finish_reason=finish_reason))

    assert (error.kind, error.fault) == (ErrorKind.PARSE, Fault.CUT_OFF)
    assert error.message == "the answer was cut off at max_tokens"


@pytest.mark.req("A9")
@pytest.mark.case("LLM-09")
@pytest.mark.parametrize(
    "body",
    [
        completion(None, refusal="I can't say canary."),
        completion("partial canary", refusal="no canary"),
        completion("partial canary", finish_reason="content_filter"),
        completion(None, finish_reason="content_filter"),
    ],
)
def test_a_refusal_is_a_provider_4xx_without_any_of_its_text(body: object) -> None:
    error = failure_of(body)

    assert (error.kind, error.fault) == (ErrorKind.PROVIDER_4XX, Fault.REFUSED)
    assert error.message.startswith("refused: ")
    assert "canary" not in str(error)


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    "body",
    [
        completion(None, refusal="no"),
        completion("x", finish_reason="content_filter"),
        completion("x", finish_reason="length"),
        completion(""),
        completion("x", finish_reason=None),
        {**completion(), "choices": []},
    ],
)
def test_what_an_answer_of_no_use_cost_is_told(body: dict[str, object]) -> None:
    assert failure_of(body).usage == Usage(7, 3)
    assert failure_of({**body, "usage": {"prompt_tokens": 7}}).usage == Usage(7, None)


@pytest.mark.req("B17")
@pytest.mark.parametrize("body", [b"<html>", b"null", {**completion(""), "usage": None}])
def test_an_answer_that_names_no_usage_has_none(body: object) -> None:
    assert failure_of(body).usage is None


def test_an_empty_refusal_is_none() -> None:
    assert read(completion("Hi.", refusal="")).text == "Hi."


@pytest.mark.case("LLM-11")
@pytest.mark.parametrize("escape", ["\\ud83d", "\\ude00", "\\u0000"])
def test_what_can_not_be_stored_becomes_a_replacement_character(escape: str) -> None:
    body = json.dumps(completion("a@b")).replace("@", escape).encode()

    text = read(body).text

    assert text == "a\ufffdb"
    text.encode()


@pytest.mark.case("LLM-11")
def test_a_whole_emoji_is_left_alone() -> None:
    body = json.dumps(completion("a\U0001f600b")).encode()

    assert read(body).text == "a\U0001f600b"


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_what_is_storable_encodes_and_keeps_its_length(text: str) -> None:
    assert len(storable(text)) == len(text)
    storable(text).encode()


@pytest.mark.req("A19")
@pytest.mark.parametrize(
    "usage",
    [
        "free",
        [],
        {},
        {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": 1.5, "completion_tokens": "3"},
        {"prompt_tokens": True, "completion_tokens": None},
        {"prompt_tokens": 2**60, "completion_tokens": 2**60},
    ],
)
def test_usage_that_is_no_count_is_unknown(usage: object) -> None:
    assert read(completion(usage=usage)).usage == Usage(None, None)


@given(st.binary(max_size=300))
def test_no_body_raises_anything_but_an_attempt_error(body: bytes) -> None:
    with pytest.raises(AttemptError):
        read_answer(body, None, "m")
