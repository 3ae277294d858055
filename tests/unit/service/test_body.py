"""Which bodies can be kept, for any body there is?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask, request
from hypothesis import given
from hypothesis import strategies as st

from service.body import read_json, shown
from service.errors import BodyMalformedError, PayloadInvalidError

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=5)
    ),
)
APP = Flask("test")


def read(body: bytes) -> Any:
    with APP.test_request_context(data=body, method="POST", content_type="application/json"):
        return read_json(request)


def is_storable(value: Any) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return "\\u0000" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.req("X12")
@pytest.mark.case("LLM-11")
@given(JSON_VALUES)
def test_a_body_is_read_as_it_was_meant_or_refused_for_what_cant_be_stored(value: Any) -> None:
    body = json.dumps(value).encode()
    # json.loads joins two lone halves that stand side by side, as any reader does.
    meant = json.loads(body)
    if is_storable(meant):
        assert read(body) == meant
    else:
        with pytest.raises(PayloadInvalidError):
            read(body)


@pytest.mark.req("X12")
@given(st.binary(min_size=1))
def test_bytes_are_read_as_json_or_refused_and_never_break(body: bytes) -> None:
    try:
        value = read(body)
    except (BodyMalformedError, PayloadInvalidError):
        return
    assert value == json.loads(body)


@pytest.mark.req("X12")
@given(st.text(st.characters(codec=None)))
def test_a_name_that_a_caller_made_up_can_always_be_shown(name: str) -> None:
    text = shown(name)
    assert len(text) <= 65
    assert "\x00" not in text
    assert text.encode("utf-8").decode("utf-8") == text
