"""Is what could not be done on the day's log of its user, a line each? (C14)"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.domain.client_keys import client_id_of
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import (
    AttemptEntry,
    ChainEnd,
    ChainPolicy,
    ChainState,
    Failure,
    NextAttempt,
)
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan, Task
from jobs.runtime import Runtime
from jobs.store import keys
from tests.integration.service.chat_caller import (
    ESCALATES,
    FAILS,
    GIVES_UP,
    KEY,
    KEYS,
    OTHER_KEY,
    ChatCaller,
    crew_at_work,
    formation_file,
    request_id_in,
)
from tests.support.chains import new_turn
from tests.support.factories import claim_one


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], tmp_path: Path) -> Runtime:
    return make_runtime(formation_keys=KEYS, formation_file=formation_file(tmp_path))


def log_of(caller: ChatCaller, query: str = "") -> dict[str, Any]:
    answer = caller.get(f"/v1/captains-log{query}")
    assert answer.status_code == 200
    assert answer.json is not None
    log: dict[str, Any] = answer.json
    assert log["object"] == "captains_log"
    return log


@pytest.mark.req("C14")
def test_a_chain_that_gave_up_is_a_line_of_the_day_for_its_user_alone(
    ada: ChatCaller, runtime: Runtime
) -> None:
    with crew_at_work(runtime):
        request_id = request_id_in(ada.chat(GIVES_UP))
        data = ada.ended(request_id)
        for other in (ESCALATES, "Hello"):
            ada.ended(request_id_in(ada.chat(other)))
        ada.chat(FAILS)
    log = log_of(ada)
    (entry,) = log["entries"]
    report = data["report"]
    assert log["day"] == entry["at"][:10] == data["ended_at"][:10]
    assert entry == {
        "at": data["ended_at"],
        "request_id": request_id,
        "state": report["state"],
        "decision": (
            f"Gave up on {request_id} after {len(report['attempts'])} attempts:"
            f" {report['detail']}. To unblock: {report['what_would_unblock']}"
        ),
    }
    assert log_of(ada, f"?day={log['day']}") == log
    day_before = datetime.fromisoformat(log["day"]) - timedelta(days=1)
    assert log_of(ada, f"?day={day_before:%Y-%m-%d}")["entries"] == []
    for stranger in (ada.of(user="bob"), ada.of(user=None), ada.of(OTHER_KEY, "ada")):
        assert log_of(stranger)["entries"] == []


@pytest.mark.req("C14")
def test_where_no_day_is_named_it_is_today_in_utc(ada: ChatCaller) -> None:
    before = datetime.now(UTC).date().isoformat()
    day = log_of(ada)["day"]
    assert before <= day <= datetime.now(UTC).date().isoformat()


@pytest.mark.req("C14", "X3")
@pytest.mark.parametrize(
    "day",
    [
        *("today", "2026-13-01", "2026-02-30", "20260131", "2026-1-1", "2026-W05-1", ""),
        *("2026-01-31T00:00", "%D9%A2026-01-31", "0000-01-01", "2026-01-31%0a", "2026-01-31%00"),
    ],
)
def test_what_is_no_day_is_422_and_names_the_parameter(ada: ChatCaller, day: str) -> None:
    answer = ada.get(f"/v1/captains-log?day={day}")
    assert answer.status_code == 422
    assert answer.json is not None
    assert [error["field"] for error in answer.json["errors"]] == ["day"]


@pytest.mark.req("C14", "X3")
def test_any_day_that_there_is_may_be_asked_for(ada: ChatCaller) -> None:
    for day in ("0001-01-01", "1969-12-31", "2024-02-29", "9999-12-31"):
        assert log_of(ada, f"?day={day}") == {
            "object": "captains_log",
            "day": day,
            "entries": [],
            "next_cursor": None,
        }
    assert ada.get("/v1/captains-log?dag=2026-01-31").status_code == 422


def give_up(runtime: Runtime, message: str, reason: str, attempts: int = 2) -> None:
    """A turn of ada's that is given up after some attempts, each with a plan as large as can be."""
    plan = Plan((Task("assistant", message), *(Task("assistant", "y" * 20_000),) * 19))
    runtime.turns.submit(new_turn(message=message, client_id=client_id_of(KEY)))
    followed: dict[str, Any] = {"next": NextAttempt(0), "policy": ChainPolicy(10, 1.0, None)}
    ended = {"end": ChainEnd(ChainState.BUDGET_EXHAUSTED, "all async attempt(s) failed")}
    for number, more in enumerate((*[followed] * (attempts - 1), ended), 1):
        attempt = claim_one(runtime.queue)
        entry = AttemptEntry(number, plan, Failure(ErrorKind.PARSE, f"{number} {reason}"))
        left = TurnLeft(entry=entry, **more)
        runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no", turn=left)


@pytest.mark.req("C14", "X12")
def test_a_page_of_the_log_is_small_whatever_was_asked_planned_and_said(
    ada: ChatCaller, runtime: Runtime
) -> None:
    for _ in range(3):
        give_up(runtime, "x" * 1_000_000, "z" * 100_000, attempts=11)
    before = runtime.redis.info("stats")["total_net_output_bytes"]
    answer = ada.get("/v1/captains-log")
    sent_bytes = runtime.redis.info("stats")["total_net_output_bytes"] - before
    assert answer.json is not None
    assert [entry["state"] for entry in answer.json["entries"]] == ["budget_exhausted"] * 3
    assert all("To unblock: " in entry["decision"] for entry in answer.json["entries"])
    assert sent_bytes < 40_000
    # A hundred such lines are less than 1 MB.
    (log,) = runtime.redis.scan_iter(match=keys.CAPTAINS_LOG("*"))
    assert max(map(len, runtime.redis.lrange(log, 0, -1))) < 6_000


@pytest.mark.req("C14")
def test_a_day_is_read_page_by_page_each_line_once(ada: ChatCaller, runtime: Runtime) -> None:
    for number in range(5):
        give_up(runtime, "x", f"reason-{number}.")
    pages = [log_of(ada, "?limit=2")]
    while pages[-1]["next_cursor"] is not None:
        pages.append(log_of(ada, f"?limit=2&cursor={pages[-1]['next_cursor']}"))
    assert [len(page["entries"]) for page in pages] == [2, 2, 1]
    lines = [entry["decision"] for page in pages for entry in page["entries"]]
    assert all(f"1 reason-{n}.; 2 reason-{n}." in line for n, line in enumerate(lines))
    assert log_of(ada)["entries"] == [entry for page in pages for entry in page["entries"]]
    for query in ("limit=0", "limit=101", "limit=x", "cursor=-1", "cursor=x"):
        assert ada.get(f"/v1/captains-log?{query}").status_code == 422
