"""Can a submit say when, and after what, its job shall run?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from service.instants import parse_rfc3339
from tests.integration.service.conftest import Caller, Keyspace
from tests.support.factories import claim, claim_one, new_id, response_for


def at(**ahead: float) -> str:
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


@pytest.mark.req("A29", "X14")
def test_a_job_for_later_waits_for_its_time(caller: Caller, runtime: Runtime) -> None:
    when = at(hours=2)
    answer = caller.post({"prompt": "hello", "scheduled_for": when})
    assert answer.status_code == 202
    job = caller.get(answer.headers["Location"]).json
    assert job is not None
    assert parse_rfc3339(job["scheduled_for"]) == parse_rfc3339(when)
    assert job["waiting_on"] == {
        "reason": "schedule",
        "until": job["scheduled_for"],
        "ahead": None,
    }
    assert claim(runtime.queue).attempts == ()


@pytest.mark.req("A29")
@pytest.mark.parametrize("when", ["1970-01-01T00:00:00Z", "2001-01-01T00:00:00+02:00"])
def test_a_time_in_the_past_is_now(caller: Caller, runtime: Runtime, when: str) -> None:
    answer = caller.post({"prompt": "hello", "scheduled_for": when})
    assert answer.status_code == 202
    assert claim_one(runtime.queue).job.id == answer.json["job_id"]  # type: ignore[index]


@pytest.mark.req("A29")
@pytest.mark.parametrize("when", ["tomorrow", 5, None, "2026-01-01", "9999-01-01T00:00:00Z", ""])
def test_a_time_that_is_none_or_too_far_is_refused(
    caller: Caller, keyspace: Callable[[], Keyspace], when: object
) -> None:
    before = keyspace()
    answer = caller.post({"prompt": "hello", "scheduled_for": when})
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json["errors"]] == ["scheduled_for"]  # type: ignore[index]
    assert keyspace() == before


@pytest.mark.req("A30", "X14")
def test_a_job_waits_for_the_one_it_depends_on(caller: Caller, runtime: Runtime) -> None:
    first = caller.post({"prompt": "first"}).json
    assert first is not None
    second = caller.post({"prompt": "second", "depends_on": first["job_id"].upper()})
    assert second.status_code == 202
    job = caller.get(second.headers["Location"]).json
    assert job is not None
    assert (job["depends_on"], job["waiting_on"]["reason"]) == (first["job_id"], "dependency")
    attempt = claim_one(runtime.queue)
    assert claim(runtime.queue).attempts == ()
    runtime.queue.succeed(first["job_id"], attempt.token, response_for(attempt))
    assert claim_one(runtime.queue).job.id == job["id"]


@pytest.mark.req("A30", "A17")
def test_a_cancel_fails_what_depends_on_it_as_blocked(caller: Caller, runtime: Runtime) -> None:
    first = caller.post({"prompt": "first"}).json
    assert first is not None
    second = caller.post({"prompt": "second", "depends_on": first["job_id"]})
    caller.http.post(f"/v1/jobs/{first['job_id']}/cancel", headers=caller.headers)
    runtime.queue.promote()
    job = caller.get(second.headers["Location"]).json
    assert job is not None
    assert (job["state"], job["error_kind"]) == ("failed", ErrorKind.BLOCKED)


@pytest.mark.req("A30", "X12")
def test_a_job_of_others_or_of_nobody_can_not_be_depended_on(
    caller: Caller,
    make_caller: Callable[[str, str], Caller],
    keyspace: Callable[[], Keyspace],
) -> None:
    theirs = make_caller("rival", "rob").post({"prompt": "hello"}).json
    assert theirs is not None
    before = keyspace()
    for one in (theirs["job_id"], new_id()):
        answer = caller.post({"prompt": "hello", "depends_on": one})
        assert answer.status_code == 422
        fields = [error["field"] for error in answer.json["errors"]]  # type: ignore[index]
        assert fields == ["depends_on"]
    assert keyspace() == before


@pytest.mark.req("X4", "A29")
def test_another_time_is_another_payload(caller: Caller) -> None:
    when = at(hours=1)
    payload = {"prompt": "hello", "scheduled_for": when}
    assert caller.post(payload, Idempotency_Key="k").status_code == 202
    assert caller.post(payload, Idempotency_Key="k").headers["Idempotency-Replayed"] == "true"
    other = {**payload, "scheduled_for": at(hours=2)}
    assert caller.post(other, Idempotency_Key="k").status_code == 422
