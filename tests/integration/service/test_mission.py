"""Does a poll of what changed miss nothing, whatever happens between two of them?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from tests.integration.service.conftest import Caller
from tests.support.factories import claim_one, new_id, new_job, response_for

ROW = {
    *("prompt_id", "job_id", "kind", "state", "terminal", "attempt", "waiting_on"),
    *("response_id", "error_kind", "supersedes", "created_by", "created_at", "updated_at"),
}


def recent(caller: Caller, since: object = None, **query: object) -> dict[str, Any]:
    if since is not None:
        query["since"] = since
    answer = caller.http.get("/v1/mission/recent", query_string=query, headers=caller.headers)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    body: dict[str, Any] = answer.json  # type: ignore[assignment]
    return body


def ids(answer: dict[str, Any]) -> list[str]:
    return [row["job_id"] for row in answer["prompts"]]


@pytest.mark.req("A20")
def test_a_poll_answers_what_changed_since_the_one_before(caller: Caller, queue: Queue) -> None:
    first, second = new_job(), new_job()
    queue.submit(first)
    start = recent(caller)
    assert ids(start) == [first.id]
    assert (start["has_more"], start["gap"]) == (False, False)
    assert set(start["prompts"][0]) == ROW
    assert recent(caller, start["as_of"])["prompts"] == []
    queue.submit(second)
    attempt = claim_one(queue)
    response = response_for(attempt)
    queue.succeed(first.id, attempt.token, response)
    then = recent(caller, start["as_of"])
    rows = {row["prompt_id"]: row for row in then["prompts"]}
    assert list(rows) == [first.prompt_id, second.prompt_id], "shown by created_at"
    done, waiting = rows[first.prompt_id], rows[second.prompt_id]
    assert (done["state"], done["response_id"], done["terminal"]) == (
        "succeeded",
        response.id,
        True,
    )
    assert (waiting["state"], waiting["waiting_on"]["reason"]) == ("queued", "queue")
    assert (done["waiting_on"], waiting["waiting_on"]["ahead"]) == (None, 0)
    assert recent(caller, then["as_of"])["prompts"] == []


@pytest.mark.req("A20", "A16")
def test_a_prompt_that_was_retried_is_one_row_with_its_current_job(
    caller: Caller, queue: Queue
) -> None:
    job, successor = new_job(), new_id()
    queue.submit(job)
    queue.cancel(job.id, "acme")
    as_of = recent(caller)["as_of"]
    queue.supersede(job.id, successor, "acme", "ada")
    (row,) = recent(caller, as_of)["prompts"]
    assert (row["prompt_id"], row["job_id"]) == (job.prompt_id, successor)
    assert (row["state"], row["supersedes"]) == ("queued", job.id)


@pytest.mark.req("A20")
def test_pages_are_bounded_and_together_miss_nothing(caller: Caller, queue: Queue) -> None:
    as_of = recent(caller)["as_of"]
    jobs = [new_job() for _ in range(25)]
    for job in jobs:
        queue.submit(job)
    seen: list[str] = []
    more = True
    while more:
        page = recent(caller, as_of, limit=10)
        assert len(page["prompts"]) <= 10
        seen += ids(page)
        as_of, more = page["as_of"], page["has_more"]
    assert sorted(seen) == sorted(job.id for job in jobs)
    assert len(recent(caller, limit=10)["prompts"]) == 10


@pytest.mark.req("A20")
def test_changes_within_one_millisecond_are_told_apart(
    caller: Caller, queue: Queue, redis: Redis
) -> None:
    jobs = [new_job() for _ in range(20)]
    for job in jobs:
        queue.submit(job)
    pipe = redis.pipeline()
    for job in jobs:  # as if all had happened at once
        pipe.hset(keys.JOB(job.id), mapping={"updated_at": 1_700_000_000_000})
    pipe.execute()
    seen: list[str] = []
    as_of = "0"
    for _ in jobs:
        page = recent(caller, as_of, limit=1)
        seen += ids(page)
        as_of = page["as_of"]
    assert seen == [job.id for job in jobs]
    assert len(recent(caller, "2023-11-14T22:13:20Z")["prompts"]) == len(jobs)
    assert recent(caller, "2023-11-14T22:13:20.001Z")["prompts"] == []


@pytest.mark.req("A20")
def test_no_change_is_missed_while_four_threads_move_jobs(caller: Caller, runtime: Runtime) -> None:
    stop = threading.Event()

    def move() -> None:
        queue = runtime.queue
        while not stop.is_set():
            job = new_job()
            queue.submit(job)
            attempt = claim_one(queue)
            queue.fail(attempt.job.id, attempt.token, ErrorKind.AUTH, "no")

    threads = [threading.Thread(target=move) for _ in range(4)]
    for thread in threads:
        thread.start()
    known: dict[str, str] = {}
    as_of = "0"

    def poll() -> bool:
        nonlocal as_of
        page = recent(caller, as_of, limit=7)
        known.update({row["job_id"]: row["state"] for row in page["prompts"]})
        as_of = page["as_of"]
        return bool(page["has_more"])

    until_s = time.monotonic() + 2
    while time.monotonic() < until_s:
        poll()
    stop.set()
    for thread in threads:
        thread.join()
    while poll():
        pass
    poll()
    stored = {
        job_id: runtime.redis.hget(keys.JOB(job_id), "state")
        for job_id in runtime.redis.zrange(keys.CHANGED("acme"), 0, -1)
    }
    assert len(stored) > 50
    assert known == stored


@pytest.mark.req("A20")
def test_an_instant_works_as_since_in_any_offset(
    caller: Caller, queue: Queue, redis: Redis
) -> None:
    jobs = [new_job() for _ in range(9)]
    for number, job in enumerate(jobs):
        queue.submit(job)
        redis.hset(keys.JOB(job.id), "updated_at", 1_700_000_000_000 + number * 1000)
    instant = datetime.fromtimestamp(1_700_000_004, UTC)
    berlin = instant.astimezone(timezone(timedelta(hours=2)))
    for text in (instant.isoformat(), berlin.isoformat(), berlin.isoformat().replace("+", " ")):
        answer = recent(caller, text)
        assert sorted(ids(answer)) == sorted(job.id for job in jobs[4:]), text
    assert len(recent(caller, "0001-01-01T00:00:00Z")["prompts"]) == 9
    assert recent(caller, "9999-12-31T23:59:59Z")["prompts"] == []


@pytest.mark.req("A20")
@pytest.mark.parametrize(
    "since",
    ["yesterday", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "-1", "", "1e3"],
)
def test_a_since_that_is_neither_is_refused_by_name(caller: Caller, since: str) -> None:
    answer = caller.http.get(
        "/v1/mission/recent", query_string={"since": since}, headers=caller.headers
    )
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json["errors"]] == ["since"]  # type: ignore[index]


@pytest.mark.req("A20")
def test_a_since_of_another_store_is_told_as_a_gap_with_a_first_look(
    caller: Caller, queue: Queue
) -> None:
    job = new_job()
    queue.submit(job)
    answer = recent(caller, "987654321")
    assert (answer["gap"], ids(answer)) == (True, [job.id])
    assert recent(caller, answer["as_of"])["gap"] is False


@pytest.mark.req("A20", "X12")
def test_another_organisation_is_not_told_of(
    caller: Caller, make_caller: Callable[[str, str], Caller], queue: Queue
) -> None:
    queue.submit(new_job())
    stranger = make_caller("rival", "rob")
    assert recent(stranger)["prompts"] == []
    assert recent(stranger, "0")["prompts"] == []
