"""How does the first conversation with the API go, and how does it fail?"""

import pytest

from service.stack import greeting
from service.stack.dev_access import DevAccess
from service.stack.errors import SampleFailedError, StackNotReadyError
from service.stack.free_port import free_port
from service.stack.sample import SAMPLE_FIELDS, GenerationAnswer, SampleAnswer, StackClient
from tests.unit.stack.played_api import GENERATIONS, JOB, KEY, TOKEN, Api, Played, generation

RUNNING = {"id": "j1", "state": "running", "terminal": False}


def no_pause(_seconds: float) -> None:
    return None


def test_the_sample_is_submitted_polled_and_fetched(api: Api) -> None:
    api.looks = [RUNNING, RUNNING, JOB]
    answer = StackClient(api.url, no_pause).run_sample(KEY)
    assert (answer.text, answer.provider, answer.job_id) == ("beep", "mock", "j1")
    look = "GET /v1/jobs/j1"
    assert api.seen == ["POST /v1/prompt", look, look, look, "GET /v1/prompts/p1"]


def test_a_failed_sample_says_how_its_job_ended(api: Api) -> None:
    api.looks = [JOB | {"state": "failed", "error_kind": "auth", "error_message": "no such key"}]
    with pytest.raises(SampleFailedError, match="j1 ended failed, auth: no such key"):
        StackClient(api.url, no_pause).run_sample(KEY)


def test_a_sample_that_does_not_end_is_given_up(api: Api) -> None:
    api.looks = [RUNNING]
    with pytest.raises(SampleFailedError, match="j1 is still running"):
        StackClient(api.url, no_pause).run_sample(KEY, within_s=0.05)


def test_a_refused_sample_says_the_status(api: Api) -> None:
    with pytest.raises(SampleFailedError, match="submit answered 401"):
        StackClient(api.url, no_pause).run_sample("gq_unknown")


def test_the_wait_goes_on_until_the_api_is_ready(api: Api) -> None:
    api.ready = [503, 503, 200]
    StackClient(api.url, no_pause).wait_until_ready()
    assert api.seen == ["GET /readyz"] * 3


def test_an_api_that_never_gets_ready_is_told_with_its_last_answer(api: Api) -> None:
    api.ready = [503]
    with pytest.raises(StackNotReadyError, match=r"status 503.*redis is loading"):
        StackClient(api.url, no_pause).wait_until_ready(within_s=0.05)


def test_an_api_that_does_not_listen_is_told_as_no_answer() -> None:
    client = StackClient(f"http://127.0.0.1:{free_port()}", no_pause)
    with pytest.raises(StackNotReadyError, match="no answer"):
        client.wait_until_ready(within_s=0.05)


def test_an_answer_of_the_mock_is_called_made_up_and_one_of_a_provider_is_not() -> None:
    made_up = SampleAnswer(prompt="p", text="t", job_id="j", provider="mock", took_s=0.1)
    real = SampleAnswer(prompt="p", text="t", job_id="j", provider="openai", took_s=0.1)
    assert "made up" in greeting.sample(made_up)
    assert "made up" not in greeting.sample(real)


@pytest.mark.req("B1", "B4")
def test_the_sample_generation_is_submitted_and_collected_until_it_ended(api: Api) -> None:
    result = {"text": "Welcome!", "fields": {"subject_line": "Hi"}}
    pending = Played(202, generation("pending"))
    api.submitted = pending
    api.collected = [pending, pending, Played(200, generation("succeeded", result=result))]
    answer = StackClient(api.url, no_pause).run_generation(TOKEN, SAMPLE_FIELDS)
    assert (answer.text, answer.fields, answer.generation_id) == (
        "Welcome!",
        {"subject_line": "Hi"},
        "g1",
    )
    assert answer.refusal == ""
    look = f"GET {GENERATIONS}g1/"
    assert api.seen == [f"POST {GENERATIONS}", look, look, look]
    assert api.bodies[0]["output_fields"] == dict(SAMPLE_FIELDS)


def test_a_sample_without_fields_asks_for_none(api: Api) -> None:
    StackClient(api.url, no_pause).run_generation(TOKEN, {})
    assert "output_fields" not in api.bodies[0]


@pytest.mark.req("B5")
@pytest.mark.parametrize("status", [200, 404, 429])
def test_a_sample_that_is_refused_at_submit_says_so_and_is_no_error(api: Api, status: int) -> None:
    error = {"code": "quota_exceeded", "message": "No credits."}
    api.submitted = Played(status, generation("failed", error=error))
    answer = StackClient(api.url, no_pause).run_generation(TOKEN, SAMPLE_FIELDS)
    assert answer.refusal == "quota_exceeded: No credits."
    assert "quota_exceeded: No credits." in greeting.generation(answer)
    assert api.seen == [f"POST {GENERATIONS}"]


def test_a_sample_generation_that_was_accepted_and_failed_is_an_error(api: Api) -> None:
    error = {"code": "gateway_unavailable", "message": "Nobody answered."}
    api.collected = [Played(200, generation("failed", error=error))]
    with pytest.raises(SampleFailedError, match="g1 failed, gateway_unavailable: Nobody"):
        StackClient(api.url, no_pause).run_generation(TOKEN, {})


def test_a_sample_generation_that_does_not_end_is_given_up(api: Api) -> None:
    api.collected = [Played(202, generation("pending"))]
    with pytest.raises(SampleFailedError, match="g1 is still pending"):
        StackClient(api.url, no_pause).run_generation(TOKEN, {}, within_s=0.05)


def test_a_sample_generation_with_a_wrong_token_says_the_status(api: Api) -> None:
    with pytest.raises(SampleFailedError, match="submit answered 401"):
        StackClient(api.url, no_pause).run_generation("gqt_unknown", {})


def test_a_generation_without_fields_says_why_and_one_with_fields_shows_them() -> None:
    bare = GenerationAnswer("p", "t", {}, "g1", 0.1)
    full = GenerationAnswer("p", "t", {"subject_line": "Hi"}, "g1", 0.1)
    assert "spends" in greeting.generation(bare)
    assert "spends" not in greeting.generation(full)
    assert "subject_line = Hi" in greeting.generation(full)


def test_who_starts_it_is_told_how_to_use_another_folder_or_port() -> None:
    told = greeting.addresses("http://127.0.0.1:8080", "none", DevAccess("k", "t", "c"))
    assert 'make run ARGS="--data DIR"' in told
    assert "PORT=9000 make run" in told
