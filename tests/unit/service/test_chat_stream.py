"""Does the stream of a turn tell all of it, in order, and end as the turn did?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from jobs.domain.errors import ErrorKind, StoreUnavailableError
from jobs.domain.escalation_text import escalation_text
from jobs.store.events import Event, Pulse
from jobs.store.tokens import PROGRESS, RESTART, TEXT, Said
from jobs.store.turns import RequestStanding, RequestStatus, RequestView
from service.chat_stream import WatchedTurn, stream
from service.fanout import Fanout, Subscription
from service.request_views import turn_envelope
from service.schemas.chat import ChatResponseSchema
from service.sse import COMMENT
from tests.support.chat_requests import JOB_ID, REQUEST_ID, request_view
from tests.support.sse_client import Message, Parser

COMPLETED = request_view(status=RequestStatus.COMPLETED, result="Hello world")
ESCALATED = request_view(escalated=True)


class QuietEvents:
    """A stream of events on which nothing happens."""

    def last_seq(self) -> int:
        return 0

    def pulse(self) -> Pulse:
        return Pulse("r", 0)

    def read(self, positions: Mapping[str, int], *, block_ms: int) -> dict[str, list[Event]]:
        del positions
        threading.Event().wait(block_ms / 1000)
        return {}


class Turn:
    """A turn that says `pieces` and then is as `views` show it, the last for ever; an error among
    them is raised. `looks` counts how often it was asked how far it is, `reads` how often for all
    of it."""

    def __init__(
        self, pieces: Sequence[Said | Exception], views: Sequence[RequestView | Exception | None]
    ) -> None:
        self.pieces = list(pieces)
        self.views = list(views)
        self.is_gone = False
        self.looks = 0
        self.reads = 0

    def read(self, after: str, block_ms: int | None) -> list[Said]:
        del block_ms
        if self.pieces and isinstance(self.pieces[0], Exception):
            error = self.pieces.pop(0)
            assert isinstance(error, Exception)
            raise error
        said = [one for one in self.pieces if isinstance(one, Said)]
        return [one for one in said if int(one.position) > int(after.partition("-")[0])][:2]

    def standing(self) -> RequestStanding | None:
        self.looks += 1
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(view, Exception):
            raise view
        return view and RequestStanding(view.status, view.escalated)

    def look(self) -> RequestView | None:
        self.reads += 1
        view = self.views[-1]
        assert not isinstance(view, Exception)
        return view

    def watched(self) -> WatchedTurn:
        return WatchedTurn(JOB_ID, self.read, self.standing, self.look, lambda: self.is_gone)


def said(*pieces: tuple[str, str]) -> list[Said]:
    """Pieces at the positions 1, 2, …"""
    return [Said(str(n), what, text) for n, (what, text) in enumerate(pieces, 1)]


@pytest.fixture
def fanout() -> Iterator[Fanout]:
    made = Fanout(QuietEvents(), limit=5, limit_per_org=5)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def place(fanout: Fanout) -> Subscription:
    return fanout.subscribe("formation")


def told(frames: Iterable[bytes]) -> list[Message]:
    """The events that a client understands out of `frames`."""
    parser = Parser()
    return [message for data in frames for message in parser.feed(data)]


def names(messages: list[Message]) -> list[str]:
    return [message.name for message in messages]


@pytest.mark.req("C9")
def test_a_turn_is_told_from_its_start_to_its_answer_each_event_with_an_id(
    place: Subscription,
) -> None:
    pieces = said((PROGRESS, "1|2|assistant"), (TEXT, "Hello "), (RESTART, ""), (TEXT, "Hello"))
    messages = told(stream(place, Turn(pieces, [COMPLETED]).watched()))
    assert names(messages) == ["started", "progress", "delta", "restart", "delta", "completed"]
    assert [message.json for message in messages[:-1]] == [
        {"request_id": REQUEST_ID},
        {"task": 1, "of": 2, "agent": "assistant"},
        {"text": "Hello "},
        {},
        {"text": "Hello"},
    ]
    assert messages[-1].json == ChatResponseSchema().dump(turn_envelope(COMPLETED))
    assert [message.last_id for message in messages] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.req("C9")
def test_what_was_said_before_the_end_is_told_before_it(place: Subscription) -> None:
    """Of a long text that is read in several goes, with the end in the record from the start."""
    words = [(TEXT, f"w{n} ") for n in range(9)]
    messages = told(stream(place, Turn(said(*words), [COMPLETED]).watched()))
    text = "".join(message.json["text"] for message in messages if message.name == "delta")
    assert text == "".join(word for _, word in words)
    assert names(messages)[-1] == "completed"


@pytest.mark.req("C9", "C8")
def test_text_of_a_turn_that_escalated_is_void_and_the_fixed_text_stands(
    place: Subscription,
) -> None:
    messages = told(stream(place, Turn(said((TEXT, "It is 4")), [ESCALATED]).watched()))
    assert names(messages) == ["started", "delta", "restart", "completed"]
    data = messages[-1].json["data"]
    assert (data["status"], data["metadata"]["escalated"]) == ("escalated", True)
    assert data["content"] == escalation_text(REQUEST_ID, ESCALATED.delivery)


@pytest.mark.req("C9", "C3")
def test_a_failure_that_does_not_escalate_is_told_on_completed(place: Subscription) -> None:
    failed = request_view(
        status=RequestStatus.FAILED, error_kind=ErrorKind.AUTH, error_message="no key"
    )
    messages = told(stream(place, Turn([], [failed]).watched()))
    assert names(messages) == ["started", "completed"]
    data = messages[-1].json["data"]
    assert (data["status"], data["error"]) == ("failed", {"kind": "auth", "message": "no key"})
    assert data["metadata"]["escalated"] is False


@pytest.mark.req("C9")
@pytest.mark.case("SSE-09")
@pytest.mark.parametrize(
    "text", ["a\r\nevent: completed\ndata: {}\n\n", "\r", "\u2028", "id: 9\n", "\x00", "🦆", ""]
)
def test_no_text_becomes_an_event(place: Subscription, text: str) -> None:
    ended = request_view(status=RequestStatus.COMPLETED, result=text)
    frames = list(stream(place, Turn(said((TEXT, text)), [ended]).watched()))
    messages = told(frames)
    assert names(messages) == ["started", "delta", "completed"]
    assert messages[1].json == {"text": text}
    assert messages[2].json["data"]["content"] == text
    assert all(frame.isascii() for frame in frames)


@pytest.mark.req("C9")
def test_while_redis_is_away_the_stream_waits(place: Subscription) -> None:
    away = StoreUnavailableError("Redis is away")
    turn = Turn([away, *said((TEXT, "Hello world"))], [away, COMPLETED])
    messages = told(stream(place, turn.watched()))
    assert names(messages) == ["started", "delta", "completed"]


def until_first_event(frames: Iterator[bytes], then: Callable[[], Any]) -> list[Message]:
    """What comes after the first event, where `then` happens."""
    assert names(told([next(frames)])) == ["started"]
    then()
    return told(frames)


@pytest.mark.req("C9")
def test_a_client_that_leaves_ends_the_stream_and_gives_its_place_back(
    fanout: Fanout, place: Subscription
) -> None:
    turn = Turn([], [request_view()])
    frames = stream(place, turn.watched())
    assert until_first_event(frames, lambda: setattr(turn, "is_gone", True)) == []
    assert fanout.clients == 0


@pytest.mark.req("C9")
def test_a_process_that_stops_ends_the_stream_without_completed(
    fanout: Fanout, place: Subscription
) -> None:
    frames = stream(place, Turn([], [request_view()]).watched())
    assert until_first_event(frames, fanout.close) == []


def test_a_request_whose_record_is_gone_ends_the_stream(place: Subscription) -> None:
    assert names(told(stream(place, Turn([], [None]).watched()))) == ["started"]


@pytest.mark.req("C9")
def test_a_quiet_turn_sends_comments_and_is_looked_at_each_second(place: Subscription) -> None:
    turn = Turn([], [request_view(), COMPLETED])
    frames = list(stream(place, turn.watched(), comment_every_s=0.3))
    assert 2 <= frames.count(COMMENT) <= 4
    assert turn.looks == 2
    assert names(told(frames)) == ["started", "completed"]


@pytest.mark.req("C9")
def test_while_a_turn_goes_on_its_record_which_may_be_large_is_not_read(
    place: Subscription,
) -> None:
    turn = Turn([], [request_view(), request_view(), COMPLETED])
    assert names(told(stream(place, turn.watched()))) == ["started", "completed"]
    assert (turn.looks, turn.reads) == (3, 1)
