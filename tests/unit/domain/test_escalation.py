"""Does a failed turn go on in the background, and when is its chain stuck?"""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import ErrorKind, Fault
from jobs.domain.escalation import (
    AttemptEntry,
    Delivery,
    Failure,
    Refusal,
    Standing,
    deciding,
    delivery_mode,
    entry_json,
    entry_of,
    failure_signature,
    gate,
    is_non_replannable,
    is_outage,
    is_stuck,
)
from jobs.domain.formation import NON_REPLANNABLE
from jobs.domain.turn_plan import Plan, Task

FLAKY = Failure(ErrorKind.UNKNOWN, "warehouse query returned no rows")
BLOCKED = Failure(ErrorKind.PROVIDER_4XX, "the role has no Permission to read")
OUTAGES = [
    Failure(ErrorKind.PROVIDER_5XX, "502"),
    Failure(ErrorKind.TIMEOUT, "no answer within 15 s"),
    Failure(ErrorKind.RATE_LIMIT, "429"),
    Failure(ErrorKind.UNKNOWN, "busy", Fault.OVERLOADED),
    Failure(ErrorKind.PROVIDER_4XX, "gone", Fault.NO_ANSWER),
]
PLAN = Plan((Task("assistant", "Read the Q3 revenue from the warehouse."),))
OTHER_PLAN = Plan((Task("second", "Ask finance for a spreadsheet."),))


def chain(*failures: Failure, plan: Plan | None = PLAN) -> list[AttemptEntry]:
    return [AttemptEntry(number, plan, failure) for number, failure in enumerate(failures, 1)]


# The gate


@pytest.mark.req("C2", "C3")
def test_an_ordinary_turn_that_failed_escalates() -> None:
    assert gate(FLAKY, NON_REPLANNABLE, Standing()) is None


@pytest.mark.req("C3", "C19")
@pytest.mark.parametrize(
    ("failure", "standing", "refusal"),
    [
        (BLOCKED, Standing(), Refusal.NON_REPLANNABLE),
        (None, Standing(is_awaiting=True), Refusal.AWAITING),
        (None, Standing(is_cancelled=True), Refusal.CANCELLED),
        (FLAKY, Standing(is_awaiting=True), Refusal.AWAITING),
        (FLAKY, Standing(is_cancelled=True), Refusal.CANCELLED),
        (FLAKY, Standing(is_background=True), Refusal.NESTED),
        (FLAKY, Standing(is_shutting_down=True), Refusal.SHUTTING_DOWN),
        (FLAKY, Standing(is_enabled=False), Refusal.DISABLED),
        (FLAKY, Standing(has_request_id=False), Refusal.NO_REQUEST_ID),
    ],
)
def test_each_row_of_the_table_alone_refuses(
    failure: Failure | None, standing: Standing, refusal: Refusal
) -> None:
    assert gate(failure, NON_REPLANNABLE, standing) is refusal


ORDER = [
    (Refusal.CANCELLED, {"is_cancelled": True}),
    (Refusal.AWAITING, {"is_awaiting": True}),
    (Refusal.NESTED, {"is_background": True}),
    (Refusal.NON_REPLANNABLE, {}),
    (Refusal.SHUTTING_DOWN, {"is_shutting_down": True}),
    (Refusal.DISABLED, {"is_enabled": False}),
    (Refusal.NO_REQUEST_ID, {"has_request_id": False}),
]


@pytest.mark.req("C3")
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(ORDER, 2)))
def test_of_two_refusals_the_earlier_one_is_told(
    first: tuple[Refusal, dict[str, bool]], second: tuple[Refusal, dict[str, bool]]
) -> None:
    (refusal, one), (other, two) = first, second
    failure = BLOCKED if Refusal.NON_REPLANNABLE in {refusal, other} else FLAKY

    assert gate(failure, NON_REPLANNABLE, replace(Standing(), **one, **two)) is refusal


@pytest.mark.req("C3")
def test_every_refusal_has_its_place_in_the_order() -> None:
    assert {refusal for refusal, _ in ORDER} == set(Refusal)


@pytest.mark.req("C2")
def test_without_a_failure_there_is_nothing_to_escalate() -> None:
    with pytest.raises(ValueError, match="has not failed"):
        gate(None, NON_REPLANNABLE, Standing())


# Failures


@pytest.mark.req("C3")
@pytest.mark.parametrize("pattern", NON_REPLANNABLE)
def test_each_default_pattern_is_found_in_any_letter_case(pattern: str) -> None:
    failure = Failure(ErrorKind.UNKNOWN, f"step 2: {pattern.upper()} - see the log")

    assert is_non_replannable(failure, NON_REPLANNABLE)
    assert is_non_replannable(failure, [pattern.title()])
    assert not is_non_replannable(failure, ["quota"])
    assert not is_non_replannable(failure, [])


@pytest.mark.req("C3")
def test_the_kind_is_searched_too() -> None:
    assert is_non_replannable(Failure(ErrorKind.AUTH, "401"), NON_REPLANNABLE)
    assert is_non_replannable(Failure(ErrorKind.PARSE, "no JSON"), ["parse: NO json"])


@pytest.mark.req("C3")
@pytest.mark.parametrize("kind", sorted(set(ErrorKind) - {ErrorKind.AUTH}))
def test_no_other_kind_is_a_blocker_by_its_name(kind: ErrorKind) -> None:
    assert not is_non_replannable(Failure(kind, "it failed"), NON_REPLANNABLE)


@pytest.mark.req("C3")
def test_the_first_failure_that_a_plan_may_avoid_decides() -> None:
    slow = OUTAGES[1]

    assert deciding([BLOCKED, slow, FLAKY], NON_REPLANNABLE) is slow
    assert deciding([FLAKY, BLOCKED], NON_REPLANNABLE) is FLAKY


@pytest.mark.req("C3")
def test_where_no_plan_avoids_any_of_them_the_first_failure_decides() -> None:
    assert deciding([BLOCKED, Failure(ErrorKind.AUTH, "401")], NON_REPLANNABLE) is BLOCKED


@pytest.mark.req("C12")
def test_outages_are_those_of_a_provider_that_is_down_slow_or_too_busy() -> None:
    alone = {kind for kind in ErrorKind if is_outage(Failure(kind, "x"))}
    by_fault = {fault for fault in Fault if is_outage(Failure(ErrorKind.PARSE, "x", fault))}

    assert alone == {ErrorKind.PROVIDER_5XX, ErrorKind.TIMEOUT, ErrorKind.RATE_LIMIT}
    assert by_fault == {Fault.OVERLOADED, Fault.NO_ANSWER}


# Stuck


@pytest.mark.req("C12")
def test_the_same_failure_twice_and_a_plan_that_was_tried_is_stuck() -> None:
    again = replace(FLAKY, reason="Warehouse  query returned NO rows")

    assert failure_signature(again) == failure_signature(FLAKY)
    assert is_stuck(PLAN, chain(FLAKY, again))


@pytest.mark.req("C12")
def test_a_different_plan_is_not_stuck() -> None:
    assert not is_stuck(OTHER_PLAN, chain(FLAKY, FLAKY))


@pytest.mark.req("C12")
def test_a_plan_is_held_against_all_that_were_tried_not_the_last_alone() -> None:
    entries = [AttemptEntry(1, PLAN, FLAKY), AttemptEntry(2, OTHER_PLAN, FLAKY)]

    assert is_stuck(PLAN, entries)


@pytest.mark.req("C12")
@pytest.mark.parametrize(
    "failures",
    [
        [],
        [FLAKY],
        [FLAKY, replace(FLAKY, reason="the chart has no axis")],
        [FLAKY, replace(FLAKY, kind=ErrorKind.PARSE)],
        [FLAKY, FLAKY, replace(FLAKY, reason="the chart has no axis")],
        *([outage, outage] for outage in OUTAGES),
        [FLAKY, replace(FLAKY, fault=Fault.OVERLOADED)],
        [replace(FLAKY, fault=Fault.OVERLOADED), FLAKY],
    ],
)
def test_fewer_other_or_passing_failures_are_not_stuck(failures: list[Failure]) -> None:
    assert not is_stuck(PLAN, chain(*failures))


@pytest.mark.req("C12")
def test_the_last_two_failures_count_whatever_came_before() -> None:
    assert is_stuck(PLAN, chain(OUTAGES[0], BLOCKED, FLAKY, FLAKY))


@pytest.mark.req("C12")
def test_where_no_plan_came_to_be_the_first_one_is_different() -> None:
    assert not is_stuck(PLAN, chain(FLAKY, FLAKY, plan=None))
    assert is_stuck(PLAN, [*chain(FLAKY), AttemptEntry(2, None, FLAKY)])


# Records and delivery


ENTRIES = st.builds(
    AttemptEntry,
    st.integers(1, 11),
    st.none() | st.builds(Plan, st.lists(st.builds(Task, st.text(), st.text())).map(tuple)),
    st.builds(
        Failure,
        st.sampled_from(ErrorKind),
        st.text(),
        st.sampled_from(Fault),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ),
)


@pytest.mark.req("C13", "C20")
@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: AttemptEntry) -> None:
    read = entry_of(json.loads(compact_json(entry_json(entry))))

    assert read == entry
    assert isinstance(read.failure.kind, ErrorKind)
    assert isinstance(read.failure.fault, Fault)


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("has_channel", "user_id", "webhook_url", "mode"),
    [
        (True, "user-1", "https://a.example/", Delivery.CHANNEL),
        (True, "user-1", None, Delivery.CHANNEL),
        (True, "", "https://a.example/", Delivery.WEBHOOK),
        (False, "user-1", "https://a.example/", Delivery.WEBHOOK),
        (True, "", None, Delivery.POLLING),
        (False, "user-1", None, Delivery.POLLING),
        (False, "", "", Delivery.POLLING),
    ],
)
def test_the_outcome_goes_to_the_channel_else_the_webhook_else_waits_to_be_polled(
    has_channel: bool, user_id: str, webhook_url: str | None, mode: Delivery
) -> None:
    assert delivery_mode(has_channel, user_id, webhook_url) is mode
