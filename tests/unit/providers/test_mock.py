import json
import threading
import time

import pytest

from jobs.domain.abort import AbortScope, entered
from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptAbortedError, AttemptError, ErrorKind, Fault
from jobs.providers.base import Call, Completion, Message
from jobs.providers.mock import MockProvider


def ask(text: str, provider: MockProvider | None = None) -> Completion:
    return (provider or MockProvider("mock")).complete(Call("mock-1", (Message("user", text),)))


@pytest.mark.req("X6")
def test_the_same_prompt_gets_the_same_obviously_fake_text() -> None:
    first, again, other = ask("Why is the sky blue?"), ask("Why is the sky blue?"), ask("Why?")

    assert first.text == again.text != other.text
    assert first.text.startswith("This is mock text")
    assert "sky" not in first.text


@pytest.mark.req("A15")
def test_every_call_has_a_request_id_of_its_own() -> None:
    assert len({ask("same").provider_request_id for _ in range(100)}) == 100


@pytest.mark.req("A19")
def test_usage_counts_words() -> None:
    answer = ask("three short words")

    assert answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == len(answer.text.split())


@pytest.mark.req("A9")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_any_kind_of_failure_can_be_asked_for(kind: ErrorKind) -> None:
    with pytest.raises(AttemptError) as caught:
        ask(f"please [[mock error={kind} retry_after=3]]")

    assert caught.value.kind is kind
    assert caught.value.retry_after_s == 3.0


@pytest.mark.req("B6")
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.REFUSED, ErrorKind.PROVIDER_4XX),
        (Fault.CUT_OFF, ErrorKind.PARSE),
        (Fault.MALFORMED, ErrorKind.PARSE),
    ],
)
def test_an_answer_of_no_use_can_be_asked_for_and_costs_what_an_answer_does(
    fault: Fault, kind: ErrorKind
) -> None:
    with pytest.raises(AttemptError) as caught:
        ask(f"two words [[mock fault={fault}]]")

    assert (caught.value.kind, caught.value.fault) == (kind, fault)
    assert caught.value.usage == Usage(4, ask("a b c d").usage.completion_tokens)


def test_an_answer_of_no_use_can_be_asked_for_a_number_of_times() -> None:
    provider = MockProvider("mock")
    script = "[[mock fault=refused times=1]]"
    with pytest.raises(AttemptError):
        ask(script, provider)

    assert ask(script, provider).text


def test_an_error_goes_before_a_fault() -> None:
    with pytest.raises(AttemptError) as caught:
        ask("[[mock fault=refused error=auth]]")

    assert (caught.value.kind, caught.value.fault) == (ErrorKind.AUTH, Fault.NONE)


def test_a_failure_can_be_asked_for_a_number_of_times_per_prompt() -> None:
    provider = MockProvider("mock")
    script = "[[mock error=provider_5xx times=2]]"
    for _ in range(2):
        with pytest.raises(AttemptError):
            ask(script, provider)

    assert ask(script, provider).text
    with pytest.raises(AttemptError):
        ask("another prompt " + script, provider)


def test_a_delay_is_waited_for() -> None:
    started = time.monotonic()
    ask("[[mock delay=0.05]]")

    assert time.monotonic() - started >= 0.05


@pytest.mark.req("A11")
@pytest.mark.parametrize("script", ["[[mock hang]]", "[[mock delay=60]]"])
def test_the_deadline_ends_a_wait(script: str) -> None:
    with entered(AbortScope(0.05)), pytest.raises(AttemptError) as caught:
        ask(script)

    assert caught.value.kind is ErrorKind.TIMEOUT


@pytest.mark.req("A17")
def test_an_abort_ends_a_hanging_call() -> None:
    scope = AbortScope(60.0)
    threading.Timer(0.05, scope.abort, ["cancelled"]).start()

    with entered(scope), pytest.raises(AttemptAbortedError, match="cancelled"):
        ask("[[mock hang]]")


@pytest.mark.parametrize(
    "word",
    [
        "dleay=1",
        "delay=",
        "delay=-1",
        "delay=nan",
        "error=bad",
        "fault=",
        "fault=overloaded",
        "times=x",
        "hang=1",
    ],
)
def test_a_directive_that_is_none_is_named(word: str) -> None:
    with pytest.raises(AttemptError) as caught:
        ask(f"[[mock {word}]]")

    assert caught.value.kind is ErrorKind.PROVIDER_4XX
    assert word in caught.value.message


def test_a_schema_is_answered_by_its_properties() -> None:
    schema = {"name": "out", "schema": {"properties": {"subject": {}, "body": {}}}}
    call = Call("mock-1", (Message("user", "hi"),), json_schema=schema)

    fields = json.loads(MockProvider("mock").complete(call).text)

    assert set(fields) == {"subject", "body"}
    assert all(value.startswith("mock ") for value in fields.values())


def test_a_prompt_that_can_not_be_encoded_is_answered_too() -> None:
    assert ask("\ud83d").text
