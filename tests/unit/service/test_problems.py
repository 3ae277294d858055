"""Does every error of ours have its answer?"""

from __future__ import annotations

import inspect
import json

import pytest
from flask import Flask

from jobs.domain import errors as domain
from service import errors as http
from service.errors import FieldError
from service.problems import TABLE, problem_body, problem_of

INSIDE = {
    domain.GenqueueError,
    domain.SettingsInvalidError,
    domain.AttemptError,
    domain.AttemptAbortedError,
    domain.TeamExistsError,
    domain.TeamMissingError,
}
"""Errors that no request can meet: of workers, of the start of a process, of operators."""

EXAMPLES: list[tuple[Exception, int]] = [
    (http.BodyMalformedError("is empty"), 400),
    (http.UnauthenticatedError(presented=False), 401),
    (http.ClientUnauthenticatedError(is_configured=True), 401),
    (domain.JobMissingError("j"), 404),
    (http.PromptMissingError(), 404),
    (http.RequestMissingError(), 404),
    (domain.GenerationMissingError("g"), 404),
    (domain.FeatureUnavailableError("f"), 404),
    (domain.ThrottledError(7), 429),
    (http.ContentTypeUnsupportedError("must be application/json"), 415),
    (http.PayloadInvalidError([FieldError("prompt", "is missing")]), 422),
    (domain.ModelUnknownError("m", ["a", "b"]), 422),
    (http.ModelUnavailableError("set A_KEY"), 422),
    (domain.RelatedEntityMissingError("parent_id"), 422),
    (domain.IdempotencyKeyReusedError("j"), 422),
    (http.RequestKeyReusedError("req_1"), 422),
    (http.RequestEndedError("req_1", "completed"), 409),
    (domain.StoreUnavailableError("Redis is away", 7), 503),
    (http.NotReadyError("Redis is away"), 503),
    (http.StreamsExhaustedError("client", 50, 5, is_chat=True), 503),
]


@pytest.mark.req("X3")
def test_every_error_that_a_request_can_meet_is_in_the_table() -> None:
    raised = {
        value
        for module in (domain, http)
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, domain.GenqueueError)
    }
    assert raised - INSIDE - TABLE.keys() == set()


@pytest.mark.req("X3")
@pytest.mark.parametrize(("error", "status"), EXAMPLES, ids=lambda x: type(x).__name__)
def test_a_problem_has_the_members_of_rfc_9457(error: Exception, status: int) -> None:
    with Flask("test").app_context():
        problem = problem_of(error)
    body = problem_body(problem, "r-1")
    assert list(body) == ["type", "title", "status", "detail", "errors", "request_id"]
    assert body["status"] == status == problem.status
    assert body["type"].startswith("urn:genqueue:problem:")
    assert body["title"]
    assert body["detail"]
    assert json.dumps(body)


@pytest.mark.req("C15")
def test_a_request_that_asked_something_is_over_with_its_question() -> None:
    error = http.RequestEndedError("req_1", "awaiting_approval")
    assert problem_of(error).detail == (
        "request req_1 ended with its question (awaiting_approval): nothing of it is left to cancel"
    )


@pytest.mark.req("C3", "X3")
def test_a_failed_turn_names_its_own_request_and_the_kind_of_failure() -> None:
    problem = problem_of(http.TurnFailedError("req_1", "auth", "assistant: no key"))
    body = problem_body(problem, "r-1")
    assert (body["status"], body["detail"]) == (502, "assistant: no key")
    assert body["type"] == "urn:genqueue:problem:turn-failed"
    assert (body["request_id"], body["error_kind"]) == ("req_1", "auth")
    assert problem.headers == {"Location": "/v1/requests/req_1"}


def test_what_is_not_in_the_table_says_nothing_of_itself() -> None:
    problem = problem_of(RuntimeError("s3cr3t"))
    assert problem.status == 500
    assert "s3cr3t" not in json.dumps(problem_body(problem, ""))


@pytest.mark.req("B8")
def test_who_is_to_come_back_is_told_when() -> None:
    for error in (domain.StoreUnavailableError("away", 7), domain.ThrottledError(7)):
        assert problem_of(error).headers == {"Retry-After": "7"}


@pytest.mark.req("A21", "C9")
def test_where_no_place_is_left_a_caller_is_sent_where_its_key_counts() -> None:
    for scope in ("client", "process"):
        chat = problem_of(http.StreamsExhaustedError(scope, 50, 5, is_chat=True)).detail
        assert chat.startswith(f"This {scope} has its 50 open streams.")
        assert "/v1/chat without `stream`" in chat
        assert "/v1/requests" in chat
        assert "mission" not in chat
    assert "/v1/mission/recent" in problem_of(http.StreamsExhaustedError("process", 50, 5)).detail
