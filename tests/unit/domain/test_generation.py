"""Which call comes next, what is the result, and what may it cost?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.generation import (
    ENVELOPE_MAX_BYTES,
    WALL_CLOCK_S,
    Flaw,
    Pass,
    Plan,
    envelope,
    extraction_call_usd_micros,
    fits,
    reservation_usd_micros,
    text_call_usd_micros,
)
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.generation_prompts import compact_json, extraction_prompt, text_prompt
from jobs.domain.models import ModelSpec

FIELDS = {"subject": "A short subject line.", "body": "One sentence."}
ANSWER = '{"subject": "Hi", "body": null}'
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
NAME = st.from_regex(r"[a-zéж件]{1,20}", fullmatch=True)
REFUSED = AttemptError(ErrorKind.PROVIDER_4XX, "refused: no", fault=Fault.REFUSED)
CUT_OFF = AttemptError(ErrorKind.PARSE, "cut off", fault=Fault.CUT_OFF)
MALFORMED = AttemptError(ErrorKind.PARSE, "malformed", fault=Fault.MALFORMED)
SPEC = ModelSpec("m", "p", "m", 250_000, 2_000_000)
CHEAP = ModelSpec("x", "p", "x", 10_000, 20_000)


def at_pass_2() -> Plan:
    return Plan(FIELDS).after_answer("Hello.", 0)


def code_of(plan: Plan) -> GenerationCode | None:
    assert plan.next is Pass.NONE
    return plan.failure.code if plan.failure else None


@pytest.mark.req("B13")
def test_without_fields_the_text_is_the_result_and_there_is_no_second_pass() -> None:
    plan = Plan({}).after_answer('He said "hi" –\nbye', 0)

    assert plan.next is Pass.NONE
    assert plan.envelope == '{"text":"He said \\"hi\\" –\\nbye","fields":{}}'


@pytest.mark.req("B13", "B14")
def test_with_fields_the_second_pass_fills_them_in_the_declared_order() -> None:
    plan = at_pass_2()
    assert (plan.next, plan.text) == (Pass.EXTRACTION, "Hello.")

    plan = plan.after_answer('{"body": null, "subject": "Hi", "admin": "x"}', 0)

    assert plan.envelope == '{"text":"Hello.","fields":{"subject":"Hi","body":""}}'
    assert code_of(plan) is None


@pytest.mark.req("B14")
@given(ANY_TEXT, st.dictionaries(NAME, ANY_TEXT))
def test_an_envelope_is_compact_utf_8_with_text_first(text: str, fields: dict[str, str]) -> None:
    result = envelope("é" + text, fields)

    result.encode()
    assert result.startswith('{"text":"é')
    assert list(json.loads(result)) == ["text", "fields"]
    assert list(json.loads(result)["fields"]) == list(fields)
    assert result == compact_json(json.loads(result))


@pytest.mark.req("B14")
@pytest.mark.parametrize("char", ["a", "é", "件", "😀", '"', "\n", "\x01"])
def test_the_budget_is_4096_bytes_of_the_encoded_envelope(char: str) -> None:
    empty, step = len(envelope("", {}).encode()), len(envelope(char, {}).encode())
    count, rest = divmod(ENVELOPE_MAX_BYTES - empty, step - empty)

    assert fits(envelope(char * count + "a" * rest, {}))
    assert not fits(envelope(char * count + "a" * (rest + 1), {}))


@pytest.mark.req("B15")
@pytest.mark.parametrize(
    ("error", "flaw", "code"),
    [
        (REFUSED, Flaw.REFUSED, GenerationCode.MODEL_REFUSED),
        (CUT_OFF, Flaw.TOO_LARGE, GenerationCode.OUTPUT_TOO_LARGE),
        (MALFORMED, Flaw.MALFORMED, GenerationCode.MALFORMED_OUTPUT),
    ],
)
@pytest.mark.parametrize("number", [Pass.TEXT, Pass.EXTRACTION])
def test_what_a_model_may_do_better_is_asked_of_the_same_pass_once_more(
    error: AttemptError, flaw: Flaw, code: GenerationCode, number: Pass
) -> None:
    plan = Plan(FIELDS) if number is Pass.TEXT else at_pass_2()

    again = plan.after_failure(error, 0)
    ended = again.after_failure(error, 0)

    assert (again.next, again.flaw, again.is_retried) == (number, flaw, True)
    assert again.asks_for_less is (flaw is Flaw.TOO_LARGE)
    assert (code_of(ended), ended.flaw) == (code, flaw)
    assert ended.failure is not None
    assert ended.failure.kind is error.kind
    assert ended.failure.message == f"pass {int(number)}: {error.message}"


@pytest.mark.req("B15")
@pytest.mark.parametrize("second", [REFUSED, CUT_OFF, MALFORMED])
def test_the_one_retry_is_one_over_both_passes(second: AttemptError) -> None:
    plan = Plan(FIELDS).after_failure(MALFORMED, 0).after_answer("Hello.", 0)
    assert (plan.next, plan.flaw, plan.asks_for_less) == (Pass.EXTRACTION, None, False)

    assert code_of(plan.after_failure(second, 0)) is not None
    assert code_of(plan.after_answer("no json", 0)) is GenerationCode.MALFORMED_OUTPUT
    assert code_of(plan.after_answer(ANSWER, 0)) is None


@pytest.mark.req("B15")
def test_an_answer_that_can_not_be_read_repeats_pass_2_with_the_same_text() -> None:
    plan = at_pass_2().after_answer("no json", 0)

    assert (plan.next, plan.text, plan.flaw) == (Pass.EXTRACTION, "Hello.", Flaw.MALFORMED)
    assert plan.after_answer(ANSWER, 0).envelope == (
        '{"text":"Hello.","fields":{"subject":"Hi","body":""}}'
    )


@pytest.mark.req("B14", "B15")
def test_a_text_over_the_budget_repeats_pass_1() -> None:
    plan = Plan(FIELDS).after_answer("x" * ENVELOPE_MAX_BYTES, 0)

    assert (plan.next, plan.asks_for_less) == (Pass.TEXT, True)
    again = plan.after_answer("x" * ENVELOPE_MAX_BYTES, 0)
    assert code_of(again) is GenerationCode.OUTPUT_TOO_LARGE


@pytest.mark.req("B14", "B15")
def test_a_text_that_leaves_no_room_for_empty_fields_is_not_worth_a_second_pass() -> None:
    longest = ENVELOPE_MAX_BYTES - len(envelope("", {}))
    assert Plan({}).after_answer("x" * longest, 0).failure is None

    assert Plan(FIELDS).after_answer("x" * longest, 0).next is Pass.TEXT


@pytest.mark.req("B14", "B15")
def test_fields_over_the_budget_repeat_pass_2() -> None:
    large = json.dumps({"subject": "x" * ENVELOPE_MAX_BYTES, "body": ""})

    plan = at_pass_2().after_answer(large, 0)

    assert (plan.next, plan.asks_for_less, plan.text) == (Pass.EXTRACTION, True, "Hello.")
    assert code_of(plan.after_answer(large, 0)) is GenerationCode.OUTPUT_TOO_LARGE


@pytest.mark.req("B15", "B11")
@pytest.mark.parametrize("kind", list(ErrorKind))
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.OVERLOADED, Fault.NO_ANSWER])
def test_a_failure_between_us_and_the_model_is_never_repeated(
    kind: ErrorKind, fault: Fault
) -> None:
    error = AttemptError(kind, "it failed", 3.0, fault=fault)
    late = GenerationCode.DEADLINE_EXCEEDED
    code = late if kind is ErrorKind.TIMEOUT else GenerationCode.GATEWAY_UNAVAILABLE

    for plan in (Plan(FIELDS), at_pass_2()):
        ended = plan.after_failure(error, 0)
        assert code_of(ended) is code
        assert ended.failure is not None
        assert ended.failure.kind is kind


@pytest.mark.req("B11")
@pytest.mark.parametrize(
    ("elapsed_s", "goes_on"), [(0, True), (WALL_CLOCK_S - 0.01, True), (WALL_CLOCK_S, False)]
)
def test_no_call_begins_after_60_seconds(elapsed_s: float, goes_on: bool) -> None:
    plans = [
        Plan(FIELDS).after_answer("Hello.", elapsed_s),
        Plan(FIELDS).after_answer("x" * 5000, elapsed_s),
        Plan(FIELDS).after_failure(REFUSED, elapsed_s),
        at_pass_2().after_answer("no json", elapsed_s),
        at_pass_2().after_failure(CUT_OFF, elapsed_s),
    ]
    for plan in plans:
        if goes_on:
            assert plan.next is not Pass.NONE
        else:
            assert code_of(plan) is GenerationCode.DEADLINE_EXCEEDED


@pytest.mark.req("B11")
def test_an_answer_that_is_late_but_whole_is_a_result() -> None:
    assert code_of(Plan({}).after_answer("Hello.", 80)) is None
    assert code_of(at_pass_2().after_answer(ANSWER, 80)) is None


@pytest.mark.case("LLM-11")
@given(ANY_TEXT, ANY_TEXT)
def test_whatever_models_write_the_envelope_can_be_stored(text: str, value: str) -> None:
    plan = Plan(FIELDS).after_answer(text, 0)
    plan = plan.after_answer(json.dumps({"subject": value, "body": value}), 0)

    if plan.envelope:
        plan.envelope.encode()
        assert "\x00" not in json.loads(plan.envelope)["text"]


@pytest.mark.req("B15")
@given(st.lists(st.sampled_from(["Hello.", ANSWER, "x" * 5000, REFUSED, CUT_OFF, MALFORMED])))
def test_three_calls_are_the_most_that_a_generation_makes(
    events: list[str | AttemptError],
) -> None:
    plan, calls = Plan(FIELDS), 0
    for event in events:
        if plan.next is Pass.NONE:
            break
        calls += 1
        if isinstance(event, AttemptError):
            plan = plan.after_failure(event, 0)
        else:
            plan = plan.after_answer(event, 0)
    assert calls <= 3
    assert len(events) < 3 or plan.next is Pass.NONE


@pytest.mark.req("B17")
@given(
    st.text(max_size=3000),
    st.text(max_size=1000),
    st.dictionaries(NAME, st.text(), max_size=8),
)
def test_a_reservation_covers_both_passes_and_the_retry_of_either(
    prompt: str, text: str, fields: dict[str, str]
) -> None:
    asked = extraction_prompt(text, fields, lambda: "0123456789abcdef", is_shorter=True)
    first = text_call_usd_micros(SPEC, text_prompt(prompt, is_shorter=True))
    for extraction_spec in (SPEC, CHEAP):
        second = extraction_call_usd_micros(extraction_spec, asked, fields) if fields else 0

        reserved = reservation_usd_micros(SPEC, extraction_spec, prompt, fields)

        assert reserved >= first + second + max(first, second)


@pytest.mark.req("B17")
def test_a_reservation_of_one_pass_is_its_call_twice() -> None:
    first = text_call_usd_micros(SPEC, text_prompt("Hello.", is_shorter=True))

    assert first > 1024 * 2
    assert reservation_usd_micros(SPEC, None, "Hello.", {}) == 2 * first
    assert reservation_usd_micros(SPEC, SPEC, "Hello.", {}) == 2 * first


@pytest.mark.req("B17")
def test_only_what_is_free_reserves_nothing() -> None:
    free = ModelSpec("m", "mock", "m", 0, 0)

    assert reservation_usd_micros(free, free, "Hello.", FIELDS) == 0
    assert reservation_usd_micros(free, CHEAP, "Hello.", FIELDS) > 0
    assert reservation_usd_micros(CHEAP, free, "", {}) > 0
