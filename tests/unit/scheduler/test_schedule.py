"""Is the table of ticks sound, and is the arithmetic of due times?"""

from __future__ import annotations

import importlib
import math

import pytest
from fakeredis import FakeRedis
from hypothesis import given
from hypothesis import strategies as st

from jobs.settings import Settings
from jobs.store.ticks import TickStatus, is_red
from jobs.tickets import EntryPointForbiddenError, TicketJob, TickJob
from scheduler.queue_worker import newest_of_each
from scheduler.schedule import (
    OVERDUE_AFTER_S,
    first_due_s,
    latest_due_s,
    next_due_s,
    ticks,
)

NOW_S = st.floats(1.7e9, 1.9e9)
INTERVAL_S = st.sampled_from([1, 5, 15, 60, 3600, 86_400])
NEAR = 1e-3
TABLE = ticks(
    Settings(sweep_interval_s=7, drain_interval_s=5, capture_url="http://127.0.0.1:1/capture")
)


@pytest.mark.parametrize("tick", TABLE, ids=lambda tick: tick.name)
def test_every_tick_is_an_entry_point_that_rq_may_run(tick: object) -> None:
    module, _, function = tick.entry_point.rpartition(".")  # type: ignore[attr-defined]
    job = TickJob.create(tick.entry_point, connection=FakeRedis())  # type: ignore[attr-defined]
    assert job.func is getattr(importlib.import_module(module), function)


def test_names_and_job_ids_are_unique() -> None:
    assert len({tick.name for tick in TABLE}) == len({t.job_id for t in TABLE}) == len(TABLE)


@pytest.mark.req("A8")
def test_reclaim_runs_at_the_interval_of_the_settings() -> None:
    intervals = {tick.name: tick.interval_s for tick in TABLE}
    assert intervals["reclaim"] == 7
    assert intervals["promote"] == 1


@pytest.mark.req("B17")
def test_usage_is_reported_only_where_a_receiver_is_named() -> None:
    named = {tick.name for tick in ticks(Settings(capture_url="http://127.0.0.1:1/capture"))}
    assert named - {tick.name for tick in ticks(Settings())} == {"report_usage"}


@pytest.mark.req("X12")
@pytest.mark.parametrize(
    ("job_class", "name"),
    [
        (TicketJob, "jobs.entrypoints.tick_promote"),
        (TickJob, "jobs.entrypoints.take_work"),
        (TickJob, "os.tick_promote"),
        (TickJob, "jobs.entrypoints.tick_promote.__globals__"),
        (TickJob, "jobs.entrypoints.tick_promote\n"),
        (TickJob, "jobs.entrypoints.build"),
    ],
)
def test_ticks_run_on_their_queue_and_nothing_else_runs_there(
    job_class: type[TicketJob], name: str
) -> None:
    job = job_class.create(name, connection=FakeRedis())
    with pytest.raises(EntryPointForbiddenError):
        _ = job.func


@given(NOW_S, INTERVAL_S, st.floats(0, 1e6))
def test_the_next_due_time_is_the_first_beyond_now_in_the_same_rhythm(
    now_s: float, interval_s: float, missed_s: float
) -> None:
    due_s = now_s - missed_s
    later_s = next_due_s(due_s, interval_s, now_s)

    assert now_s - NEAR < later_s <= now_s + interval_s + NEAR
    rounds = (later_s - due_s) / interval_s
    assert abs(rounds - round(rounds)) < NEAR
    assert rounds >= 1 - NEAR


@pytest.mark.parametrize("interval_s", [0, -1, math.nan, math.inf])
def test_what_is_no_interval_is_refused(interval_s: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        next_due_s(0, interval_s, 1)


@given(NOW_S, INTERVAL_S, st.one_of(st.none(), st.floats(-1e6, 1e6)))
def test_after_a_start_a_tick_is_due_an_interval_after_its_last_run_or_now(
    now_s: float, interval_s: float, age_s: float | None
) -> None:
    ran_at_s = None if age_s is None else now_s - age_s
    due_s = first_due_s(interval_s, ran_at_s, now_s)

    assert now_s <= due_s <= now_s + interval_s
    if age_s is not None and 0 <= age_s <= interval_s:
        assert due_s == pytest.approx(now_s - age_s + interval_s)


def test_a_tick_whose_firing_was_lost_is_due_at_once_and_not_before_that() -> None:
    day_s, now_s = 86_400, 1.8e9
    overdue_s = now_s - day_s - OVERDUE_AFTER_S
    assert latest_due_s(day_s, overdue_s - 1, now_s) == now_s
    assert latest_due_s(day_s, overdue_s + 1, now_s) == now_s + day_s
    assert latest_due_s(day_s, None, now_s) == now_s + day_s


def test_the_newest_of_each_copy_is_kept_in_order() -> None:
    assert newest_of_each([b"a", b"b", b"a", b"c", b"b"]) == [b"a", b"c", b"b"]
    assert newest_of_each([]) == []


@pytest.mark.case("RQ-05")
def test_a_tick_is_red_when_it_did_not_run_for_three_intervals() -> None:
    status = TickStatus("promote", interval_ms=1000, ran_at_ms=50_000)
    assert not is_red(status, 53_000)
    assert is_red(status, 53_001)
    assert not is_red(status, 10_000)


@pytest.mark.case("RQ-05")
def test_a_tick_that_never_ran_well_is_red() -> None:
    assert is_red(None, 1)
    assert is_red(TickStatus("promote", interval_ms=1000, failures=1), 1)
