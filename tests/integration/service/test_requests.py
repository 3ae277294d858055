"""Can a request be followed and ended by whoever made it? (C15)"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.domain.canonical_json import canonical_json
from jobs.domain.give_up_report import report_markdown
from jobs.runtime import Runtime
from tests.integration.service.chat_caller import (
    ESCALATES,
    FAILS,
    GIVES_UP,
    KEYS,
    ChatCaller,
    crew_at_work,
    formation_file,
    request_id_in,
)
from tests.support.waiting import wait_until


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], tmp_path: Path) -> Runtime:
    return make_runtime(formation_keys=KEYS, formation_file=formation_file(tmp_path))


def submitted(ada: ChatCaller, message: str = "Hello") -> str:
    """A request that nobody waits for."""
    return request_id_in(ada.chat(message, Prefer="wait=0"))


@pytest.mark.req("C15")
def test_a_request_is_told_in_the_documented_shape_while_it_waits_and_when_it_is_done(
    ada: ChatCaller, runtime: Runtime
) -> None:
    request_id = submitted(ada)
    answer = ada.get(f"/v1/requests/{request_id}")
    body: Any = answer.json
    created_at = body["data"].pop("created_at")
    assert body == {
        "object": "request_status",
        "type": "request.status.retrieved",
        "success": True,
        "data": {
            "request_id": request_id,
            "user_id": "ada",
            "status": "queued",
            "ended_at": None,
        },
    }
    with crew_at_work(runtime):
        data = ada.ended(request_id)
    assert set(data) == {"request_id", "user_id", "status", "created_at", "ended_at", "result"}
    assert (data["status"], data["created_at"]) == ("completed", created_at)
    assert data["ended_at"] >= created_at


@pytest.mark.req("C15", "C11")
def test_an_escalated_request_says_so_from_the_start_of_its_chain(
    ada: ChatCaller, runtime: Runtime
) -> None:
    with crew_at_work(runtime, is_for_turns=True):
        request_id = request_id_in(ada.chat(ESCALATES))
    waiting = ada.request(request_id)
    assert (waiting["status"], waiting["escalated"]) == ("queued", True)
    assert not {"result", "report", "error"} & set(waiting)
    with crew_at_work(runtime):
        data = ada.ended(request_id)
    assert (data["status"], data["escalated"]) == ("completed", True)
    assert data["result"]
    assert "report" not in data


@pytest.mark.req("C15", "C13", "C5")
def test_a_chain_that_gave_up_is_failed_with_its_report(ada: ChatCaller, runtime: Runtime) -> None:
    with crew_at_work(runtime):
        request_id = request_id_in(ada.chat(GIVES_UP))
        data = ada.ended(request_id)
    assert (data["status"], data["escalated"]) == ("failed", True)
    report = data["report"]
    assert list(report) == [
        *("state", "detail", "request_id", "original_message", "attempts"),
        *("what_would_unblock", "wall_time_seconds"),
    ]
    assert report["state"] in {"budget_exhausted", "stuck"}
    assert (report["request_id"], report["original_message"]) == (request_id, GIVES_UP)
    assert report["attempts"][0]["kind"] == "sync"
    assert {attempt["kind"] for attempt in report["attempts"][1:]} == {"async"}
    assert canonical_json(report) == canonical_json(ada.request(request_id)["report"])


@pytest.mark.req("C13")
def test_people_may_have_the_report_as_markdown(ada: ChatCaller, runtime: Runtime) -> None:
    with crew_at_work(runtime):
        request_id = request_id_in(ada.chat(GIVES_UP))
        report = ada.ended(request_id)["report"]
    for accept, mimetype in (
        ("text/markdown", "text/markdown"),
        ("text/markdown, application/json;q=0.5", "text/markdown"),
        ("text/*", "text/markdown"),
        ("application/json", "application/json"),
        ("application/json, text/markdown;q=0.5", "application/json"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("", "application/json"),
    ):
        answer = ada.get(f"/v1/requests/{request_id}", Accept=accept)
        assert (answer.status_code, answer.mimetype) == (200, mimetype), accept
        assert "Accept" in answer.headers["Vary"]
        if mimetype == "text/markdown":
            assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
            assert answer.get_data(as_text=True) == report_markdown(report)


@pytest.mark.req("C13", "C15")
def test_without_a_report_there_is_only_json(ada: ChatCaller) -> None:
    request_id = submitted(ada)
    answer = ada.get(f"/v1/requests/{request_id}", Accept="text/markdown")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")


@pytest.mark.req("C15", "X3")
@pytest.mark.parametrize(
    "request_id",
    [
        *(f"req_{'0' * 32}", f"req_{'0' * 31}", f"req_{'0' * 33}", f"REQ_{'0' * 32}"),
        *(f"req_{'A' * 32}", f"req_{'g' * 32}", "0" * 32, "req_", "x", "%00", "%0a", "..%2f"),
        *("0123abcd-0000-4000-8000-00000000beef", "é", f"req_{'0' * 32}%0a"),
    ],
)
def test_what_is_no_request_is_404(ada: ChatCaller, request_id: str) -> None:
    for method in ("GET", "DELETE"):
        answer = ada.http.open(f"/v1/requests/{request_id}", method=method, headers=ada.headers)
        assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")


@pytest.mark.req("C21", "C15")
def test_jobs_and_prompts_of_others_are_no_requests(ada: ChatCaller, runtime: Runtime) -> None:
    key = runtime.credentials.create(runtime.formation.id, "ann")[1]
    headers = {"Authorization": f"Bearer {key}"}
    made: Any = ada.http.post("/v1/prompt", json={"prompt": "hello"}, headers=headers).json
    for entity_id in (made["job_id"], made["prompt_id"]):
        request_id = f"req_{entity_id.replace('-', '')}"
        assert ada.get(f"/v1/requests/{request_id}").status_code == 404
        assert ada.delete(request_id).status_code == 404


@pytest.mark.req("C15")
def test_a_request_that_waits_is_cancelled_and_stays_so(ada: ChatCaller, runtime: Runtime) -> None:
    request_id = submitted(ada)
    first, again = ada.delete(request_id), ada.delete(request_id)
    for answer in (first, again):
        assert answer.status_code == 200
        body: Any = answer.json
        assert (body["object"], body["success"]) == ("request_status", True)
        assert (body["data"]["request_id"], body["data"]["status"]) == (request_id, "cancelled")
        assert not {"escalated", "report", "error"} & set(body["data"])
    assert first.json == again.json
    with crew_at_work(runtime):
        # A later one is run, and this one is not.
        ada.ended(submitted(ada))
    assert ada.request(request_id)["status"] == "cancelled"


@pytest.mark.req("C15")
@pytest.mark.parametrize(("message", "status"), [("Hello", "completed"), (FAILS, "failed")])
def test_a_request_that_has_ended_stays_as_it_is(
    ada: ChatCaller, runtime: Runtime, message: str, status: str
) -> None:
    with crew_at_work(runtime):
        request_id = submitted(ada, message)
        before = ada.ended(request_id)
    answer = ada.delete(request_id)
    assert (answer.status_code, answer.mimetype) == (409, "application/problem+json")
    body: Any = answer.json
    assert body["type"] == "urn:genqueue:problem:request-ended"
    assert status in body["detail"]
    assert ada.request(request_id) == before


@pytest.mark.req("C15", "C11", "C18")
def test_a_cancelled_chain_is_abandoned_and_this_answer_is_all_the_notice(
    ada: ChatCaller, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with crew_at_work(runtime, is_for_turns=True):
        request_id = request_id_in(ada.chat(ESCALATES))
    caplog.set_level(logging.INFO)
    caplog.clear()
    body: Any = ada.delete(request_id).json
    assert (body["data"]["status"], body["data"]["escalated"]) == ("cancelled", True)
    assert body["data"]["report"]["state"] == "abandoned"
    assert ada.delete(request_id).json == body
    (line,) = (one for one in caplog.records if "response.retry.terminal" in one.getMessage())
    fields = vars(line)["fields"]
    assert line.levelname == "WARNING"
    assert (fields["request_id"], fields["state"]) == (request_id, "abandoned")


@pytest.mark.req("C15")
def test_a_turn_that_runs_is_broken_off(ada: ChatCaller, runtime: Runtime) -> None:
    with crew_at_work(runtime):
        request_id = submitted(ada, "[[mock hang]]")
        wait_until(
            lambda: ada.request(request_id)["status"] == "processing", 10, "the turn is running"
        )
        assert ada.delete(request_id).status_code == 200
        # Both threads of the crew are free again only where the call was broken off.
        for _ in range(2):
            ada.ended(submitted(ada))
    assert ada.request(request_id)["status"] == "cancelled"
