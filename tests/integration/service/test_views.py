"""What does a caller get to see of jobs and prompts, and what of those of others?"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jobs.domain.entities import Response, Usage, response_id
from jobs.domain.errors import ErrorKind
from jobs.domain.states import Answer
from jobs.runtime import Runtime
from jobs.store.answers import ClaimRequest
from tests.integration.service.conftest import Caller

A2_FIELDS = {
    *("id", "prompt_id", "state", "priority", "attempt", "max_attempts", "execution_options"),
    *("worker_claim", "claimed_at", "started_at", "running_heartbeat_at", "finished_at"),
    *("response_id", "error_kind", "error_message", "supersedes", "org_id", "created_by"),
    *("created_at", "updated_at", "run_at", "scheduled_for", "depends_on", "kind"),
    "schema_version",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def submit(caller: Caller, **payload: Any) -> dict[str, Any]:
    accepted = caller.post({"prompt": "hello", **payload})
    assert accepted.status_code == 202, accepted.get_data(as_text=True)
    body: dict[str, Any] = accepted.json  # type: ignore[assignment]
    return body


def view(caller: Caller, path: str) -> dict[str, Any]:
    answer = caller.get(path)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json  # type: ignore[assignment]
    return body


def claim_one(runtime: Runtime) -> tuple[str, str]:
    token = uuid.uuid4().hex
    attempt = runtime.queue.claim(ClaimRequest(token=token, count=1, window_ms=90_000)).attempts[0]
    return attempt.job.id, attempt.token


def answer_one(runtime: Runtime, prompt_id: str, text: str = "An answer") -> str:
    job_id, token = claim_one(runtime)
    response = Response(
        id=response_id(prompt_id, "req-1", job_id, 1),
        text=text,
        provider="mock",
        model="mock-1",
        provider_request_id="req-1",
        finish_reason="stop",
        usage=Usage(3, 5),
        cost_usd_micros=7,
        source_refs=(prompt_id,),
    )
    assert runtime.queue.succeed(job_id, token, response).answer is Answer.OK
    return response.id


@pytest.mark.req("A2")
def test_a_new_job_shows_every_field_of_the_record(caller: Caller) -> None:
    accepted = submit(caller)
    job = view(caller, f"/v1/jobs/{accepted['job_id']}")
    assert set(job) >= A2_FIELDS | {"terminal", "history", "superseded_by", "model", "provider"}
    assert (job["org_id"], job["created_by"]) == ("acme", "ann")
    assert (job["state"], job["terminal"], job["attempt"]) == ("queued", False, 1)
    assert INSTANT.fullmatch(job["created_at"])
    assert job["created_at"] == job["updated_at"] == job["history"][0]["at"]
    unset = {name for name in A2_FIELDS if job[name] is None}
    assert unset == {
        *("worker_claim", "claimed_at", "started_at", "running_heartbeat_at", "finished_at"),
        *("response_id", "error_kind", "error_message", "supersedes", "run_at", "scheduled_for"),
        "depends_on",
    }


@pytest.mark.req("A2", "A3")
def test_a_job_is_followed_from_submit_to_success(caller: Caller, runtime: Runtime) -> None:
    accepted = submit(caller)
    path = f"/v1/jobs/{accepted['job_id']}"
    _, token = claim_one(runtime)
    running = view(caller, path)
    assert (running["state"], running["worker_claim"]) == ("running", token)
    for name in ("claimed_at", "started_at", "running_heartbeat_at"):
        assert INSTANT.fullmatch(running[name])
    runtime.queue.fail(accepted["job_id"], token, ErrorKind.AUTH, "the key was refused")
    failed = view(caller, path)
    assert (failed["state"], failed["terminal"]) == ("failed", True)
    assert (failed["error_kind"], failed["error_message"]) == ("auth", "the key was refused")
    assert INSTANT.fullmatch(failed["finished_at"])
    moves = [(row["verb"], row["from"], row["state"], row["attempt"]) for row in failed["history"]]
    assert moves == [
        ("submit", None, "queued", 1),
        ("claim", "queued", "running", 1),
        ("fail", "running", "failed", 1),
    ]
    assert [row["seq"] for row in failed["history"]] == sorted(r["seq"] for r in failed["history"])


@pytest.mark.req("A19", "A15")
def test_a_prompt_shows_its_response_its_jobs_and_its_edges(
    caller: Caller, runtime: Runtime
) -> None:
    accepted = submit(caller, metadata={"k": 1})
    path = f"/v1/prompts/{accepted['prompt_id']}"
    before = view(caller, path)
    assert (before["response"], before["edges"]) == (None, [])
    stored = answer_one(runtime, accepted["prompt_id"])
    prompt = view(caller, path)
    created_at = prompt["response"].pop("created_at")
    assert INSTANT.fullmatch(created_at)
    assert prompt["response"] == {
        "id": stored,
        "text": "An answer",
        "model": "mock-1",
        "provider": "mock",
        "provider_request_id": "req-1",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 3, "completion_tokens": 5},
        "cost_usd_micros": 7,
        "source_refs": [accepted["prompt_id"]],
        "truth_class": "generated",
        "state_class": "settled",
    }
    assert [job["id"] for job in prompt["jobs"]] == [accepted["job_id"]]
    assert prompt["jobs"][0]["response_id"] == stored
    assert prompt["edges"] == [{"from": accepted["prompt_id"], "type": "flows-to", "to": stored}]


@pytest.mark.req("A25")
def test_the_jobs_of_a_prompt_come_oldest_first(caller: Caller, runtime: Runtime) -> None:
    accepted = submit(caller)
    answer_one(runtime, accepted["prompt_id"])
    new_id = str(uuid.uuid4())
    runtime.queue.supersede(accepted["job_id"], new_id, "acme", "ann")
    jobs = view(caller, f"/v1/prompts/{accepted['prompt_id']}")["jobs"]
    assert [(job["id"], job["state"]) for job in jobs] == [
        (accepted["job_id"], "superseded"),
        (new_id, "queued"),
    ]
    assert (jobs[0]["superseded_by"], jobs[1]["supersedes"]) == (new_id, accepted["job_id"])


@pytest.mark.req("X12")
def test_ids_of_another_org_are_answered_like_ids_that_never_were(
    caller: Caller, make_caller: Callable[[str, str], Caller]
) -> None:
    accepted = submit(caller)
    stranger = make_caller("rival", "rob")
    headers = {**stranger.headers, "X-Request-Id": "same"}
    for noun, theirs in (("jobs", accepted["job_id"]), ("prompts", accepted["prompt_id"])):
        answers = [
            stranger.http.get(f"/v1/{noun}/{one}", headers=headers)
            for one in (theirs, str(uuid.uuid4()), "no-uuid", "%00", "x" * 3000, "%ff%fe")
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.get_data() for answer in answers}) == 1
        assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1


def test_a_colleague_of_the_same_org_sees_the_job(
    caller: Caller, make_caller: Callable[[str, str], Caller]
) -> None:
    path = f"/v1/jobs/{submit(caller)['job_id']}"
    assert view(make_caller("acme", "bob"), path)["created_by"] == "ann"


def test_an_id_is_found_in_capitals_too(caller: Caller) -> None:
    job_id = submit(caller)["job_id"]
    assert view(caller, f"/v1/jobs/{job_id.upper()}")["id"] == job_id


@pytest.mark.req("A18")
def test_a_continuation_joins_the_conversation_of_its_parent(
    caller: Caller, runtime: Runtime
) -> None:
    first = submit(caller)
    answered = answer_one(runtime, first["prompt_id"])
    second = submit(caller, parent_id=answered.upper())
    third = submit(caller, parent_id=second["prompt_id"], causation_id=first["prompt_id"])
    views = [view(caller, f"/v1/prompts/{one['prompt_id']}") for one in (first, second, third)]
    assert [one["correlation_id"] for one in views] == [first["prompt_id"]] * 3
    assert [one["parent_id"] for one in views] == [None, answered, second["prompt_id"]]
    assert [one["causation_id"] for one in views] == [None, answered, first["prompt_id"]]


@pytest.mark.req("A18")
@pytest.mark.parametrize("field", ["parent_id", "correlation_id", "causation_id"])
def test_a_relation_to_another_org_is_refused_like_one_to_nothing(
    caller: Caller,
    make_caller: Callable[[str, str], Caller],
    keyspace: Callable[[], dict[bytes, bytes]],
    field: str,
) -> None:
    theirs = submit(make_caller("rival", "rob"))["prompt_id"]
    before = keyspace()
    problems = []
    for related in (theirs, str(uuid.uuid4())):
        answer = caller.post({"prompt": "hello", field: related}, X_Request_Id="same")
        assert answer.status_code == 422
        problems.append(answer.json)
    assert problems[0] == problems[1]
    assert problems[0] is not None
    assert [error["field"] for error in problems[0]["errors"]] == [field]
    assert keyspace() == before


@pytest.mark.req("A24")
@pytest.mark.case("API-03")
def test_an_archived_job_is_gone_for_its_own_org_and_never_was_for_another(
    caller: Caller, make_caller: Callable[[str, str], Caller], runtime: Runtime
) -> None:
    job_id = submit(caller)["job_id"]
    address = f"/v1/jobs/{job_id}"
    assert caller.http.post(f"{address}/cancel", headers=caller.headers).status_code == 200
    runtime.upkeep.archive([job_id])

    for answer in (
        caller.get(address),
        caller.http.post(f"{address}/cancel", headers=caller.headers),
        caller.http.post(f"{address}/retry", headers=caller.headers),
    ):
        assert answer.status_code == 410
        assert answer.content_type == "application/problem+json"
        assert "cancelled" in answer.json["detail"]  # type: ignore[index]
    assert make_caller("umbrella", "bob").get(address).status_code == 404
