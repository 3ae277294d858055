"""Does a generation make the calls that it should, and end with both of them on its bill?

Over real HTTP.
"""

from __future__ import annotations

import json

import pytest

from jobs.domain.billing import Bill
from jobs.domain.entities import Usage
from jobs.domain.errors import ErrorKind
from jobs.domain.generation import HARD_LIMIT_S
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Failed, Generated
from jobs.worker.handlers.generation import GenerationHandler
from tests.support.generations import (
    COST,
    attempt_of,
    bill_of,
    calls_of,
    ended,
    fields_said,
    handler_of,
    registry_of,
    said,
)
from tests.support.openai_server import OpenAIServer, answer, completion


@pytest.mark.req("B12", "B13", "B14", "B17")
def test_a_generation_is_two_calls_and_both_are_billed(
    server: OpenAIServer, handler: GenerationHandler
) -> None:
    server.answer_next(said("Dear Ada –"), fields_said(subject="Hi", body=None, admin="x"))

    outcome = handler(attempt_of())

    assert isinstance(outcome, Generated)
    assert outcome.envelope == '{"text":"Dear Ada –","fields":{"subject":"Hi","body":""}}'
    assert calls_of(outcome) == [(1, "", COST), (2, "", COST)]
    first, second = outcome.bill.calls
    assert (first.model, second.model, first.provider) == ("writer", "extractor", "main")
    assert (first.provider_request_id or "").startswith("chatcmpl-")
    assert first.usage == Usage(7, 3)
    assert first.held_usd_micros > COST
    assert second.held_usd_micros > first.held_usd_micros
    assert handler.budget_s == HARD_LIMIT_S


@pytest.mark.req("B17")
@pytest.mark.parametrize("answered", [90_000_000, 2**40])
def test_a_usage_that_no_call_can_have_is_not_believed(
    server: OpenAIServer, handler: GenerationHandler, answered: int
) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": answered}
    server.answer_next(answer(completion("Dear Ada.", usage=usage)))

    outcome = handler(attempt_of(fields={}))

    assert isinstance(outcome, Generated)
    (call,) = outcome.bill.calls
    assert call.cost_usd_micros is None
    assert outcome.bill.unsettled_usd_micros == call.held_usd_micros > 0


@pytest.mark.req("B12", "B13")
def test_each_pass_asks_for_what_it_may(server: OpenAIServer, handler: GenerationHandler) -> None:
    server.answer_next(said("Dear Ada."), fields_said(subject="Hi", body=None))

    handler(attempt_of("Write about Ada."))

    first, second = [request.json for request in server.requests]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][1]["content"] == "Write about Ada."
    assert (first["model"], first["max_tokens"]) == ("writer", 1024)
    assert "response_format" not in first
    assert "reasoning_effort" not in first  # this model takes none
    assert (second["model"], second["max_completion_tokens"]) == ("extractor", 4096)
    assert second["reasoning_effort"] == "minimal"
    schema = second["response_format"]["json_schema"]
    assert (schema["name"], schema["strict"]) == ("output_fields", True)
    assert schema["schema"]["required"] == ["subject", "body"]


@pytest.mark.req("B13")
@pytest.mark.parametrize(
    ("efforts", "sent"), [(["low", "high"], "low"), (["high"], None), ([], None)]
)
def test_the_second_pass_reasons_as_little_as_its_model_takes(
    server: OpenAIServer, efforts: list[str], sent: str | None
) -> None:
    handler = handler_of(registry_of(server.base_url, supports={"reasoning_efforts": efforts}))
    server.answer_next(said("Dear Ada."), fields_said(subject="Hi", body=None))

    handler(attempt_of())

    assert server.requests[1].json.get("reasoning_effort") == sent


@pytest.mark.req("B12")
def test_the_first_pass_leaves_its_tokens_to_the_text(
    server: OpenAIServer, handler: GenerationHandler
) -> None:
    server.answer_next(said("Dear Ada."))

    handler(attempt_of(fields={}, target="main:extractor"))

    (first,) = [request.json for request in server.requests]
    assert (first["reasoning_effort"], first["max_completion_tokens"]) == ("minimal", 1024)


@pytest.mark.req("B13")
def test_without_fields_there_is_one_call_and_no_need_of_the_other_model(
    server: OpenAIServer,
) -> None:
    handler = handler_of(registry_of(server.base_url), extraction_model="gone")

    outcome = handler(attempt_of(fields={}))

    assert isinstance(outcome, Generated)
    assert outcome.envelope == '{"text":"Hello.","fields":{}}'
    assert len(server.requests) == 1


@pytest.mark.req("B16")
@pytest.mark.case("SEC-07")
def test_the_second_pass_never_sees_the_prompt_or_whose_it_is(
    server: OpenAIServer, handler: GenerationHandler
) -> None:
    canaries = ["canaryprompt", "canaryemail@example.com", "canaryplan"]
    server.answer_next(said("A text."), said("no json"), fields_said(subject="a", body="b"))

    outcome = handler(attempt_of(f"Write to {' '.join(canaries)}"))

    assert isinstance(outcome, Generated)
    assert len(server.requests) == 3
    assert all(word in server.requests[0].body.decode() for word in canaries)
    for request in server.requests[1:]:
        sent = request.body.decode() + repr(request.headers)
        for secret in (*canaries, "Write to", "run-77", "team-9", "acme", "gen-1", "prompt-1"):
            assert secret not in sent


@pytest.mark.req("B13", "B15")
@pytest.mark.case("LLM-13")
def test_an_answer_in_one_fence_is_read(server: OpenAIServer, handler: GenerationHandler) -> None:
    server.answer_next(said("Dear Ada."), said('```json\n{"subject": "Hi", "body": null}\n```'))

    outcome = handler(attempt_of())

    assert isinstance(outcome, Generated)
    assert json.loads(outcome.envelope)["fields"] == {"subject": "Hi", "body": ""}


@pytest.mark.req("B19")
@pytest.mark.parametrize(
    ("target", "extraction_model", "kind", "words"),
    [
        ("main:gone", "extractor", ErrorKind.PROVIDER_4XX, "'gone'"),
        ("main:writer", "gone", ErrorKind.PROVIDER_4XX, "'gone'"),
        ("main:unpriced", "extractor", ErrorKind.PROVIDER_4XX, "no price"),
        ("main:writer", "unpriced", ErrorKind.PROVIDER_4XX, "no price"),
        ("keyed:keyed", "extractor", ErrorKind.AUTH, "SOME_API_KEY"),
        ("main:writer", "keyed", ErrorKind.AUTH, "SOME_API_KEY"),
    ],
)
def test_a_model_that_can_not_be_used_ends_it_before_anything_is_paid(
    server: OpenAIServer, target: str, extraction_model: str, kind: ErrorKind, words: str
) -> None:
    handler = handler_of(registry_of(server.base_url), extraction_model)

    outcome = handler(attempt_of(target=target))

    assert ended(outcome) == (GenerationCode.GATEWAY_UNAVAILABLE, kind)
    assert isinstance(outcome, Failed)
    assert words in outcome.message
    assert bill_of(outcome) == Bill()
    assert server.requests == []
