"""In which order does a submit meet its gates, and what does each leave behind? (B8, B9, B21)"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from jobs.domain.generation_codes import COPY
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from service.app import create_app
from tests.integration.service.team_caller import TeamCaller, stored_jobs, team_caller
from tests.support.factories import new_id
from tests.support.invariants import family_of, problems_of
from tests.support.snapshot import snapshot
from tests.support.waiting import wait_until

COUNTED = (keys.SUBMITS("1"), keys.GENERATION_STATS())
"""What a refused submit may touch: the throttle of its team, and the figures."""


@pytest.fixture
def team(http: FlaskClient, runtime: Runtime) -> TeamCaller:
    return team_caller(http, runtime)


def fill_throttle(redis: Redis, team: TeamCaller, *, left_ms: int = 60_000) -> None:
    """As if the team had submitted 60 just now; the oldest of them is forgotten in `left_ms`."""
    now_ms = redis_ms(redis)
    scores = {new_id(): now_ms for _ in range(59)}
    redis.zadd(keys.SUBMITS(team.team_id), {**scores, new_id(): now_ms - 60_000 + left_ms})
    redis.pexpire(keys.SUBMITS(team.team_id), 60_000)


def redis_ms(redis: Redis) -> int:
    seconds, micros = redis.time()
    return int(seconds * 1000 + micros // 1000)


def code_of(answer: Any) -> str:
    assert answer.json is not None
    code: str = answer.json["error"]["code"]
    return code


def close(gate: str, redis: Redis, team: TeamCaller) -> None:
    """Let the gate refuse what `team` submits next."""
    if gate == "throttle":
        fill_throttle(redis, team)
    elif gate == "flag":
        Flags(redis).disable(WORKFLOWS_LLM_ACTION, "acme")
    elif gate == "credits":
        redis.hset(keys.CREDITS("acme"), "cap", "0")


def submit_through(gates: list[str], team: TeamCaller) -> Any:
    """A submit at which the token, the body or the model is wrong where `gates` says so."""
    if "auth" in gates:
        team = TeamCaller(team.http, f"gqt_{'a' * 12}_{'b' * 43}", team.team_id)
    changes: dict[str, Any] = {"prompt": ""} if "schema" in gates else {}
    if "model" in gates:
        changes["model"] = "gpt-9"
    return team.submit(**changes)


ORDER = ["auth", "schema", "throttle", "flag", "model", "credits"]
REFUSED = {
    "auth": (401, "unauthenticated"),
    "schema": (422, "invalid_request"),
    "throttle": (429, "throttled"),
    "flag": (404, "feature_unavailable"),
    "model": (200, "invalid_model"),
    "credits": (200, "quota_exceeded"),
}


@pytest.mark.req("B21", "B5", "B7")
@pytest.mark.parametrize("first", range(len(ORDER)), ids=ORDER)
@pytest.mark.parametrize("others", ["alone", "with all behind it", "with the next"])
def test_the_first_gate_that_refuses_answers_and_nothing_is_enqueued(
    team: TeamCaller, redis: Redis, first: int, others: str
) -> None:
    count = {"alone": 1, "with the next": 2, "with all behind it": len(ORDER)}[others]
    gates = ORDER[first : first + count]
    for gate in gates:
        close(gate, redis, team)
    before = snapshot(redis, ignore=COUNTED)

    answer = submit_through(gates, team)

    assert (answer.status_code, code_of(answer)) == REFUSED[ORDER[first]]
    after = snapshot(redis, ignore=COUNTED)
    stored = {family_of(name) for name in after.keys() - before.keys()}
    assert stored <= {keys.GENERATION, keys.GENERATION_OF}
    assert bool(stored) == (answer.status_code == 200)
    assert {name: after[name] for name in before} == before


@pytest.mark.req("B8", "B21")
@pytest.mark.parametrize("gate", ["auth", "schema"])
def test_what_is_refused_before_the_throttle_is_not_counted(
    team: TeamCaller, redis: Redis, gate: str
) -> None:
    submit_through([gate], team)
    assert not redis.exists(keys.SUBMITS("1"))


@pytest.mark.req("B21")
def test_a_flag_that_was_never_set_is_off(http: FlaskClient, runtime: Runtime) -> None:
    answer = team_caller(http, runtime, enable=False).submit()
    assert answer.status_code == 404
    assert answer.json == {
        "id": None,
        "status": "failed",
        "result": None,
        "error": {"code": "feature_unavailable", "message": COPY["feature_unavailable"]},  # type: ignore[index]
        "request_id": answer.headers["X-Request-Id"],
    }


@pytest.mark.req("B21", "B36")
def test_what_was_accepted_is_collected_after_the_flag_went_off(
    team: TeamCaller, redis: Redis
) -> None:
    accepted = team.submit().json
    assert accepted is not None
    close("flag", redis, team)

    assert code_of(team.submit()) == "feature_unavailable"
    collected = team.collect(accepted["id"])
    assert (collected.status_code, collected.json) == (202, accepted)


@pytest.mark.req("B21", "B9")
def test_a_resubmit_is_answered_although_the_credits_are_used_up_now(
    team: TeamCaller, redis: Redis
) -> None:
    accepted = team.submit().json
    close("credits", redis, team)

    repeat = team.submit()
    assert (repeat.status_code, repeat.json) == (202, accepted)
    assert code_of(team.submit(invocation_id="run-2")) == "quota_exceeded"


@pytest.mark.req("B8")
@pytest.mark.case("SEC-09")
def test_sixty_submits_a_minute_are_a_teams_whichever_token_sends_them(
    team: TeamCaller, runtime: Runtime, redis: Redis
) -> None:
    second = TeamCaller(team.http, runtime.credentials.create_for_team("1", "acme")[1], "1")
    neighbour = team_caller(team.http, runtime, "2", "acme")
    statuses = [
        caller.submit(invocation_id=f"run-{n}").status_code
        for n in range(35)
        for caller in (team, second)
    ]
    assert statuses == [202] * 60 + [429] * 10
    assert len(stored_jobs(redis)) == 30
    assert neighbour.submit().status_code == 202


@pytest.mark.req("B8", "B5")
def test_retry_after_is_the_whole_second_at_which_there_is_room_again(
    team: TeamCaller, redis: Redis
) -> None:
    for left_ms in (60_000, 30_500, 900):
        redis.delete(keys.SUBMITS("1"))
        fill_throttle(redis, team, left_ms=left_ms)
        free_at_ms = min(
            score for _, score in redis.zrange(keys.SUBMITS("1"), 0, 0, withscores=True)
        )
        free_at_ms += 60_000
        early, answer, late = redis_ms(redis), team.submit(), redis_ms(redis)
        assert (answer.status_code, code_of(answer)) == (429, "throttled")
        told_s = int(answer.headers["Retry-After"])
        assert math.ceil((free_at_ms - late) / 1000) <= told_s
        assert told_s <= math.ceil((free_at_ms - early) / 1000)
        assert answer.json is not None
        assert answer.json["error"]["message"] == COPY["throttled"]  # type: ignore[index]

    assert told_s == 1
    wait_until(lambda: redis_ms(redis) >= early + 1000, 5, "a second on the clock of Redis")
    assert team.submit().status_code == 202


@pytest.mark.req("B8")
def test_collecting_is_not_throttled(team: TeamCaller, redis: Redis) -> None:
    accepted = team.submit().json
    assert accepted is not None
    fill_throttle(redis, team)
    assert team.submit().status_code == 429

    assert {team.collect(accepted["id"]).status_code for _ in range(200)} == {202}


@pytest.mark.req("B8")
def test_the_most_of_a_minute_is_a_setting(make_runtime: Callable[..., Runtime]) -> None:
    runtime = make_runtime(generations_per_minute=2)
    team = team_caller(create_app(runtime).test_client(), runtime)
    assert [team.submit().status_code for _ in range(3)] == [202, 202, 429]


@pytest.mark.req("B9")
def test_fifty_times_the_same_submit_at_once_is_one_generation(
    team: TeamCaller, redis: Redis
) -> None:
    barrier = threading.Barrier(50)

    def submit(n: int) -> tuple[int, str]:
        own = team.again()
        barrier.wait(20)
        answer = own.submit(wake={"token": f"waiter-{n:020d}"})
        assert answer.json is not None
        return answer.status_code, answer.json["id"]

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(submit, range(50)))
    (answered,) = set(answers)
    (job_id,) = stored_jobs(redis)
    assert answered == (202, job_id)
    assert redis.scard(keys.WAITERS(job_id)) == 16
    assert problems_of(redis) == []


@pytest.mark.req("B9")
def test_a_submit_in_another_spelling_is_the_same_generation(
    team: TeamCaller, redis: Redis, make_runtime: Callable[..., Runtime]
) -> None:
    runtime = make_runtime(extraction_model="mock-1")
    team = TeamCaller(create_app(runtime).test_client(), team.token, team.team_id)
    first = team.post_raw(
        b'{"invocation_id": "r", "prompt": "h\\u00e9", "model": "mock-1",'
        b' "output_fields": {"a": "1st", "b": "2nd"}}'
    )
    others = '"model":"mock-1","prompt":"hé","invocation_id":"r"}'
    for body in (
        '{"output_fields":{"b":"2nd","a":"1st"},' + others,
        '{"output_fields":{"a":"1st","b":"2nd"},"hog_flow_id":null,' + others,
        '{"output_fields":{"a":"1st","b":"2nd"},"wake":{"token":"0123456789abcdef"},' + others,
    ):
        repeat = team.post_raw(body.encode())
        assert (repeat.status_code, repeat.json) == (202, first.json)
    assert len(stored_jobs(redis)) == 1


@pytest.mark.req("B9")
def test_what_left_out_says_none_is_the_same_generation(team: TeamCaller) -> None:
    first = team.submit().json
    assert team.submit(hog_flow_id=None, output_fields={}).json == first


@pytest.mark.req("B9")
def test_every_part_of_the_payload_tells_generations_apart(
    make_runtime: Callable[..., Runtime], redis: Redis
) -> None:
    runtime = make_runtime(extraction_model="mock-1", api_keys={"OPENAI_API_KEY": "k" * 20})
    team = team_caller(create_app(runtime).test_client(), runtime)
    other = team_caller(team.http, runtime, "2", "acme")
    fields = {"subject": "A subject line."}
    changes: list[dict[str, Any]] = [
        {},
        {"invocation_id": "run-2"},
        {"hog_flow_id": "flow-1"},
        {"prompt": "Say hello. "},
        {"model": "gpt-4.1-mini"},
        {"output_fields": fields},
        {"output_fields": {"subject": "Another subject line."}},
        {"output_fields": {"title": "A subject line."}},
    ]
    answers = [team.submit(**change) for change in changes] + [other.submit()]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json["id"] for answer in answers}) == len(answers)  # type: ignore[index]
    assert len(stored_jobs(redis)) == len(answers)


@pytest.mark.req("B9", "B21")
def test_no_spelling_of_team_and_invocation_makes_two_teams_share_a_generation(
    team: TeamCaller, runtime: Runtime
) -> None:
    other = team_caller(team.http, runtime, "11", "acme")
    first = team.submit(invocation_id="1run").json
    second = other.submit(invocation_id="run").json
    assert first is not None
    assert second is not None
    assert first["id"] != second["id"]
