"""Does a generation keep its time and its bounds where the model is scripted, or hostile?"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Failed, Generated
from jobs.providers.base import Call
from tests.support.generations import (
    COST,
    LARGE,
    WHOLE,
    attempt_of,
    bill_of,
    calls_of,
    ended,
    scripted,
)
from tests.support.injections import INJECTIONS


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.req("B11")
@pytest.mark.parametrize(("first_s", "is_in_time"), [(59.9, True), (60.0, False)])
def test_the_second_pass_begins_within_60_seconds_or_not_at_all(
    first_s: float, is_in_time: bool
) -> None:
    clock = Clock()

    def complete(call: Call) -> str:
        clock.now_s += first_s if call.json_schema is None else 20.0
        return "Dear Ada." if call.json_schema is None else WHOLE

    outcome = scripted(complete, clock=clock)(attempt_of())

    if is_in_time:
        assert isinstance(outcome, Generated)
        assert [call.latency_ms for call in outcome.bill.calls] == [59_900, 20_000]
    else:
        assert ended(outcome) == (GenerationCode.DEADLINE_EXCEEDED, ErrorKind.TIMEOUT)
        assert calls_of(outcome) == [(1, "", COST)]


@pytest.mark.req("B11", "B15")
def test_a_retry_does_not_begin_after_60_seconds_either() -> None:
    clock = Clock()

    def complete(_call: Call) -> str:
        clock.now_s += 60.0
        return LARGE

    outcome = scripted(complete, clock=clock)(attempt_of())

    assert ended(outcome)[0] is GenerationCode.DEADLINE_EXCEEDED
    assert calls_of(outcome) == [(1, "too_large", COST)]


@pytest.mark.req("B19")
def test_a_surprise_ends_in_a_value_that_tells_its_class_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def complete(call: Call) -> str:
        if call.json_schema is None:
            return "Dear Ada."
        raise LookupError("canary")

    with caplog.at_level(logging.ERROR):
        outcome = scripted(complete)(attempt_of())

    assert isinstance(outcome, Failed)
    assert ended(outcome) == (GenerationCode.GATEWAY_UNAVAILABLE, ErrorKind.UNKNOWN)
    assert outcome.message == "unexpected LookupError"
    assert calls_of(outcome) == [(1, "", COST), (2, "unknown", None)]
    assert [record.getMessage() for record in caplog.records] == [
        "attempt of job gen-1 raised LookupError"
    ]


@pytest.mark.req("B19")
def test_options_that_make_no_sense_end_in_a_value_too() -> None:
    outcome = scripted(lambda _call: "Hello.")(attempt_of(fields={"a": 7}))  # type: ignore[dict-item]

    assert ended(outcome) == (GenerationCode.GATEWAY_UNAVAILABLE, ErrorKind.UNKNOWN)


@pytest.mark.req("B17")
def test_a_timeout_without_a_word_of_usage_is_held_for() -> None:
    def complete(_call: Call) -> str:
        raise AttemptError(ErrorKind.TIMEOUT, "provider answered 408, an error")

    outcome = scripted(complete)(attempt_of())

    assert ended(outcome) == (GenerationCode.DEADLINE_EXCEEDED, ErrorKind.TIMEOUT)
    assert calls_of(outcome) == [(1, "timeout", None)]


def marked_text(user: str) -> str:
    """What stands between the markers; fails where anything but them looks like them."""
    _head, _fields, _blank, opening, text, closing = user.split("\n")
    code = opening.removeprefix("<<<text ")
    assert closing == f"text {code}>>>"
    assert user.count(code) == 2
    return text


def obeys_text(text: str) -> str:
    """The worst of models: what the text says is what it answers."""
    return text


def obeys_text_in_every_field(text: str) -> str:
    """A model that fills all it can with what the text says."""
    return json.dumps({"subject": text, "admin": text, "body": text, "__proto__": {"a": 1}})


@pytest.mark.req("B16")
@pytest.mark.case("SEC-07")
@pytest.mark.parametrize("obeys", [obeys_text, obeys_text_in_every_field])
@pytest.mark.parametrize("injection", INJECTIONS.values(), ids=INJECTIONS.keys())
def test_an_injection_gets_no_field_that_was_not_declared_and_closes_no_marker(
    injection: str, obeys: Callable[[str], str]
) -> None:
    systems = set()

    def complete(call: Call) -> str:
        if call.json_schema is None:
            return injection
        system, user = call.messages
        systems.add(system.content)
        return obeys(marked_text(user.content))

    outcome = scripted(complete)(attempt_of())

    assert len(systems) == 1
    if isinstance(outcome, Generated):
        fields = json.loads(outcome.envelope)["fields"]
        assert list(fields) == ["subject", "body"]
        assert all(isinstance(value, str) for value in fields.values())
    else:
        assert ended(outcome)[0] is GenerationCode.MALFORMED_OUTPUT


@pytest.mark.req("B16")
@pytest.mark.case("SEC-07")
def test_the_marker_of_every_call_is_another() -> None:
    markers = []

    def complete(call: Call) -> str:
        if call.json_schema is None:
            return "Dear Ada."
        markers.append(call.messages[1].content.split("<<<text ")[1].split("\n")[0])
        return "no json"

    scripted(complete)(attempt_of())

    assert len(set(markers)) == 2
    assert all(len(marker) == 16 for marker in markers)


@pytest.mark.req("X8")
def test_one_handler_serves_many_threads_without_mixing_their_bills() -> None:
    barrier = threading.Barrier(8)

    def complete(call: Call) -> str:
        barrier.wait(10)
        return call.messages[-1].content if call.json_schema is None else WHOLE

    handler = scripted(complete)
    prompts = [f"prompt {number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda prompt: handler(attempt_of(prompt)), prompts))

    assert [json.loads(outcome.envelope)["text"] for outcome in outcomes] == prompts
    assert {len(bill_of(outcome).calls) for outcome in outcomes} == {2}
