"""What does a submitted generation answer, now and when it is collected? (B1-B7)"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.job import Attempt, Kind, NewGeneration
from jobs.generation_intake import Intake
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.generations import AcceptedGeneration, Generations
from service.app import create_app
from tests.integration.service.round_trips import CountingProxy, counting_proxy
from tests.integration.service.team_caller import PAYLOAD, TeamCaller, stored_jobs, team_caller
from tests.support.factories import claim_one, new_id
from tests.support.invariants import problems_of
from tests.support.redis_server import RedisServer
from tests.support.web import gunicorn

UNAVAILABLE = {
    "code": "gateway_unavailable",
    "message": COPY[GenerationCode.GATEWAY_UNAVAILABLE],
}
ENVELOPE = {"text": "Hello, Ada. 🙂", "fields": {"subject": "Hi", "body": ""}}


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """Both passes on the mock, which needs no key."""
    return make_runtime(extraction_model="mock-1")


@pytest.fixture
def team(http: FlaskClient, runtime: Runtime) -> TeamCaller:
    return team_caller(http, runtime)


def running(runtime: Runtime, team: TeamCaller, **changes: Any) -> Attempt:
    """An attempt at a generation that was submitted just now."""
    answer = team.submit(**changes)
    attempt = claim_one(runtime.queue)
    assert answer.json is not None
    assert attempt.job.id == answer.json["id"]
    return attempt


@pytest.mark.req("B1", "B4", "B5")
def test_an_accepted_generation_is_202_with_the_address_to_collect_it_at(
    team: TeamCaller, redis: Redis
) -> None:
    answer = team.submit()
    assert answer.status_code == 202
    assert answer.json is not None
    handle = answer.json["id"]
    assert answer.json == {"id": handle, "status": "pending", "result": None, "error": None}
    assert answer.headers["Location"] == f"{team.address}{handle}/"
    assert redis.llen("rq:queue:genqueue") == 1
    assert problems_of(redis) == []

    collected = team.http.get(answer.headers["Location"], headers=team.headers)
    assert (collected.status_code, collected.json) == (202, answer.json)
    assert collected.headers["Location"] == answer.headers["Location"]


@pytest.mark.req("B3", "B9", "B13")
def test_what_was_asked_for_is_what_a_worker_gets(
    team: TeamCaller, runtime: Runtime, redis: Redis
) -> None:
    fields = {"zeta": "The last letter.", "alpha": "Ein schönes Wort. 🙂"}
    attempt = running(
        runtime,
        team,
        invocation_id="run 7",
        hog_flow_id="flow-1",
        prompt="Grüße\u2028{{ name }}",
        output_fields=fields,
        wake={"token": "w" * 16},
    )
    job = attempt.job
    assert attempt.prompt_text == "Grüße\u2028{{ name }}"
    assert (job.kind, job.team_id, job.org_id) == (Kind.GENERATION, "1", "acme")
    assert (job.target, job.max_attempts) == ("mock:mock-1", 1)
    assert job.execution_options == {
        "invocation_id": "run 7",
        "hog_flow_id": "flow-1",
        "output_fields": fields,
    }
    assert list(job.execution_options["output_fields"]) == list(fields)
    # It waits for the providers of both passes.
    assert redis.hget(keys.JOB(job.id), "second_target") == "mock:mock-1"
    assert redis.smembers(keys.WAITERS(job.id)) == {"w" * 16}


@pytest.mark.req("B4", "B5", "B9")
def test_a_success_is_200_with_text_and_fields_also_for_a_resubmit(
    team: TeamCaller, runtime: Runtime, redis: Redis
) -> None:
    attempt = running(runtime, team)
    envelope = json.dumps(ENVELOPE, ensure_ascii=False)
    runtime.queue.succeed_generation(attempt.job.id, attempt.token, envelope, "")

    expected = {"id": attempt.job.id, "status": "succeeded", "result": ENVELOPE, "error": None}
    for answer in (team.collect(attempt.job.id), team.submit()):
        assert (answer.status_code, answer.json) == (200, expected)
        assert "Location" not in answer.headers
    assert stored_jobs(redis) == [attempt.job.id]


@pytest.mark.req("B4", "B5", "B6")
@pytest.mark.parametrize("code", GenerationCode)
def test_a_failure_is_200_with_its_code_and_something_to_read(
    team: TeamCaller, runtime: Runtime, code: GenerationCode
) -> None:
    attempt = running(runtime, team)
    runtime.queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "", code=code)

    for answer in (team.collect(attempt.job.id), team.submit()):
        assert answer.status_code == 200
        assert answer.json == {
            "id": attempt.job.id,
            "status": "failed",
            "result": None,
            "error": {"code": code.value, "message": COPY[code]},
        }


@pytest.mark.req("B1")
def test_without_its_last_slash_an_address_is_the_same_page(team: TeamCaller) -> None:
    posted = team.http.post(team.address.rstrip("/"), json=PAYLOAD, headers=team.headers)
    assert posted.status_code == 202
    collected = team.http.get(posted.headers["Location"].rstrip("/"), headers=team.headers)
    assert (collected.status_code, collected.json) == (202, posted.json)


def failure(answer: Any) -> dict[str, str]:
    """Code and message of a terminal failure at submit."""
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert (answer.json["status"], answer.json["result"]) == ("failed", None)
    error: dict[str, str] = answer.json["error"]
    return error


@pytest.mark.req("B5", "B6")
@pytest.mark.parametrize("model", ["gpt-9", "MOCK-1", " mock-1", "mock:mock-1"])
def test_a_model_that_there_is_not_is_a_failed_generation_and_no_job(
    team: TeamCaller, redis: Redis, model: str
) -> None:
    answer = team.submit(model=model)
    assert failure(answer) == {"code": "invalid_model", "message": COPY["invalid_model"]}  # type: ignore[index]
    assert stored_jobs(redis) == []
    assert redis.exists("rq:queue:genqueue") == 0
    assert answer.json is not None
    assert team.collect(answer.json["id"]).json == answer.json


@pytest.mark.req("B5", "B20")
def test_a_model_without_a_price_cant_generate_but_still_answers_prompts(
    make_runtime: Callable[..., Runtime], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(
        'default_model = "free"\n[providers.mock]\ntype = "mock"\n'
        '[[models]]\nid = "free"\nprovider = "mock"\n'
        '[[models]]\nid = "paid"\nprovider = "mock"\n'
        "input_usd_micros_per_mtok = 0\noutput_usd_micros_per_mtok = 0\n"
    )
    runtime = make_runtime(models_file=models, extraction_model="free")
    http = create_app(runtime).test_client()
    team = team_caller(http, runtime)

    assert failure(team.submit(model="free"))["code"] == "invalid_model"
    assert team.submit(model="paid").status_code == 202
    told = failure(team.submit(model="paid", output_fields={"a": "A letter."}))
    assert told == UNAVAILABLE
    assert "model free has no price: set GENQUEUE_EXTRACTION_MODEL" in caplog.text


@pytest.mark.req("B5", "B6")
def test_a_provider_without_its_key_is_told_to_authors_as_away_and_to_the_log_by_its_variable(
    team: TeamCaller, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    assert failure(team.submit(model="gpt-5-mini")) == UNAVAILABLE
    (row,) = [row for row in caplog.records if row.name == "jobs.generation_intake"]
    assert row.levelname == "WARNING"
    assert "set OPENAI_API_KEY" in row.getMessage()
    assert stored_jobs(redis) == []


@pytest.mark.req("B5", "B13")
@pytest.mark.parametrize(
    ("model", "named"),
    [("gpt-5.6-luna", "OPENAI_API_KEY"), ("gpt-9", "GENQUEUE_EXTRACTION_MODEL")],
)
def test_only_a_generation_with_fields_needs_the_model_of_the_second_pass(
    make_runtime: Callable[..., Runtime],
    model: str,
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = make_runtime(extraction_model=model)
    team = team_caller(create_app(runtime).test_client(), runtime)

    told = failure(team.submit(output_fields={"subject": "A subject line."}))
    assert told == UNAVAILABLE
    assert named in caplog.text
    assert team.submit().status_code == 202


@pytest.mark.req("B5", "B7", "B9")
@pytest.mark.parametrize("cap", [None, 0])
def test_over_quota_is_a_failed_generation_that_no_resubmit_gets_to_see_again(
    http: FlaskClient, runtime: Runtime, redis: Redis, cap: int | None
) -> None:
    team = team_caller(http, runtime, cap_usd_micros=cap)
    refused = team.submit()
    assert failure(refused) == {"code": "quota_exceeded", "message": COPY["quota_exceeded"]}  # type: ignore[index]
    assert stored_jobs(redis) == []

    runtime.credits.set_cap("acme", 1_000_000)
    accepted = team.submit()
    assert accepted.status_code == 202
    assert accepted.json is not None
    assert refused.json is not None
    assert accepted.json["id"] != refused.json["id"]


@pytest.mark.req("B7", "B17")
def test_credits_that_don_t_cover_what_it_may_cost_are_used_up(
    make_runtime: Callable[..., Runtime], redis: Redis
) -> None:
    runtime = make_runtime(api_keys={"OPENAI_API_KEY": "k" * 20})
    team = team_caller(create_app(runtime).test_client(), runtime, cap_usd_micros=1)
    asked = {"model": "gpt-5-mini", "output_fields": {"subject": "A subject line."}}

    assert failure(team.submit(**asked))["code"] == "quota_exceeded"
    runtime.credits.set_cap("acme", 1_000_000)
    assert team.submit(**asked).status_code == 202
    reserved = runtime.credits.of_org("acme").reserved_usd_micros
    assert 0 < reserved < 1_000_000
    (job_id,) = stored_jobs(redis)
    view = runtime.records.job(job_id)
    assert view is not None
    assert view.job.reserved_usd_micros == reserved


@pytest.mark.req("B1", "B5")
def test_ids_that_name_no_generation_of_the_team_are_404(
    team: TeamCaller, runtime: Runtime
) -> None:
    theirs = team_caller(team.http, runtime, "2", "rival").submit()
    key = {"Authorization": f"Bearer {runtime.credentials.create('acme', 'ann')[1]}"}
    prompt = team.http.post("/v1/prompt", json={"prompt": "hello"}, headers=key)
    assert theirs.json is not None
    assert prompt.json is not None
    strangers = (new_id(), theirs.json["id"], prompt.json["job_id"], "x", "%00", "é", "a" * 4000)
    for generation_id in strangers:
        answer = team.collect(generation_id)
        assert answer.status_code == 404
        assert answer.mimetype == "application/json"
        assert answer.json == {
            "id": None,
            "status": "failed",
            "result": None,
            "error": {"code": "not_found", "message": "There is no such generation."},
            "request_id": answer.headers["X-Request-Id"],
        }


@pytest.fixture
def proxied(redis_server: RedisServer, team: TeamCaller) -> Iterator[tuple[CountingProxy, Any]]:
    """The team on an app that reaches Redis through the counting proxy, connected already."""
    with counting_proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        runtime = build(Settings(redis_url=url, ticket_cap=1))
        through = TeamCaller(create_app(runtime).test_client(), team.token, team.team_id)
        assert runtime.redis.script_load("return 1")
        assert through.submit().status_code == 202
        yield proxy, through


@pytest.mark.req("B21")
def test_a_submit_and_a_look_at_it_wait_for_redis_once(
    proxied: tuple[CountingProxy, TeamCaller],
) -> None:
    proxy, team = proxied
    before = proxy.round_trips
    answer = team.submit(invocation_id="run-2")
    assert answer.status_code == 202
    assert proxy.round_trips == before + 1
    assert answer.json is not None
    assert team.collect(answer.json["id"]).status_code == 202
    assert proxy.round_trips == before + 2


@pytest.mark.req("X13")
def test_with_redis_away_or_full_a_team_is_told_when_to_come_back(
    team: TeamCaller, redis: Redis, make_runtime: Callable[..., Runtime]
) -> None:
    nobody = create_app(make_runtime(redis_url="redis://127.0.0.1:1/0")).test_client()
    away = TeamCaller(nobody, team.token, team.team_id)
    assert team.collect(new_id()).status_code == 404
    redis.config_set("maxmemory", 1)
    try:
        answers = [team.submit(), away.submit(), away.collect(new_id())]
    finally:
        redis.config_set("maxmemory", 0)
    for answer in answers:
        assert answer.status_code == 503
        assert answer.mimetype == "application/json"
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json is not None
        assert answer.json["error"]["code"] == "store_unavailable"
        assert "Idempotency-Key" not in answer.json["error"]["message"]
    assert stored_jobs(redis) == []


class BrokenGenerations(Generations):
    """A store with a bug."""

    def submit(self, new: NewGeneration) -> AcceptedGeneration:
        raise RuntimeError(f"s3cr3t {new.prompt_text}")


@pytest.mark.req("B5")
def test_an_error_of_ours_is_a_500_in_the_same_shape_that_says_nothing(
    runtime: Runtime, team: TeamCaller, caplog: pytest.LogCaptureFixture
) -> None:
    broken = object.__new__(BrokenGenerations)
    intake = Intake(broken, runtime.models, runtime.providers, extraction_model="mock-1")
    http = create_app(replace(runtime, intake=intake)).test_client()
    answer = TeamCaller(http, team.token, team.team_id).submit()
    assert answer.status_code == 500
    assert answer.json is not None
    assert answer.json["error"]["code"] == "internal_error"
    assert answer.json["request_id"] in caplog.text
    assert "s3cr3t" not in answer.get_data(as_text=True)


@pytest.mark.req("X3")
def test_pages_beside_the_two_stay_problems(team: TeamCaller) -> None:
    wrong = team.http.put(team.address, headers=team.headers)
    assert (wrong.status_code, wrong.mimetype) == (405, "application/problem+json")
    assert wrong.headers["Allow"] == "OPTIONS, POST"
    missing = team.http.get("/api/projects/1/", headers=team.headers)
    assert (missing.status_code, missing.mimetype) == (404, "application/problem+json")


@pytest.mark.req("B17", "X10")
def test_the_log_of_a_submit_names_team_generation_and_the_trace_of_the_run(
    team: TeamCaller, redis_url: str, tmp_path: Path
) -> None:
    environment = {"REDIS_URL": redis_url, "GENQUEUE_LOG_FORMAT": "json"}
    asked = {**PAYLOAD, "invocation_id": "run-77", "prompt": "a private matter"}
    with gunicorn(tmp_path, workers=1, **environment) as web:
        submitted = web.ask(team.address, asked, authorization=f"Bearer {team.token}")
        web.ask(submitted.headers["Location"], authorization=f"Bearer {team.token}")
    output = web.process.output()
    lines = [json.loads(line) for line in output.splitlines() if "workflow_llm" in line]
    assert [line["status"] for line in lines] == [202, 202]
    assert lines[0]["invocation_id"] == "run-77"
    for line in lines:
        assert (line["team"], line["org"]) == ("1", "acme")
        assert line["job_id"] == submitted.json["id"]
    assert "private matter" not in output
    assert team.token not in output
