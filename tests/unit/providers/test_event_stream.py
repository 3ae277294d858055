from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.providers.event_stream import EVENT_MAX_BYTES, Event, EventReader


def events_of(*chunks: bytes) -> list[Event | None]:
    reader = EventReader()
    found = [event for chunk in chunks for event in reader.feed(chunk)]
    return [*found, *reader.finish()]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [Event("", "a"), Event("", "b")]),
        (b"data: a\r\n\r\ndata: b\r\rdata:c\n\n", [Event("", x) for x in "abc"]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [Event("error", "a"), Event("", "b")]),
        (b"data: a\ndata: b\n\n", [Event("", "a\nb")]),
        (b": still there\n\ndata: a\n\n", [None, Event("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("", "a")]),
        (b"id: 7\nretry: 5\nwhatever\n\ndata: a\n\n", [Event("", "a")]),
        (b"data:  a \n\n", [Event("", " a ")]),
        (b"data: a\n", [Event("", "a")]),
        (b"data: a", [Event("", "a")]),
        (b"event: only\n\n", []),
        (b"", []),
        ("data: \u2028\x0b\x1c\x85ä\n\n".encode(), [Event("", "\u2028\x0b\x1c\x85ä")]),
    ],
)
def test_events_are_found(stream: bytes, events: list[Event | None]) -> None:
    assert events_of(stream) == events


LINES = st.sampled_from(
    [b"data: \xf0\x9f\x98\x80", b"data: x", b": c", b"event: e", b"", b"", "data: é\u2028".encode()]
)


@given(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_it_does_not_matter_where_a_stream_is_cut(
    lines: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(line + end for line, end in lines)
    places = [0, *sorted(cuts), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(places)]

    assert events_of(*chunks) == events_of(*(bytes([byte]) for byte in stream)) == events_of(stream)


def test_what_is_no_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match="it is no UTF-8"):
        events_of(b"data: \xff\n\n")


@pytest.mark.parametrize(
    "part", [b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n", b"data:\n" * 999]
)
def test_an_event_without_end_is_refused_in_time(part: bytes) -> None:
    reader = EventReader()
    for _ in range(EVENT_MAX_BYTES // len(part) - 1):
        assert list(reader.feed(part)) == []

    with pytest.raises(ValueError, match="an event longer than 8388608 bytes"):
        list(reader.feed(part * 3))
