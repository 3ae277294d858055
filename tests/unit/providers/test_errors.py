from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.entities import Usage
from jobs.domain.errors import ErrorKind, Fault
from jobs.providers.errors import (
    MESSAGE_MAX_CHARS,
    connection_error,
    kind_of_status,
    retry_after_s,
    status_error,
    timeout_error,
    unexpected_error,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ([401, 402, 403, 407], ErrorKind.AUTH),
        ([408], ErrorKind.TIMEOUT),
        ([429], ErrorKind.RATE_LIMIT),
        ([409, 425, 500, 502, 503, 504, 520, 529, 599], ErrorKind.PROVIDER_5XX),
        ([300, 302, 307, 308, 400, 404, 405, 413, 415, 422, 451, 499], ErrorKind.PROVIDER_4XX),
    ],
)
def test_each_status_has_its_kind(statuses: list[int], kind: ErrorKind) -> None:
    assert {kind_of_status(status) for status in statuses} == {kind}


@pytest.mark.req("A9")
@pytest.mark.case("LLM-03")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "insufficient_quota"),
        (403, "billing_not_active"),
        (400, "credit_balance_too_low"),
        (402, None),
    ],
)
def test_a_quota_that_is_used_up_is_auth_and_says_so(status: int, code: str | None) -> None:
    error = status_error(status, [code], retry_after_s=20.0)

    assert error.kind is ErrorKind.AUTH
    assert "billing quota" in error.message
    assert error.retry_after_s is None


@pytest.mark.req("A9")
def test_a_message_names_status_and_codes_once() -> None:
    error = status_error(400, ["context_length_exceeded", "invalid_request_error", None, None])

    assert error.message == (
        "provider answered 400, an error (context_length_exceeded, invalid_request_error)"
    )


@pytest.mark.req("X12")
@pytest.mark.parametrize(
    "code",
    [
        "sk-proj-0123456789",
        "tell me about Zanzibar",
        "Zanzibar",
        "x" * 60,
        "a\nb",
        7,
        {"a": 1},
        ["a"],
        "sk_1",
    ],
)
def test_a_code_that_is_none_is_left_out(code: object) -> None:
    assert status_error(500, [code]).message == "provider answered 500, an error"


@pytest.mark.req("A9")
@pytest.mark.parametrize("status", [429, 503, 529])
def test_the_wait_that_the_provider_asked_for_is_kept(status: int) -> None:
    assert status_error(status, [], 12.0).retry_after_s == 12.0


@pytest.mark.req("X15")
@pytest.mark.parametrize(
    ("status", "wait_s", "fault"),
    [
        (529, None, Fault.OVERLOADED),
        (529, 12.0, Fault.OVERLOADED),
        (503, 12.0, Fault.OVERLOADED),
        (503, 0.0, Fault.OVERLOADED),
        (503, None, Fault.NONE),
        (500, 12.0, Fault.NONE),
        (429, 12.0, Fault.NONE),
        (400, None, Fault.NONE),
    ],
)
def test_a_provider_that_is_overloaded_is_told_from_one_that_is_broken(
    status: int, wait_s: float | None, fault: Fault
) -> None:
    error = status_error(status, [], wait_s)

    assert error.fault is fault
    assert error.usage is None


@pytest.mark.req("B17")
def test_what_never_left_used_nothing_and_of_what_did_nobody_knows() -> None:
    errors = [
        timeout_error(),
        connection_error("refused", was_sent=False),
        connection_error("broke", was_sent=True),
    ]

    assert [error.fault for error in errors] == [Fault.NO_ANSWER] * 3
    assert [error.usage for error in errors] == [Usage(0, 0), Usage(0, 0), None]


@pytest.mark.req("X12")
@given(st.text(max_size=1000))
def test_a_message_is_short_and_printable(text: str) -> None:
    message = connection_error(text, was_sent=True).message

    assert len(message) <= MESSAGE_MAX_CHARS
    assert message.isprintable()


@pytest.mark.req("X12", "A9")
def test_an_unexpected_error_is_named_by_its_type_alone() -> None:
    error = unexpected_error(ValueError("the prompt was: canary"))

    assert error.kind is ErrorKind.UNKNOWN
    assert "ValueError" in error.message
    assert "canary" not in error.message


@pytest.mark.req("A10")
@pytest.mark.case("LLM-01")
@pytest.mark.parametrize(
    ("milliseconds", "values", "wait_s"),
    [
        ([], [], None),
        ([], ["3"], 3.0),
        (["1500"], ["3"], 1.5),
        (["soon"], ["3"], 3.0),
        (["-5"], ["junk"], None),
        ([], ["5", "30"], 30.0),
        ([], ["junk", "30"], 30.0),
        ([], ["Thu, 01 Jan 2026 00:00:09 GMT"], 9.0),
    ],
)
def test_the_wait_is_read_from_both_headers(
    milliseconds: list[str], values: list[str], wait_s: float | None
) -> None:
    assert retry_after_s(milliseconds, values, NOW) == wait_s
