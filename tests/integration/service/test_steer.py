"""Can a job be cancelled and retried over HTTP, whatever it is doing meanwhile?"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import TestResponse

from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store.queue import Queue
from tests.integration.service.conftest import Caller
from tests.support.factories import claim_one, new_id, new_job, response_for
from tests.support.invariants import problems_of


def post(caller: Caller, job_id: str, verb: str, **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return caller.http.post(f"/v1/jobs/{job_id}/{verb}", headers={**caller.headers, **named})


def cancelled(caller: Caller, job_id: str) -> dict[str, Any]:
    answer = post(caller, job_id, "cancel")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json  # type: ignore[assignment]
    return body


def submitted(queue: Queue, **changes: Any) -> str:
    job = new_job(**changes)
    queue.submit(job)
    return job.id


@pytest.mark.req("A17")
def test_a_queued_job_is_cancelled_and_never_runs(caller: Caller, queue: Queue) -> None:
    job_id = submitted(queue)
    job = cancelled(caller, job_id)
    assert (job["state"], job["terminal"], job["waiting_on"]) == ("cancelled", True, None)
    assert (job["history"][-1]["verb"], job["history"][-1]["reason"]) == ("cancel", "by ann")
    with pytest.raises(ValueError, match="not enough"):
        claim_one(queue)


@pytest.mark.req("A17")
def test_a_running_job_is_cancelled_at_once_and_its_late_result_dropped(
    caller: Caller, queue: Queue
) -> None:
    job_id = submitted(queue)
    attempt = claim_one(queue)
    assert cancelled(caller, job_id)["state"] == "cancelled"
    late = queue.succeed(job_id, attempt.token, response_for(attempt))
    assert late.answer is Answer.WRONG_STATE
    job = caller.get(f"/v1/jobs/{job_id}").json
    assert job is not None
    assert (job["state"], job["response_id"]) == ("cancelled", None)


@pytest.mark.req("A17")
def test_cancelling_what_has_ended_is_no_error_and_changes_nothing(
    caller: Caller, queue: Queue
) -> None:
    job_id = submitted(queue)
    attempt = claim_one(queue)
    queue.succeed(job_id, attempt.token, response_for(attempt))
    before = caller.get(f"/v1/jobs/{job_id}").json
    assert cancelled(caller, job_id) == before
    other = submitted(queue)
    assert cancelled(caller, other) == cancelled(caller, other)


@pytest.mark.req("A16", "X16")
def test_a_retry_is_a_new_job_and_the_old_one_keeps_how_it_ended(
    caller: Caller, queue: Queue, redis: Redis
) -> None:
    job_id = submitted(queue, max_attempts=1, priority=7)
    attempt = claim_one(queue)
    queue.fail(job_id, attempt.token, ErrorKind.AUTH, "the key was refused")
    answer = post(caller, job_id, "retry")
    assert answer.status_code == 202
    new = answer.json
    assert new is not None
    assert answer.headers["Location"] == f"/v1/jobs/{new['id']}"
    assert (new["state"], new["attempt"], new["priority"]) == ("queued", 1, 7)
    assert (new["supersedes"], new["root_id"]) == (job_id, job_id)
    assert new["waiting_on"] == {"reason": "queue", "until": None, "ahead": 0}
    old = caller.get(f"/v1/jobs/{job_id}").json
    assert old is not None
    assert (old["state"], old["outcome"]) == ("superseded", "failed")
    assert (old["error_kind"], old["superseded_by"]) == ("auth", new["id"])
    assert redis.llen("rq:queue:genqueue") >= 1
    assert problems_of(redis) == []


@pytest.mark.req("A16")
def test_a_superseded_job_names_its_successor_and_a_live_one_is_not_retried(
    caller: Caller, queue: Queue
) -> None:
    job_id = submitted(queue)
    live = post(caller, job_id, "retry")
    assert live.status_code == 409
    assert live.json["type"].endswith("job-not-ended")  # type: ignore[index]
    cancelled(caller, job_id)
    new_one = post(caller, job_id, "retry").json["id"]  # type: ignore[index]
    again = post(caller, job_id, "retry")
    assert again.status_code == 409
    assert again.json is not None
    assert again.json["type"].endswith("job-superseded")
    assert new_one in again.json["detail"]
    assert again.headers["Link"] == f'</v1/jobs/{new_one}>; rel="successor"'
    assert post(caller, new_one, "retry").status_code == 409


@pytest.mark.req("X4", "A16")
def test_a_retry_that_is_sent_again_under_its_key_answers_the_same_job(
    caller: Caller, queue: Queue
) -> None:
    job_id, other = submitted(queue), submitted(queue)
    for one in (job_id, other):
        cancelled(caller, one)
    first = post(caller, job_id, "retry", Idempotency_Key="k-1")
    assert first.status_code == 202
    assert "Idempotency-Replayed" not in first.headers
    claim_one(queue)
    repeat = post(caller, job_id, "retry", Idempotency_Key="k-1")
    assert (repeat.status_code, repeat.headers["Idempotency-Replayed"]) == (202, "true")
    assert first.json is not None
    assert repeat.json is not None
    assert repeat.json["id"] == first.json["id"]
    assert repeat.json["state"] == "running"
    assert post(caller, job_id, "retry", Idempotency_Key="k-2").status_code == 409
    reused = post(caller, other, "retry", Idempotency_Key="k-1")
    assert reused.status_code == 422
    assert reused.json["errors"][0]["field"] == "Idempotency-Key"  # type: ignore[index]
    assert post(caller, other, "retry", Idempotency_Key="no space").status_code == 422


@pytest.mark.req("X4", "A16")
def test_twenty_retries_at_once_make_one_job(caller: Caller, queue: Queue) -> None:
    job_id = submitted(queue)
    cancelled(caller, job_id)
    barrier = threading.Barrier(20)
    answers: list[int] = []

    def retry() -> None:
        own = Caller(caller.http.application.test_client(), caller.key)
        barrier.wait(10)
        answers.append(post(own, job_id, "retry").status_code)

    threads = [threading.Thread(target=retry) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [202, *[409] * 19]


@pytest.mark.req("X12")
def test_ids_of_others_and_of_nobody_are_the_same_404(
    caller: Caller, make_caller: Callable[[str, str], Caller], queue: Queue
) -> None:
    job_id = submitted(queue)
    stranger = make_caller("rival", "rob")
    for verb in ("cancel", "retry"):
        answers = [
            post(stranger, one, verb, X_Request_Id="same")
            for one in (job_id, new_id(), "no-uuid", "x" * 3000)
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.get_data() for answer in answers}) == 1
    assert caller.get(f"/v1/jobs/{job_id}").json["state"] == "queued"  # type: ignore[index]


@pytest.mark.req("A17", "A3")
@pytest.mark.case("CAN-01")
def test_a_cancel_that_races_every_other_verb_wins_or_tells_how_it_ended(
    caller: Caller, runtime: Runtime, redis: Redis
) -> None:
    dice = random.Random(1)
    queue = runtime.queue
    outcomes: set[str] = set()
    for _ in range(150):
        job_id = submitted(queue)
        start = threading.Barrier(2)

        def work(job_id: str = job_id, start: threading.Barrier = start) -> None:
            start.wait(5)
            try:
                attempt = claim_one(queue)
            except ValueError:
                return  # cancelled before it was claimed
            match dice.choice(["succeed", "fail", "retry", "snooze"]):
                case "succeed":
                    queue.succeed(job_id, attempt.token, response_for(attempt))
                case "fail":
                    queue.fail(job_id, attempt.token, ErrorKind.AUTH, "no")
                case "retry":
                    queue.retry(job_id, attempt.token, ErrorKind.TIMEOUT, "slow", 60_000)
                case _:
                    queue.snooze(job_id, attempt.token, "later", 60_000)

        thread = threading.Thread(target=work)
        thread.start()
        start.wait(5)
        told = cancelled(caller, job_id)
        thread.join()
        stored = caller.get(f"/v1/jobs/{job_id}").json
        assert stored == told, "nothing happens to a job after its cancel was answered"
        assert told["state"] in {"cancelled", "succeeded", "failed"}
        outcomes.add(told["state"])
    assert "cancelled" in outcomes
    assert problems_of(redis) == []


@pytest.mark.req("X14")
def test_every_view_of_a_waiting_job_says_why_it_waits(caller: Caller, queue: Queue) -> None:
    queue.submit(new_job())
    attempt = claim_one(queue)
    queue.retry(attempt.job.id, attempt.token, ErrorKind.TIMEOUT, "slow", 60_000)
    job = caller.get(f"/v1/jobs/{attempt.job.id}").json
    assert job is not None
    assert job["waiting_on"] == {"reason": "backoff", "until": job["run_at"], "ahead": None}
    prompt = caller.get(f"/v1/prompts/{attempt.job.prompt_id}").json
    assert prompt is not None
    assert prompt["jobs"][0]["waiting_on"] == job["waiting_on"]
