import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.storable_text import storable
from jobs.providers.base import Completion
from jobs.providers.chat_answer import read_answer
from jobs.providers.chat_stream import TEXT_MAX_BYTES, StreamedAnswer
from tests.support.openai_server import completion
from tests.support.openai_stream import DONE, event, events_of


def read(*chunks: bytes, request_id: str | None = None) -> tuple[list[str], Completion]:
    answer = StreamedAnswer()
    pieces = [piece for chunk in chunks for piece in answer.take(chunk)]
    pieces += answer.finish()
    return pieces, answer.completion(request_id, "asked-model")


def failure_of(*chunks: bytes) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        read(*chunks)
    return caught.value


def said(delta: object, finish_reason: object = None, **chunk: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({"choices": [choice], **chunk})


STOP = said({}, "stop")


@pytest.mark.req("C9")
def test_a_streamed_answer_is_read_whole() -> None:
    body = completion("Hi there.", answer_id="chatcmpl-9")

    pieces, answer = read(*events_of(body, None, has_usage=True))

    assert pieces == ["", "Hi ", "there.", "", "", ""]
    assert answer == Completion("Hi there.", "served-model", "chatcmpl-9", "stop", Usage(7, 3))


@pytest.mark.req("A19")
def test_a_stream_without_usage_has_unknown_usage() -> None:
    _, answer = read(*events_of(completion("Hi."), None, has_usage=False))

    assert answer.usage == Usage(None, None)


@pytest.mark.req("A19")
def test_of_usage_that_grows_the_last_counts() -> None:
    counted = [
        said({"content": "x"}, None, usage={"prompt_tokens": 7, "completion_tokens": n})
        for n in (1, 2)
    ]

    _, answer = read(*counted, said({}, "stop", usage=None), DONE)

    assert answer.usage == Usage(7, 2)


TEXTS = st.one_of(
    st.none(), st.sampled_from(["", " ", "Hello", {}]), st.text(st.characters(codec=None))
)


@pytest.mark.req("A9", "C9")
@given(
    TEXTS,
    st.sampled_from(
        ["stop", "eos", "length", "content_filter", "tool_calls", "", None, 5, ["stop"]]
    ),
    st.sampled_from([None, "", "no"]),
    st.sampled_from([None, {"prompt_tokens": -1}, {}, {"completion_tokens": 3}]),
    st.integers(1, 200),
)
def test_a_streamed_answer_is_checked_as_one_of_one_piece(
    text: Any, finish_reason: Any, refusal: Any, usage: Any, cut_bytes: int
) -> None:
    body = completion(text, finish_reason=finish_reason, refusal=refusal)
    body["usage"] = usage
    pieces = [text] if not isinstance(text, str) else list(text)
    stream = b"".join(events_of(body, pieces, has_usage=True))
    chunks = [stream[place : place + cut_bytes] for place in range(0, len(stream), cut_bytes)]

    def outcome(reader: Any) -> Any:
        try:
            return reader()
        except AttemptError as error:
            return error.kind, error.fault, error.usage

    whole = outcome(lambda: read_answer(json.dumps(body).encode(), "req_1", "m"))
    streamed = outcome(lambda: read(*chunks, request_id="req_1"))

    if isinstance(whole, Completion):
        pieces_said, answer = streamed
        assert answer == whole
        assert "".join(pieces_said) == whole.text
    elif isinstance(text, dict):
        assert streamed[:2] == (ErrorKind.PARSE, Fault.MALFORMED), "at once, before its usage"
    else:
        assert streamed == whole


@pytest.mark.case("LLM-11")
@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["a\ud83d", "\ude00b"], ["a", "\U0001f600b"]),
        (["\ud83d", "\ude00"], ["", "\U0001f600"]),
        (["\ud83d", "", "\ude00"], ["", "", "\U0001f600"]),
        (["\ud83d", "b"], ["", "\ufffdb"]),
        (["\ude00", "\ud83d"], ["\ufffd", "", "\ufffd"]),
        (["\ud83d", "\ud83d", "\ude00"], ["", "\ufffd", "\U0001f600"]),
        (["a\x00b"], ["a\ufffdb"]),
    ],
)
def test_a_character_in_two_pieces_is_told_whole_and_half_a_one_is_replaced(
    pieces: list[str], told: list[str]
) -> None:
    chunks = [said({"content": piece}) for piece in pieces]
    answer = StreamedAnswer()

    heard = [piece for chunk in chunks for piece in answer.take(chunk)]
    heard += list(answer.finish())

    assert heard == told
    assert "".join(heard) == storable("".join(told))


def test_utf_8_that_is_cut_within_a_character_is_not_mangled() -> None:
    raw = json.dumps({"choices": [{"delta": {"content": "é😀"}}]}, ensure_ascii=False).encode()
    stream = b"data: " + raw + b"\n\n" + STOP + DONE

    pieces, answer = read(*(bytes([byte]) for byte in stream))

    assert pieces[0] == answer.text == "é😀"


@pytest.mark.req("C6")
def test_whatever_arrives_is_a_piece() -> None:
    answer = StreamedAnswer()

    assert list(answer.take(b": processing\n\n")) == [""]
    assert list(answer.take(said({"reasoning_content": "hm"}))) == [""]
    assert list(answer.take(event({"type": "ping"}))) == [""]
    assert list(answer.take(b'data: {"choi')) == [], "half a chunk says nothing yet"


@pytest.mark.req("A9")
@pytest.mark.case("LLM-17")
@pytest.mark.parametrize(
    "chunk",
    [
        b"data: <html>\n\n",
        b"data: null\n\n",
        b"data: []\n\n",
        b'data: {"choices": NaN}\n\n',
        b'data: {"id": 1, "id": 2}\n\n',
        b"data: \xff\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        event({"choices": {"delta": {}}}),
        event({"choices": ["x"]}),
        said(["x"]),
        said({"content": 5}),
        said({"content": "x"}) + DONE,
        DONE,
        STOP + DONE,
        said({"content": "x"}, "tool_calls") + DONE,
        said({"content": "x"}, {"a": 1}) + DONE,
    ],
)
def test_what_is_no_whole_answer_is_a_parse_failure(chunk: bytes) -> None:
    error = failure_of(chunk)

    assert (error.kind, error.fault) == (ErrorKind.PARSE, Fault.MALFORMED)


@pytest.mark.req("A9")
@pytest.mark.parametrize("chunks", [[], [said({"content": "x"})], [b"event: a\n\n"]])
def test_a_stream_that_ends_before_its_answer_is_a_failure_of_the_server(
    chunks: list[bytes],
) -> None:
    error = failure_of(*chunks)

    assert (error.kind, error.fault) == (ErrorKind.PROVIDER_5XX, Fault.NO_ANSWER)
    assert error.usage is None


@pytest.mark.req("A9")
def test_a_stream_that_says_why_it_ended_need_not_say_that_it_is_done() -> None:
    assert read(said({"content": "Hi."}), STOP)[1].text == "Hi."


def test_what_comes_after_the_end_counts_for_nothing() -> None:
    pieces, answer = read(
        said({"content": "Hi."}), STOP + DONE + said({"content": "x"}), b"\xff\n\n"
    )

    assert (pieces, answer.text) == (["Hi.", "", ""], "Hi.")


def test_another_answer_than_the_first_is_not_a_part_of_it() -> None:
    other = event(
        {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    )

    assert read(said({"content": "Hi."}), other, STOP, DONE)[1].text == "Hi."


@pytest.mark.req("A9")
def test_a_text_without_end_is_ended_at_its_limit() -> None:
    answer = StreamedAnswer()
    chunk = said({"content": "ä" * 500_000})
    for _ in range(TEXT_MAX_BYTES // 1_000_000):
        assert len(list(answer.take(chunk))) == 1

    with pytest.raises(AttemptError, match="longer than 8388608 bytes") as caught:
        list(answer.take(chunk))
    assert caught.value.fault is Fault.MALFORMED


@pytest.mark.req("A9", "C9")
@pytest.mark.parametrize(
    ("error", "kind", "fault"),
    [
        ({"message": "secret", "type": "server_error"}, ErrorKind.PROVIDER_5XX, Fault.NONE),
        ({"code": 429, "message": "x"}, ErrorKind.RATE_LIMIT, Fault.NONE),
        ({"code": "rate_limit_exceeded"}, ErrorKind.RATE_LIMIT, Fault.NONE),
        ({"code": "503"}, ErrorKind.PROVIDER_5XX, Fault.NONE),
        ({"type": "overloaded_error"}, ErrorKind.PROVIDER_5XX, Fault.OVERLOADED),
        (
            {"code": "insufficient_quota", "type": "invalid_request_error"},
            ErrorKind.AUTH,
            Fault.NONE,
        ),
        ({"type": "invalid_request_error"}, ErrorKind.PROVIDER_4XX, Fault.NONE),
        ({"code": 401}, ErrorKind.AUTH, Fault.NONE),
        ("secret words", ErrorKind.PROVIDER_5XX, Fault.NONE),
        ({"code": ["x"], "type": {"a": 1}, "status": True}, ErrorKind.PROVIDER_5XX, Fault.NONE),
    ],
)
def test_an_error_within_a_stream_has_the_kind_that_it_has_as_an_answer(
    error: object, kind: ErrorKind, fault: Fault
) -> None:
    failure = failure_of(said({"content": "x"}), event({"error": error}), STOP, DONE)

    assert (failure.kind, failure.fault) == (kind, fault)
    assert failure.message.endswith("in the middle of its answer")
    assert "secret" not in failure.message


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    "chunk",
    [
        event({"object": "error", "message": "x", "code": 400}),
        b'event: error\ndata: {"message": "x", "code": 400}\n\n',
    ],
)
def test_an_error_of_another_shape_is_one_too(chunk: bytes) -> None:
    assert failure_of(chunk).kind is ErrorKind.PROVIDER_4XX
