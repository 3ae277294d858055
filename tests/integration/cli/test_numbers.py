"""Do the counts and limits that an operator sees and sets hold? (A23, A31, B22)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Cooldown
from jobs.domain.states import State
from jobs.store.generation_stats import CODES_OF_FAILED
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from jobs.store.ticks import TickLog, TickRun
from tests.conftest import QUEUE_NAME
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.factories import claim, claim_one, response_for
from tests.support.stored_generations import (
    ENVELOPE,
    billed,
    call_of,
    generations_of,
    new_generation,
    open_to,
)

ReadJson = Callable[..., Any]


@pytest.mark.req("A23")
def test_the_metrics_count_states_latency_and_errors_by_organisation(
    invoke_json: ReadJson, shell: Shell, submit: Submit, queue: Queue
) -> None:
    for _ in range(3):
        submit()
        attempt = claim_one(queue)
        queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
    submit()
    attempt = claim_one(queue)
    queue.fail(attempt.job.id, attempt.token, ErrorKind.PARSE, "no JSON")
    submit()
    submit(org_id="umbrella")

    told = invoke_json("queue-metrics")
    acme = told["orgs"]["acme"]
    assert acme["states"][State.SUCCEEDED] == 3
    assert acme["failures"]["parse"] == 1
    assert acme["error_rate"]["parse"] == pytest.approx(0.25)
    assert acme["latency_ms_mean"] >= 0
    assert told["orgs"]["umbrella"]["states"][State.QUEUED] == 1
    assert told["depths"]["open_lanes"] == 2
    done = shell("queue-metrics")
    assert done.returncode == 0, done.stderr
    for part in ("umbrella", "parse", "25.0 %", "open lanes", "No tick has run"):
        assert part in done.stdout


def test_the_metrics_of_an_empty_store_are_no_error(invoke: Invoke) -> None:
    done = invoke("queue-metrics")
    assert done.exit_code == 0
    assert "There are no jobs." in done.stdout
    assert "0 of 30" in done.stdout
    for part in ("Failed generations", "Cooldowns", "mean wait"):
        assert part not in done.stdout


@pytest.mark.req("B22", "X15")
def test_the_metrics_show_generations_their_failures_limits_slots_and_cooldowns(
    invoke: Invoke, invoke_json: ReadJson, redis: Redis, queue: Queue
) -> None:
    open_to(redis, "acme")
    for _ in range(3):
        generations_of(redis).submit(new_generation())
    first, second, _ = claim(queue, 3).attempts
    bill = billed(first.job, call_of(), is_captured=True)
    queue.succeed_generation(first.job.id, first.token, ENVELOPE, bill)
    queue.fail(
        second.job.id,
        second.token,
        ErrorKind.RATE_LIMIT,
        "busy",
        code=GenerationCode.GATEWAY_UNAVAILABLE,
        cooldown=Cooldown("mock:busy", 90_000),
    )

    told = invoke_json("queue-metrics")["generations"]
    assert (told["started"], told["succeeded"]) == (3, 1)
    assert told["failed"] == {
        code.value: int(code == "gateway_unavailable") for code in CODES_OF_FAILED
    }
    assert told["limit_hits"] == {"team_slots": 0, "global_slots": 0, "throttle": 0}
    assert (told["slots_held"], told["slots"], told["usage_unreported"]) == (1, 30, 1)
    assert 0 <= told["queue_wait_ms_mean"] < 60_000
    assert 0 <= told["duration_ms_mean"] < 60_000
    assert list(told["cooldowns_ms"]) == ["mock:busy"]
    assert 80_000 < told["cooldowns_ms"]["mock:busy"] <= 90_000
    table = invoke("queue-metrics").stdout
    assert "finished" not in table
    for part in (
        "Generations",
        "succeeded",
        "1 of 30",
        "gateway_unavailable",
        "hits of throttle",
        "mock:busy",
    ):
        assert part in table
    assert "quota_exceeded" not in table


@pytest.mark.req("A8", "A23")
def test_a_tick_shows_its_last_run_and_turns_red_when_it_stays_out(
    invoke: Invoke, invoke_json: ReadJson, redis: Redis
) -> None:
    log = TickLog(Scripts(redis, queue_name=QUEUE_NAME))
    now_ms = redis.time()[0] * 1000
    log.ticked(TickRun("reclaim", "t1", 60.0, now_ms - 500, took_ms=12, count=3))
    log.ticked(TickRun("promote", "t2", 0.001, now_ms, took_ms=1, count=0))
    ticks = invoke_json("queue-metrics")["ticks"]
    assert (ticks["reclaim"]["red"], ticks["promote"]["red"]) == (False, True)
    assert (ticks["reclaim"]["count"], ticks["reclaim"]["took_ms"]) == (3, 12)
    assert ticks["reclaim"]["late_ms"] >= 0
    table = invoke("queue-metrics").stdout
    assert "RED" in table
    assert "ok" in table


@pytest.mark.req("A31")
def test_a_quota_holds_one_organisation_and_not_the_others(
    shell: Shell, invoke_json: ReadJson, submit: Submit, queue: Queue, redis: Redis
) -> None:
    for _ in range(3):
        submit()
        submit(org_id="umbrella")
    done = shell("quota", "acme", "1")
    assert done.returncode == 0, done.stderr

    owners = [attempt.job.org_id for attempt in claim(queue, 6).attempts]
    assert sorted(owners) == ["acme", "umbrella", "umbrella", "umbrella"]
    assert invoke_json("quota", "acme") == {"org": "acme", "most": 1, "running": 1}
    assert invoke_json("quota") == [{"org": "acme", "most": 1, "running": 1}]
    redis.delete("rq:queue:genqueue")
    assert invoke_json("quota", "acme", "--none") == {"org": "acme", "most": None, "running": 1}
    assert redis.llen("rq:queue:genqueue") == 1
    assert len(claim(queue, 6).attempts) == 2
    assert invoke_json("quota") == []


def test_a_look_at_a_quota_changes_none(invoke: Invoke, invoke_json: ReadJson) -> None:
    invoke("quota", "acme", "0")
    assert "no limit" in invoke("quota", "umbrella").stdout
    assert invoke_json("quota", "acme")["most"] == 0


@pytest.mark.parametrize(
    "words",
    [("--none",), ("acme", "5", "--none"), ("a b", "5"), ("acme", "many"), ("acme", "1000001")],
    ids=" ".join,
)
def test_a_quota_that_says_nothing_is_a_usage_error(
    invoke: Invoke, invoke_json: ReadJson, words: tuple[str, ...]
) -> None:
    assert invoke("quota", *words).exit_code == 2
    assert invoke_json("quota") == []
