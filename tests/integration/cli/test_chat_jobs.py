"""Does an operator find and steer chat requests by the id that their callers hold? (A22, C15)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, ChainState, Failure, NextAttempt
from jobs.domain.job import Kind
from jobs.domain.request_ids import request_id_of
from jobs.domain.states import State
from jobs.domain.turn_left import TurnLeft
from jobs.runtime import Runtime
from jobs.store.turn_codec import next_job_id
from jobs.store.turns import RequestStatus
from tests.integration.cli.conftest import Invoke, Submit
from tests.support.chains import new_turn
from tests.support.ended_chains import POLICY, end_chain
from tests.support.factories import claim_one, new_id
from tests.support.stored_generations import new_generation, open_to
from tests.support.stored_steps import new_step

pytestmark = pytest.mark.req("A22")
ReadJson = Callable[..., Any]
URL = "https://example.com/hook"


@pytest.fixture
def escalated(runtime: Runtime) -> tuple[str, str]:
    """As `escalate` makes one."""
    return escalate(runtime)


def escalate(runtime: Runtime) -> tuple[str, str]:
    """A turn that failed and goes on: its job, and that of its second attempt, which is queued."""
    new = new_turn()
    runtime.turns.submit(new)
    attempt = claim_one(runtime.queue)
    entry = AttemptEntry(1, None, Failure(ErrorKind.TIMEOUT, "no answer"))
    left = TurnLeft(entry=entry, next=NextAttempt(0), policy=POLICY)
    runtime.queue.fail(new.id, attempt.token, ErrorKind.TIMEOUT, "no answer", turn=left)
    return new.id, next_job_id(new.id)


def job_of(kind: Kind, runtime: Runtime) -> str:
    """A job of this kind that has not begun."""
    new: Any
    match kind:
        case Kind.PROMPT:
            raise AssertionError("a prompt is retried")
        case Kind.GENERATION:
            open_to(runtime.redis, "acme")
            new = new_generation()
            runtime.generations.submit(new)
        case Kind.STEP:
            new = new_step()
            runtime.steps.submit(new)
        case Kind.CHAT:
            new = new_turn()
            runtime.turns.submit(new)
        case Kind.ESCALATION:
            return escalate(runtime)[1]
    return str(new.id)


@pytest.mark.req("A16")
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.PROMPT])
def test_what_is_not_retried_is_refused_with_the_way_on(
    invoke: Invoke, runtime: Runtime, kind: Kind
) -> None:
    job_id = job_of(kind, runtime)
    runtime.queue.cancel(job_id, "acme")

    done = invoke("retry-job", job_id)

    assert (done.exit_code, done.stdout) == (1, "")
    refusal = f"Job {job_id} is of kind {kind}, which is not retried: "
    assert done.stderr.startswith(refusal)
    way_on = done.stderr.removeprefix(refusal)
    assert "again" in way_on
    assert way_on != "submit it again.\n", "each kind has a way of its own"


def test_every_kind_of_job_is_told_in_the_list(
    invoke: Invoke, submit: Submit, escalated: tuple[str, str]
) -> None:
    prompt = submit()

    table = invoke("list-jobs").stdout.splitlines()

    kinds = dict(line.split()[:3:2] for line in table)
    assert kinds == {
        "job": "org",
        prompt: "prompt",
        escalated[0]: "chat",
        escalated[1]: "escalation",
    }


@pytest.mark.req("C15")
def test_the_details_of_an_attempt_tell_its_request_and_how_far_that_is(
    invoke: Invoke, invoke_json: ReadJson, escalated: tuple[str, str]
) -> None:
    request_id = request_id_of(escalated[0])
    for number, job_id in enumerate(escalated, start=1):
        assert invoke_json("job-details", job_id)["request"] == {
            "request_id": request_id,
            "attempt": number,
            "status": "queued",
            "escalated": True,
            "attempts": 1,
            "state": None,
            "detail": "",
        }
    shown = invoke("job-details", escalated[1]).stdout
    for name, value in (
        ("kind", "escalation"),
        ("request id", request_id),
        ("attempt of it", "2"),
        ("request", "queued"),
        ("chain", "goes on"),
    ):
        assert [name, value] in _fields(shown)


@pytest.mark.req("C11")
def test_the_details_tell_how_a_chain_ended(
    invoke: Invoke, invoke_json: ReadJson, runtime: Runtime
) -> None:
    job_id = end_chain(runtime.turns, runtime.queue, URL)

    told = invoke_json("job-details", request_id_of(job_id))

    assert told["job"]["id"] == job_id
    assert told["request"]["status"] == RequestStatus.FAILED
    assert told["request"]["state"] == ChainState.BUDGET_EXHAUSTED
    assert told["request"]["attempts"] == 2
    chain = ["chain", "budget_exhausted: all 1 async attempt(s) failed"]
    assert chain in _fields(invoke("job-details", job_id).stdout)


def test_a_prompt_has_no_request(invoke_json: ReadJson, submit: Submit) -> None:
    assert "request" not in invoke_json("job-details", submit())


@pytest.mark.req("C15", "C11")
def test_a_request_is_cancelled_by_its_id_whichever_attempt_is_under_way(
    invoke: Invoke, invoke_json: ReadJson, runtime: Runtime, escalated: tuple[str, str]
) -> None:
    request_id = request_id_of(escalated[0])
    claim_one(runtime.queue)

    told = invoke_json("cancel-job", request_id.upper())

    assert told == {
        "job_id": escalated[0],
        "request_id": request_id,
        "state": "cancelled",
        "cancelled_now": True,
    }
    view = runtime.turns.read(escalated[0])
    assert view is not None
    assert (view.status, view.state) == (RequestStatus.CANCELLED, ChainState.ABANDONED)
    assert invoke_json("job-details", escalated[1])["job"]["state"] == State.CANCELLED
    assert invoke_json("cancel-job", request_id)["cancelled_now"] is False
    again = invoke("cancel-job", request_id).stdout
    assert again == f"Request {request_id} had ended already: it is cancelled.\n"


@pytest.mark.req("C15")
def test_a_first_job_that_has_ended_is_not_cancelled_by_its_own_id_and_names_what_goes_on(
    invoke: Invoke, runtime: Runtime, escalated: tuple[str, str]
) -> None:
    request_id = request_id_of(escalated[0])

    done = invoke("cancel-job", escalated[0])

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"Job {escalated[0]} had ended already: it is failed.",
        f"Its request goes on: genqueue cancel-job {request_id}",
    ]
    view = runtime.turns.read(escalated[0])
    assert view is not None
    assert not view.has_ended
    cancelled = invoke("cancel-job", request_id).stdout
    assert cancelled == f"Cancelled request {request_id}, which was queued.\n"
    assert "goes on" not in invoke("cancel-job", escalated[0]).stdout


@pytest.mark.req("C15")
def test_a_turn_that_was_answered_is_not_cancelled(invoke_json: ReadJson, runtime: Runtime) -> None:
    new = new_turn()
    runtime.turns.submit(new)
    attempt = claim_one(runtime.queue)
    runtime.queue.fail(new.id, attempt.token, ErrorKind.AUTH, "no key")

    told = invoke_json("cancel-job", request_id_of(new.id))

    assert (told["state"], told["cancelled_now"]) == ("failed", False)


@pytest.mark.parametrize("command", ["job-details", "cancel-job", "retry-job"])
def test_no_other_job_goes_by_the_id_of_a_request(
    invoke: Invoke, invoke_json: ReadJson, submit: Submit, command: str
) -> None:
    prompt = submit()
    for named, what in ((request_id_of(prompt), "request"), (request_id_of(new_id()), "job")):
        done = invoke(command, named)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"There is no {what} ")
    assert invoke_json("job-details", prompt)["job"]["state"] == "queued"


def _fields(shown: str) -> list[list[str]]:
    """Names and values of the record, which two spaces part at least."""
    lines = shown.partition("\n\n")[0].splitlines()
    return [[part.strip() for part in line.split("  ", 1)] for line in lines]
