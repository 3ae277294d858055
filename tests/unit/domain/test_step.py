from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.step import (
    Again,
    Answer,
    Decision,
    Ended,
    Finished,
    GaveUp,
    NoAnswer,
    Park,
    Pending,
    Result,
    StepProgress,
    Throttled,
    decide,
    overdue,
)

START_MS = 1_800_000_000_000
ENVELOPE = {"text": "Hello, Ada.", "fields": {"subject": "Hi"}}
ACCEPTED = StepProgress(executions=2, generation_id="g", accepted_at_ms=START_MS)

answers = st.one_of(
    st.just(Pending("g")),
    st.floats(0, 3600).map(Throttled),
    st.sampled_from(["nothing within 3 s", "HTTP 502"]).map(NoAnswer),
)


def accepted(**changes: int) -> StepProgress:
    values = {"executions": 2, "accepted_at_ms": START_MS, **changes}
    return StepProgress(generation_id="g", **values)


def after(seconds: float) -> int:
    return START_MS + round(seconds * 1000)


def gave_up(decision: Decision) -> GenerationCode:
    assert isinstance(decision, GaveUp), decision
    return decision.code


def overdue_code(progress: StepProgress, now_ms: int) -> str | None:
    decision = overdue(progress, now_ms)
    return decision.code if decision else None


@pytest.mark.req("B26", "B27")
def test_an_accepted_generation_parks_the_step_until_one_minute_after() -> None:
    decision = decide(StepProgress(), Pending("g"), START_MS)

    assert isinstance(decision, Park)
    assert decision.until_ms == after(60)
    assert decision.progress == StepProgress(1, 0, 0, "g", START_MS)
    # Its acceptance is told by the record.
    assert decision.line is None


@pytest.mark.req("B27")
def test_a_step_that_is_overdue_asks_no_more() -> None:
    last_mark_ms = after(300)
    assert overdue(replace(ACCEPTED, executions=20), last_mark_ms) is None
    assert overdue(ACCEPTED, last_mark_ms + 60_000) is None
    assert overdue_code(ACCEPTED, last_mark_ms + 60_001) == "deadline_exceeded"
    assert overdue_code(replace(ACCEPTED, executions=21), START_MS) == "deadline_exceeded"
    assert overdue(StepProgress(), last_mark_ms * 2) is None


@pytest.mark.req("B27")
@pytest.mark.parametrize(
    ("looked_after_s", "until_s"), [(60, 180), (60.001, 180), (179.999, 180), (180, 300)]
)
def test_a_poll_that_finds_it_pending_parks_until_the_next_mark_after_acceptance(
    looked_after_s: float, until_s: int
) -> None:
    decision = decide(accepted(), Pending("g"), after(looked_after_s))

    assert isinstance(decision, Park)
    assert (decision.until_ms, decision.progress.accepted_at_ms) == (after(until_s), START_MS)


@pytest.mark.req("B26", "B33")
@pytest.mark.case("PARK-03")
@pytest.mark.parametrize(("woken_after_s", "until_s"), [(0, 60), (1, 60), (61, 180), (181, 300)])
def test_a_forged_or_repeated_wake_costs_one_early_poll_and_no_line(
    woken_after_s: float, until_s: int
) -> None:
    decision = decide(accepted(), Pending("g"), after(woken_after_s))

    assert isinstance(decision, Park)
    assert (decision.until_ms, decision.line) == (after(until_s), None)


@pytest.mark.req("B27")
@pytest.mark.parametrize("looked_after_s", [300, 300.001, 4000])
def test_still_pending_at_five_minutes_is_out_of_time(looked_after_s: float) -> None:
    decision = decide(accepted(), Pending("g"), after(looked_after_s))

    assert gave_up(decision) is GenerationCode.DEADLINE_EXCEEDED
    assert decision.line == f"deadline_exceeded: {COPY[GenerationCode.DEADLINE_EXCEEDED]}"


@pytest.mark.req("B27")
@pytest.mark.case("PARK-03")
def test_without_any_wake_three_polls_end_the_step() -> None:
    progress, now_ms, polls = StepProgress(), START_MS, []
    decision = decide(progress, Pending("g"), now_ms)
    while isinstance(decision, Park):
        polls.append((decision.until_ms - START_MS) / 1000)
        progress = StepProgress(
            executions=progress.executions + 1,
            generation_id=decision.progress.generation_id,
            accepted_at_ms=decision.progress.accepted_at_ms,
        )
        decision = decide(progress, Pending("g"), decision.until_ms)

    assert polls == [60, 180, 300]
    assert gave_up(decision) is GenerationCode.DEADLINE_EXCEEDED


@pytest.mark.req("B27")
@pytest.mark.parametrize("answer", [Pending("g"), Throttled(1), NoAnswer("HTTP 502")])
def test_the_20th_execution_is_the_last(answer: Answer) -> None:
    one_before = decide(accepted(executions=19), answer, after(61))
    assert isinstance(one_before, Park | Again)
    assert gave_up(decide(accepted(executions=20), answer, after(61))) is (
        GenerationCode.DEADLINE_EXCEEDED
    )


@pytest.mark.req("B27")
def test_what_ends_by_itself_at_the_20th_execution_ends_so() -> None:
    last = accepted(executions=20, failures=3, bounces=10)

    assert isinstance(decide(last, Result("g", ENVELOPE), after(61)), Finished)
    ended = decide(last, Ended(GenerationCode.MODEL_REFUSED, "No."), after(61))
    assert gave_up(ended) is GenerationCode.MODEL_REFUSED
    assert gave_up(decide(last, NoAnswer("x"), after(61))) is GenerationCode.GATEWAY_UNAVAILABLE
    assert gave_up(decide(last, Throttled(1), after(61))) is GenerationCode.THROTTLED


@pytest.mark.req("B26")
@pytest.mark.case("PARK-05")
@pytest.mark.parametrize("progress", [StepProgress(), ACCEPTED])
def test_a_result_finishes_the_step_also_where_the_submit_answers_it(
    progress: StepProgress,
) -> None:
    decision = decide(progress, Result("g", ENVELOPE), after(1))

    assert isinstance(decision, Finished)
    assert decision.envelope == ENVELOPE
    assert decision.line == "The text is generated: characters 11, fields 1."


@pytest.mark.req("B5", "B29")
@pytest.mark.parametrize("code", GenerationCode)
@pytest.mark.parametrize("progress", [StepProgress(), ACCEPTED])
def test_a_terminal_failure_is_never_asked_about_again(
    progress: StepProgress, code: GenerationCode
) -> None:
    decision = decide(progress, Ended(code, "What to do."), after(1))

    assert gave_up(decision) is code
    assert decision.line == f"{code.value}: What to do."


@pytest.mark.req("B28")
def test_a_429_is_asked_again_exactly_at_its_retry_after_ten_times() -> None:
    progress = StepProgress()
    for bounce in range(1, 11):
        decision = decide(progress, Throttled(7), START_MS)
        assert isinstance(decision, Again)
        assert (decision.after_ms, decision.why) == (7000, "throttled")
        progress = StepProgress(executions=bounce + 1, bounces=decision.progress.bounces)

    last = decide(progress, Throttled(7), START_MS)
    assert gave_up(last) is GenerationCode.THROTTLED
    assert progress.executions == 11


@pytest.mark.req("B28")
def test_a_wait_is_never_cut_short_by_rounding() -> None:
    decision = decide(StepProgress(), Throttled(1.0001), START_MS)

    assert isinstance(decision, Again)
    assert decision.after_ms == 1001


@pytest.mark.req("B27", "B28")
def test_a_429_at_a_retrieve_never_waits_beyond_five_minutes() -> None:
    decision = decide(accepted(), Throttled(3600), after(290))
    assert isinstance(decision, Again)
    assert decision.after_ms == 10_000

    assert gave_up(decide(accepted(), Throttled(1), after(300))) is GenerationCode.DEADLINE_EXCEEDED


@pytest.mark.req("B30")
@pytest.mark.parametrize("progress", [StepProgress(), ACCEPTED])
def test_transport_failures_are_retried_after_2_4_and_8_seconds_then_end_the_step(
    progress: StepProgress,
) -> None:
    pauses = []
    decision = decide(progress, NoAnswer("HTTP 502"), after(61))
    while isinstance(decision, Again):
        pauses.append(decision.after_ms)
        assert decision.why == "no answer"
        assert "HTTP 502" in (decision.line or "")
        decision = decide(decision.progress, NoAnswer("HTTP 502"), after(61))

    assert pauses == [2000, 4000, 8000]
    assert gave_up(decision) is GenerationCode.GATEWAY_UNAVAILABLE
    assert "HTTP 502" in (decision.line or "")


@pytest.mark.req("B30")
@pytest.mark.parametrize("answer", [Pending("g"), Throttled(1)])
def test_an_answer_that_gets_through_starts_the_count_of_failures_anew(answer: Answer) -> None:
    decision = decide(accepted(failures=3), answer, after(61))
    assert decision.progress.failures == 0

    again = decide(decision.progress, NoAnswer("HTTP 502"), after(61))
    assert isinstance(again, Again)
    assert again.after_ms == 2000


@pytest.mark.req("B27")
def test_a_clock_that_was_set_back_parks_for_a_minute_and_no_longer() -> None:
    decision = decide(accepted(), Pending("g"), after(-7200))

    assert isinstance(decision, Park)
    assert decision.until_ms == after(-7200 + 60)


@pytest.mark.req("B27", "B28", "B30")
@given(st.lists(st.tuples(answers, st.floats(0, 100)), min_size=20, max_size=30))
def test_whatever_is_answered_a_step_ends_within_20_executions(
    script: list[tuple[Answer, float]],
) -> None:
    progress, now_ms = StepProgress(), START_MS
    for execution, (answer, woken_after_s) in enumerate(script, 1):
        decision = decide(progress, answer, now_ms)
        if isinstance(decision, GaveUp):
            assert execution <= 20
            return
        assert isinstance(decision, Park | Again)
        if isinstance(decision, Park):
            due_ms = decision.until_ms
            # A wake may come before the poll is due.
            now_ms = min(due_ms, now_ms + round(woken_after_s * 1000))
        else:
            due_ms = now_ms = now_ms + decision.after_ms
        accepted_at_ms = decision.progress.accepted_at_ms
        if accepted_at_ms is not None and isinstance(decision, Park):
            assert decision.until_ms <= accepted_at_ms + 300_000
        progress = decision.progress.__class__(
            execution + 1,
            decision.progress.bounces,
            decision.progress.failures,
            decision.progress.generation_id,
            accepted_at_ms,
        )
    pytest.fail("it goes on")
