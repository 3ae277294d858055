"""Does a generation end in the right value, and with the right bill, whatever a provider does?

Over real HTTP.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.billing import Bill
from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Abandoned, Cooldown, Failed, Generated, Outcome, Snooze
from jobs.providers.transport import ANSWER_MAX_BYTES
from jobs.worker.attempt import SHUTDOWN
from jobs.worker.handlers.generation import GenerationHandler
from tests.support.generations import (
    COST,
    LARGE,
    WHOLE,
    attempt_of,
    bill_of,
    calls_of,
    ended,
    fields_said,
    handler_of,
    registry_of,
    said,
)
from tests.support.openai_server import (
    Fault,
    OpenAIServer,
    Reply,
    answer,
    completion,
    fault,
    html,
    status,
)

FLAWS = [
    (said(None, refusal="no"), GenerationCode.MODEL_REFUSED, "refused", COST),
    (said("a", finish_reason="content_filter"), GenerationCode.MODEL_REFUSED, "refused", COST),
    (said(WHOLE, finish_reason="length"), GenerationCode.OUTPUT_TOO_LARGE, "cut_off", COST),
    (said(""), GenerationCode.MALFORMED_OUTPUT, "malformed", COST),
    (said(WHOLE, finish_reason=None), GenerationCode.MALFORMED_OUTPUT, "malformed", COST),
    (html(200), GenerationCode.MALFORMED_OUTPUT, "malformed", None),
    (answer(b"null"), GenerationCode.MALFORMED_OUTPUT, "malformed", None),
    (
        said("a", finish_reason="length", usage={}),
        GenerationCode.OUTPUT_TOO_LARGE,
        "cut_off",
        None,
    ),
    (
        answer(completion(), headers=(("Content-Encoding", "gzip"),)),
        GenerationCode.MALFORMED_OUTPUT,
        "malformed",
        None,
    ),
]
OF_PASS_1 = [(1, *flaw) for flaw in FLAWS]
OF_PASS_1.append((1, said(LARGE), GenerationCode.OUTPUT_TOO_LARGE, "too_large", COST))
OF_PASS_2 = [(2, *flaw) for flaw in FLAWS]
OF_PASS_2 += [
    (2, fields_said(subject=LARGE, body=""), GenerationCode.OUTPUT_TOO_LARGE, "too_large", COST),
    (2, fields_said(subject="a"), GenerationCode.MALFORMED_OUTPUT, "malformed", COST),
    (2, fields_said(subject="a", body=7), GenerationCode.MALFORMED_OUTPUT, "malformed", COST),
    (2, said(f"{WHOLE} {WHOLE}"), GenerationCode.MALFORMED_OUTPUT, "malformed", COST),
]


@pytest.mark.req("B15", "B17")
@pytest.mark.case("LLM-07", "LLM-09", "LLM-13")
@pytest.mark.parametrize(("number", "reply", "code", "word", "cost"), [*OF_PASS_1, *OF_PASS_2])
def test_what_a_model_gets_wrong_it_may_repeat_once_and_pays_for_each_time(
    server: OpenAIServer,
    handler: GenerationHandler,
    number: int,
    reply: Reply,
    code: GenerationCode,
    word: str,
    cost: int | None,
) -> None:
    before = [said("Dear Ada.")] if number == 2 else []
    wrong = (number, word, cost)
    fine = [(1, "", COST)] if number == 2 else []

    server.answer_next(*before, reply, reply)
    outcome = handler(attempt_of())

    assert ended(outcome)[0] is code
    assert calls_of(outcome) == [*fine, wrong, wrong]
    assert isinstance(outcome, Failed)
    assert outcome.cooldown is None

    server.answer_next(*before, reply, *([said("Dear Ada.")] if number == 1 else []))
    server.answer_model("extractor", said(WHOLE))
    outcome = handler(attempt_of())

    assert isinstance(outcome, Generated)
    assert calls_of(outcome) == [
        *fine,
        wrong,
        *([(1, "", COST)] if number == 1 else []),
        (2, "", COST),
    ]


@pytest.mark.req("B15")
@pytest.mark.parametrize(
    ("replies", "says_so"),
    [
        ([said(LARGE)], {1}),
        ([said("a", finish_reason="length")], {1}),
        ([said("a"), fields_said(subject=LARGE, body="")], {2}),
        ([said(None, refusal="no")], set()),
        ([said("a"), said("no json")], set()),
    ],
)
def test_only_after_an_answer_that_was_too_large_the_rules_ask_for_less(
    server: OpenAIServer, handler: GenerationHandler, replies: list[Reply], says_so: set[int]
) -> None:
    server.answer_next(*replies)

    handler(attempt_of())

    hinted = {
        position
        for position, request in enumerate(server.requests)
        if "too long" in request.json["messages"][0]["content"]
    }
    assert hinted == says_so


@pytest.mark.req("B15", "B17")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("reply", "kind", "word", "cost", "cooldown_ms"),
    [
        (status(500), ErrorKind.PROVIDER_5XX, "provider_5xx", 0, None),
        (html(502), ErrorKind.PROVIDER_5XX, "provider_5xx", 0, None),
        (status(400), ErrorKind.PROVIDER_4XX, "provider_4xx", 0, None),
        (status(401), ErrorKind.AUTH, "auth", 0, None),
        (
            status(429, headers=(("Retry-After", "7"),)),
            ErrorKind.RATE_LIMIT,
            "rate_limit",
            0,
            7_000,
        ),
        (
            status(503, headers=(("Retry-After", "9"),)),
            ErrorKind.PROVIDER_5XX,
            "overloaded",
            0,
            9_000,
        ),
        (fault(Fault.CLOSE_MID_BODY), ErrorKind.PROVIDER_5XX, "no_answer", None, None),
        (fault(Fault.RESET_MID_BODY), ErrorKind.PROVIDER_5XX, "no_answer", None, None),
        (fault(Fault.CLOSE_AT_ONCE), ErrorKind.PROVIDER_5XX, "no_answer", None, None),
    ],
)
def test_what_lies_between_is_not_repeated_and_cools_down_the_model_that_asked_for_it(
    server: OpenAIServer,
    handler: GenerationHandler,
    number: int,
    reply: Reply,
    kind: ErrorKind,
    word: str,
    cost: int | None,
    cooldown_ms: int | None,
) -> None:
    server.answer_next(*([said("Dear Ada.")] if number == 2 else []), reply)

    outcome = handler(attempt_of())

    assert ended(outcome) == (GenerationCode.GATEWAY_UNAVAILABLE, kind)
    assert calls_of(outcome)[-1] == (number, word, cost)
    assert len(server.requests) == number
    bill = bill_of(outcome)
    assert bill.unsettled_usd_micros == (bill.calls[-1].held_usd_micros if cost is None else 0)
    target = "main:writer" if number == 1 else "main:extractor"
    assert isinstance(outcome, Failed)
    assert outcome.cooldown == (None if cooldown_ms is None else Cooldown(target, cooldown_ms))


@pytest.mark.req("B15", "B17")
def test_an_answer_without_end_is_malformed_and_repeated(
    server: OpenAIServer, handler: GenerationHandler
) -> None:
    server.answer_next(said("x" * ANSWER_MAX_BYTES))

    outcome = handler(attempt_of(fields={}))

    assert isinstance(outcome, Generated)
    assert calls_of(outcome) == [(1, "malformed", None), (1, "", COST)]


@pytest.mark.req("B17")
def test_a_provider_that_is_not_there_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_again:
        port = closed_again.getsockname()[1]

    outcome = handler_of(registry_of(f"http://127.0.0.1:{port}/v1"))(attempt_of())

    assert ended(outcome) == (GenerationCode.GATEWAY_UNAVAILABLE, ErrorKind.PROVIDER_5XX)
    assert calls_of(outcome) == [(1, "no_answer", 0)]


@pytest.mark.req("B11", "B17", "B19")
@pytest.mark.parametrize("kind", [Fault.HANG, Fault.TRICKLE_BODY, Fault.TRICKLE_HEADER])
@pytest.mark.parametrize("number", [1, 2])
def test_the_hard_limit_ends_a_call_whose_price_then_nobody_knows(
    server: OpenAIServer, handler: GenerationHandler, kind: Fault, number: int
) -> None:
    stuck = fault(kind, trickle_every_s=0.05)
    server.answer_next(*([said("Dear Ada.")] if number == 2 else []), stuck)

    with entered(AbortScope(0.5)):
        outcome = handler(attempt_of())

    assert ended(outcome) == (GenerationCode.DEADLINE_EXCEEDED, ErrorKind.TIMEOUT)
    assert calls_of(outcome)[-1] == (number, "no_answer", None)
    bill = bill_of(outcome)
    assert bill.unsettled_usd_micros == bill.calls[-1].held_usd_micros > 0
    assert bill.spent_usd_micros == (COST if number == 2 else 0)


@pytest.mark.req("B19")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [(SHUTDOWN, Snooze(SHUTDOWN, 0)), ("cancelled", Abandoned("cancelled"))],
)
def test_an_abort_keeps_the_bill_with_the_call_that_was_on_the_wire(
    server: OpenAIServer, handler: GenerationHandler, reason: str, expected: Snooze | Abandoned
) -> None:
    server.answer_next(said("Dear Ada."), fault(Fault.HANG))
    scope = AbortScope(60.0)

    def run() -> Outcome:
        with entered(scope):
            return handler(attempt_of())

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        assert all(server.arrivals.acquire(timeout=10) for _ in range(2))
        scope.abort(reason)
        outcome = running.result(timeout=10)

    assert isinstance(outcome, type(expected))
    assert outcome.reason == reason
    assert calls_of(outcome) == [(1, "", COST), (2, "aborted", None)]


@pytest.mark.req("B17", "B19")
def test_a_scope_that_is_over_calls_nobody_and_bills_nothing(
    server: OpenAIServer, handler: GenerationHandler
) -> None:
    aborted = AbortScope(60.0)
    aborted.abort("cancelled")
    with entered(aborted):
        assert handler(attempt_of()) == Abandoned("cancelled", Bill())
    with entered(AbortScope(0.0)):
        late = handler(attempt_of())

    assert ended(late)[0] is GenerationCode.DEADLINE_EXCEEDED
    assert bill_of(late) == Bill()
    assert server.requests == []
