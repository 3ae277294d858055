"""Can the jobs of an organisation be paged through, however many there are?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.store import keys
from jobs.store.listing import LOOKED_AT_MAX
from jobs.store.queue import Queue
from tests.integration.service.conftest import Caller
from tests.support.factories import claim_one, new_id, new_job

FIRST = "/v1/jobs"


def page(caller: Caller, path: str) -> tuple[list[dict[str, Any]], str | None]:
    """The jobs of a page, and the address of the next one."""
    answer = caller.get(path)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    body: dict[str, Any] = answer.json  # type: ignore[assignment]
    link = re.fullmatch(r'<([^>]+)>; rel="next"', answer.headers.get("Link", ""))
    assert bool(link) == (body["next_cursor"] is not None)
    return body["jobs"], link[1] if link else None


def walk(caller: Caller, path: str) -> list[list[str]]:
    """The ids of every page from `path` on."""
    pages: list[list[str]] = []
    following: str | None = path
    while following:
        jobs, following = page(caller, following)
        pages.append([job["id"] for job in jobs])
    return pages


@pytest.mark.req("A2", "X14")
def test_the_job_that_moved_last_comes_first_with_why_it_waits(
    caller: Caller, queue: Queue
) -> None:
    jobs = [new_job() for _ in range(3)]
    for job in jobs:
        queue.submit(job)
    queue.cancel(jobs[1].id, "acme")
    found, following = page(caller, FIRST)
    assert [job["id"] for job in found] == [jobs[1].id, jobs[2].id, jobs[0].id]
    assert following is None
    assert [job["waiting_on"] and job["waiting_on"]["ahead"] for job in found] == [None, 1, 0]
    assert "history" not in found[0]


@pytest.mark.req("A2")
def test_pages_are_linked_and_tell_every_job_once(caller: Caller, queue: Queue) -> None:
    jobs = [new_job() for _ in range(25)]
    for job in jobs:
        queue.submit(job)
    pages = walk(caller, f"{FIRST}?limit=10")
    assert [len(one) for one in pages] == [10, 10, 5]
    assert [one for part in pages for one in part] == [job.id for job in reversed(jobs)]


@pytest.mark.req("A2")
def test_filters_may_be_joined_and_stay_with_the_next_page(caller: Caller, queue: Queue) -> None:
    for _ in range(4):
        queue.submit(new_job())
        attempt = claim_one(queue)
        queue.fail(attempt.job.id, attempt.token, ErrorKind.AUTH, "no")
    for _ in range(3):
        job = new_job()
        queue.submit(job)
        queue.cancel(job.id, "acme")
    queue.submit(new_job())
    assert [len(one) for one in walk(caller, f"{FIRST}?state=failed&limit=3")] == [3, 1]
    both = walk(caller, f"{FIRST}?state=failed&state=cancelled&limit=4")
    assert [len(one) for one in both] == [4, 3]
    assert [len(one) for one in walk(caller, f"{FIRST}?state=running")] == [0]
    assert [len(one) for one in walk(caller, f"{FIRST}?kind=generation")] == [0]
    assert [len(one) for one in walk(caller, f"{FIRST}?kind=prompt&state=queued")] == [1]


@pytest.mark.req("A2")
def test_a_page_looks_at_a_bounded_number_of_jobs_and_links_on(
    caller: Caller, queue: Queue
) -> None:
    rare = new_job()
    queue.submit(rare)
    queue.cancel(rare.id, "acme")
    for _ in range(LOOKED_AT_MAX + 50):
        queue.submit(new_job())
    assert walk(caller, f"{FIRST}?state=cancelled") == [[], [rare.id]]


@pytest.mark.req("A25", "A16")
def test_the_jobs_of_one_prompt_are_found_with_their_lineage(caller: Caller, queue: Queue) -> None:
    job = new_job()
    queue.submit(job)
    queue.submit(new_job())
    chain = [job.id]
    for _ in range(3):
        queue.cancel(chain[-1], "acme")
        chain.append(new_id())
        queue.supersede(chain[-2], chain[-1], "acme", "ada")
    address = f"{FIRST}?prompt_id={job.prompt_id}"
    assert walk(caller, f"{address}&limit=3") == [chain[:0:-1], [chain[0]]]
    found = page(caller, address)[0]
    assert {one["root_id"] for one in found} == {job.id}
    assert [one["superseded_by"] for one in found] == [None, *chain[:0:-1]]
    assert {one["outcome"] for one in found[1:]} == {"cancelled"}
    assert walk(caller, f"{address}&state=queued") == [[chain[-1]]]
    assert walk(caller, f"{FIRST}?prompt_id={new_id()}") == [[]]


@pytest.mark.req("A2")
def test_since_leaves_out_what_moved_before(caller: Caller, queue: Queue, redis: Redis) -> None:
    jobs = [new_job() for _ in range(6)]
    for number, job in enumerate(jobs):
        queue.submit(job)
        redis.hset(keys.JOB(job.id), "updated_at", 1_700_000_000_000 + number * 1000)
    since = "since=2023-11-14T22:13:23Z"
    newest = [job.id for job in jobs[:2:-1]]
    assert walk(caller, f"{FIRST}?{since}") == [newest]
    assert walk(caller, f"{FIRST}?{since}&limit=2") == [newest[:2], newest[2:]]
    assert walk(caller, f"{FIRST}?{since}&prompt_id={jobs[0].prompt_id}") == [[]]


@pytest.mark.req("X12")
def test_another_organisation_sees_none_of_it(
    caller: Caller, make_caller: Callable[[str, str], Caller], queue: Queue
) -> None:
    job = new_job()
    queue.submit(job)
    stranger = make_caller("rival", "rob")
    assert walk(stranger, FIRST) == [[]]
    assert walk(stranger, f"{FIRST}?prompt_id={job.prompt_id}") == [[]]


@pytest.mark.req("X3")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("state=done", "state"),
        ("kind=none", "kind"),
        ("prompt_id=none", "prompt_id"),
        ("cursor=abc", "cursor"),
        ("since=now", "since"),
        ("sort=asc", "sort"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(caller: Caller, query: str, field: str) -> None:
    answer = caller.get(f"{FIRST}?{query}")
    assert answer.status_code == 422
    fields = [error["field"] for error in answer.json["errors"]]  # type: ignore[index]
    assert [one.split(".")[0] for one in fields] == [field]
