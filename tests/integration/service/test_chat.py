"""Does a message get its answer, or an honest word about why there is none yet?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import TestResponse

from jobs.domain.escalation import Delivery
from jobs.domain.escalation_text import escalation_text
from jobs.domain.request_ids import job_id_of
from jobs.runtime import Runtime
from jobs.store.events import Event, Events
from service.context import fanout_of
from service.request_views import CANCELLED_TEXT
from tests.integration.service.chat_caller import (
    ESCALATES,
    FAILS,
    GIVES_UP,
    KEYS,
    ChatCaller,
    chat_app,
    crew_at_work,
    formation_file,
    request_id_in,
)
from tests.integration.service.team_caller import stored_jobs
from tests.support.waiting import wait_until


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], tmp_path: Path) -> Runtime:
    return make_runtime(formation_keys=KEYS, formation_file=formation_file(tmp_path))


def data_of(answer: TestResponse) -> dict[str, Any]:
    assert answer.json is not None
    data: dict[str, Any] = answer.json["data"]
    return data


@pytest.mark.req("C1")
def test_a_message_is_answered_with_the_text_of_its_turn(ada: ChatCaller, runtime: Runtime) -> None:
    with crew_at_work(runtime):
        answer = ada.chat("Say hello.")
    assert answer.status_code == 200
    request_id = request_id_in(answer)
    assert answer.json is not None
    assert (answer.json["object"], answer.json["type"]) == ("chat_response", "chat.turn.completed")
    assert answer.json["success"] is True
    data = data_of(answer)
    assert (data["role"], data["status"]) == ("assistant", "completed")
    assert data["content"].startswith("This is mock text")
    assert data["metadata"] == {"escalated": False, "request_id": request_id, "delivery": None}
    assert ada.request(request_id)["result"] == data["content"]


@pytest.mark.req("C2", "C8", "C10")
def test_a_turn_that_fails_is_200_with_the_fixed_text_and_goes_on(
    ada: ChatCaller, runtime: Runtime
) -> None:
    with crew_at_work(runtime):
        answer = ada.chat(ESCALATES)
        request_id = request_id_in(answer)
        assert ada.ended(request_id)["status"] == "completed"
    assert answer.status_code == 200
    data = data_of(answer)
    assert data["status"] == "escalated"
    assert data["content"] == escalation_text(request_id, Delivery.POLLING)
    assert data["metadata"] == {
        "escalated": True,
        "request_id": request_id,
        "delivery": "polling",
    }


@pytest.mark.req("C8", "C10")
@pytest.mark.parametrize(
    ("user", "webhook_url", "delivery"),
    [
        ("ada", "https://example.org/hook", "notification_channel"),
        (None, "https://example.org/hook", "webhook"),
        (None, None, "polling"),
    ],
)
def test_how_the_outcome_arrives_is_chosen_and_told(
    make_runtime: Callable[..., Runtime],
    tmp_path: Path,
    user: str | None,
    webhook_url: str | None,
    delivery: str,
) -> None:
    channel = {"notifications": {"channel": {"url": "https://example.org/channel"}}}
    path = formation_file(tmp_path, proactive=channel)
    runtime = make_runtime(formation_keys=KEYS, formation_file=path)
    with chat_app(runtime) as any_user, crew_at_work(runtime):
        body = {} if webhook_url is None else {"webhook_url": webhook_url}
        answer = replace(any_user, user=user).chat(ESCALATES, body)
    assert data_of(answer)["metadata"]["delivery"] == delivery
    text = escalation_text(request_id_in(answer), Delivery(delivery))
    assert data_of(answer)["content"] == text
    view = runtime.turns.read(str(job_id_of(request_id_in(answer))))
    assert view is not None
    assert view.webhook_url == (webhook_url if delivery == "webhook" else None)


@pytest.mark.req("C10")
def test_the_formations_webhook_counts_where_the_message_names_none(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    path = formation_file(tmp_path, **{"async": {"webhook_url": "https://example.org/all"}})
    runtime = make_runtime(formation_keys=KEYS, formation_file=path)
    with chat_app(runtime) as caller, crew_at_work(runtime):
        for own, expected in (
            ({}, "https://example.org/all"),
            ({"webhook_url": "https://example.org/own"}, "https://example.org/own"),
        ):
            answer = caller.chat(ESCALATES, own)
            view = runtime.turns.read(str(job_id_of(request_id_in(answer))))
            assert view is not None
            assert (view.delivery, view.webhook_url) == (Delivery.WEBHOOK, expected)


@pytest.mark.req("C3")
def test_a_failure_that_no_plan_gets_round_is_the_error_itself(
    ada: ChatCaller, runtime: Runtime
) -> None:
    with crew_at_work(runtime):
        answer = ada.chat(FAILS)
    assert (answer.status_code, answer.mimetype) == (502, "application/problem+json")
    assert answer.json is not None
    assert answer.json["type"] == "urn:genqueue:problem:turn-failed"
    assert answer.json["error_kind"] == "auth"
    request_id = answer.json["request_id"]
    assert answer.headers["Location"] == f"/v1/requests/{request_id}"
    status = ada.request(request_id)
    assert status["status"] == "failed"
    assert status["error"] == {"kind": "auth", "message": answer.json["detail"]}
    assert not {"escalated", "report"} & set(status)


@pytest.mark.req("C3")
@pytest.mark.parametrize("awaiting", ["clarification", "approval", "credential"])
def test_a_turn_that_waits_for_a_human_is_answered_with_its_question(
    make_runtime: Callable[..., Runtime], tmp_path: Path, awaiting: str
) -> None:
    path = formation_file(tmp_path, overlord={"workflow": {"planning": True}})
    runtime = make_runtime(formation_keys=KEYS, formation_file=path)
    with chat_app(runtime) as caller, crew_at_work(runtime):
        answer = caller.chat(f"Delete it all [[mock planning awaiting={awaiting}]]")
    assert answer.status_code == 200
    data = data_of(answer)
    assert data["status"] == f"awaiting_{awaiting}"
    assert data["metadata"]["awaiting"] == awaiting
    assert data["metadata"]["escalated"] is False
    status = caller.request(request_id_in(answer))
    assert (status["status"], status["question"]) == (data["status"], data["content"])


@pytest.mark.req("C3")
def test_a_turn_that_is_cancelled_meanwhile_returns_its_cancellation(
    ada: ChatCaller, redis: Redis
) -> None:
    answers: list[TestResponse] = []
    thread = threading.Thread(target=lambda: answers.append(ada.again().chat()))
    thread.start()
    (job_id,) = wait_until(lambda: stored_jobs(redis), 10, "the turn is stored")
    assert ada.delete(f"req_{job_id.replace('-', '')}").status_code == 200
    thread.join(10)
    (answer,) = answers
    assert answer.status_code == 200
    assert (data_of(answer)["status"], data_of(answer)["content"]) == ("cancelled", CANCELLED_TEXT)


@pytest.mark.req("C1", "A27")
def test_a_turn_that_is_not_over_in_time_is_202_and_goes_on(
    ada: ChatCaller, runtime: Runtime
) -> None:
    began_s = time.monotonic()
    answer = ada.chat(Prefer="wait=1")
    assert 0.9 < time.monotonic() - began_s < 3
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "wait=1"
    assert (data_of(answer)["status"], data_of(answer)["content"]) == ("processing", None)
    request_id = request_id_in(answer)
    assert ada.request(request_id)["status"] == "queued"
    at_once = ada.chat(Prefer="respond-async")
    assert (at_once.status_code, at_once.headers["Preference-Applied"]) == (202, "respond-async")
    with crew_at_work(runtime):
        assert ada.ended(request_id)["status"] == "completed"


@pytest.mark.req("C1", "A27")
def test_where_no_place_is_left_to_wait_in_the_answer_is_202_at_once(
    make_runtime: Callable[..., Runtime],
) -> None:
    runtime = make_runtime(formation_keys=KEYS, stream_limit=1, stream_limit_per_org=1)
    with chat_app(runtime) as caller:
        fanout = fanout_of(caller.http.application)
        with fanout.subscribe(runtime.formation.id):
            began_s = time.monotonic()
            answer = caller.chat()
            assert (answer.status_code, time.monotonic() - began_s < 5) == (202, True)
            assert request_id_in(answer)
        assert fanout.clients == 0


class DeafEvents(Events):
    """A stream of which nothing is heard: the signal is cut."""

    def read(self, positions: Mapping[str, int], *, block_ms: int) -> dict[str, list[Event]]:
        del positions
        threading.Event().wait(block_ms / 1000)
        return {}


@pytest.mark.req("C1")
def test_with_the_signal_cut_the_poll_still_finds_the_end(runtime: Runtime) -> None:
    deaf = replace(runtime, events=DeafEvents(runtime.redis))
    began_s = time.monotonic()
    with chat_app(deaf) as caller, crew_at_work(runtime):
        answer = caller.chat("[[mock delay=0.3]]")
    assert answer.status_code == 200
    assert time.monotonic() - began_s < 5


@pytest.mark.req("X4")
@pytest.mark.case("IDEM-01")
def test_the_same_key_is_the_same_request_as_it_is_now(
    ada: ChatCaller, runtime: Runtime, redis: Redis
) -> None:
    first = ada.chat(ESCALATES, Idempotency_Key="k", Prefer="wait=0")
    assert (first.status_code, "Idempotency-Replayed" in first.headers) == (202, False)
    request_id = request_id_in(first)
    with crew_at_work(runtime, is_for_turns=True):
        escalated = ada.chat(ESCALATES, Idempotency_Key="k")
    assert (request_id_in(escalated), data_of(escalated)["status"]) == (request_id, "escalated")
    assert escalated.headers["Idempotency-Replayed"] == "true"
    with crew_at_work(runtime):
        ada.ended(request_id)
    for preference in ("wait=5", "respond-async"):
        achieved = ada.chat(ESCALATES, Idempotency_Key="k", Prefer=preference)
        assert (achieved.status_code, request_id_in(achieved)) == (200, request_id)
        assert data_of(achieved)["status"] == "completed"
        assert data_of(achieved)["metadata"]["escalated"] is True
        assert data_of(achieved)["content"] == ada.request(request_id)["result"]


@pytest.mark.req("X4", "C8")
def test_a_repeat_after_the_chain_gave_up_is_200_with_the_report(
    ada: ChatCaller, runtime: Runtime
) -> None:
    with crew_at_work(runtime):
        first = ada.chat(GIVES_UP, Idempotency_Key="k")
        request_id = request_id_in(first)
        report = ada.ended(request_id)["report"]
        repeat = ada.chat(GIVES_UP, Idempotency_Key="k")
    assert (repeat.status_code, request_id_in(repeat)) == (200, request_id)
    assert repeat.json is not None
    assert (repeat.json["success"], repeat.json["type"]) == (False, "chat.turn.failed")
    data = data_of(repeat)
    assert (data["status"], data["content"]) == ("failed", None)
    assert data["metadata"]["escalated"] is True
    assert data["metadata"]["report"] == report


@pytest.mark.req("X4")
def test_another_message_under_the_same_key_is_422_and_names_the_request(
    ada: ChatCaller, redis: Redis
) -> None:
    first = ada.chat("one", Idempotency_Key="k", Prefer="wait=0")
    hook = {"webhook_url": "https://example.org/hook"}
    for message, body in (("two", {}), ("one", hook)):
        answer = ada.chat(message, body, Idempotency_Key="k", Prefer="wait=0")
        assert answer.status_code == 422
        assert answer.json is not None
        assert answer.json["type"].endswith("idempotency-key-reused")
        assert request_id_in(first) in answer.json["errors"][0]["reason"]
    assert len(stored_jobs(redis)) == 1


@pytest.mark.req("X4")
def test_fifty_messages_at_once_under_one_key_are_one_request(
    ada: ChatCaller, redis: Redis
) -> None:
    barrier = threading.Barrier(50)
    found: list[str] = []

    def send() -> None:
        caller = ada.again()
        barrier.wait(20)
        found.append(request_id_in(caller.chat("one", Idempotency_Key="k", Prefer="wait=0")))

    threads = [threading.Thread(target=send) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(found), len(set(found))) == (50, 1)
    assert len(stored_jobs(redis)) == 1
