"""Can an operator see what a running system does, and nothing that callers sent? (X10, A23)"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.store import keys
from service.app import create_app
from service.stack.free_port import free_port
from tests.integration.service.round_trips import counting_proxy
from tests.support.factories import new_job
from tests.support.openai_server import openai_server
from tests.support.processes import Fleet, fleet, wait_for_states
from tests.support.waiting import wait_until
from tests.support.web import Web, gunicorn

CANARY = "canary-prompt-4711"
PROVIDER_KEY = "sk-canary-provider-0123456789"
TOKEN = "scrape-token-0123456789"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WORKER = (sys.executable, "-m", "service.cli", "worker")

pytestmark = pytest.mark.req("X10")


@pytest.fixture
def ships(redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(redis_url, tmp_path) as processes:
        yield processes


@pytest.fixture
def key(runtime: Runtime) -> str:
    return runtime.credentials.create("acme", "ann")[1]


def sample(page: str, name: str) -> float:
    """The sum of the samples whose line begins with `name`."""
    return sum(float(one.rpartition(" ")[2]) for one in page.splitlines() if one.startswith(name))


def lines_of(text: str) -> list[dict[str, Any]]:
    """Every line that a process logged; each of them is one JSON object."""
    return [json.loads(line) for line in text.splitlines()]


def scraped(web: Web, **headers: str) -> str:
    answer = web.ask("/metrics", **headers)
    assert answer.status == 200, answer.body
    return answer.body


def submit(web: Web, key: str, **headers: str) -> str:
    body = {"prompt": CANARY}
    answer = web.ask("/v1/prompt", body, authorization=f"Bearer {key}", **headers)
    assert answer.status == 202, answer.body
    job_id: str = answer.json["job_id"]
    return job_id


def pids_that_counted(folder: Path) -> set[int]:
    return {int(path.stem.rpartition("_")[2]) for path in folder.glob("histogram_*.db")}


def ask_until_both_answered(web: Web, folder: Path) -> int:
    """Ask for a page that isn't there until two processes have counted; answers how often."""
    asked = 0

    def both() -> bool:
        nonlocal asked
        asked += 1
        web.ask("/no-such-page")
        seen = {p for p in pids_that_counted(folder) if Path(f"/proc/{p}").exists()}
        return len(seen) == 2

    wait_until(both, 30, "both processes answered")
    return asked


UNMATCHED = 'genqueue_http_request_duration_seconds_count{method="GET",route="unmatched"'


def test_any_web_process_tells_the_counts_of_all_also_after_one_was_killed(
    redis_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "counter_1.db").write_bytes(b"what an earlier start left")
    with gunicorn(tmp_path, REDIS_URL=redis_url, PROMETHEUS_MULTIPROC_DIR=str(folder)) as web:
        asked = ask_until_both_answered(web, folder)
        assert {sample(scraped(web), UNMATCHED) for _ in range(8)} == {asked}

        victim = min(pids_that_counted(folder))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not (folder / f"gauge_livesum_{victim}.db").exists(), 20, "is noticed")
        asked += ask_until_both_answered(web, folder)
        assert {sample(scraped(web), UNMATCHED) for _ in range(8)} == {asked}


def test_a_restart_counts_anew_and_its_own_folder_goes_with_it(
    redis_url: str, tmp_path: Path
) -> None:
    for _ in range(2):
        with gunicorn(tmp_path, REDIS_URL=redis_url, TMPDIR=str(tmp_path)) as web:
            web.ask("/no-such-page")
            assert {sample(scraped(web), UNMATCHED) for _ in range(8)} == {1}
            assert len(list(tmp_path.glob("genqueue-metrics-*"))) == 1
            web.process.signal(signal.SIGTERM)
            assert web.process.wait(20) == 0, web.process.output()
        assert list(tmp_path.glob("genqueue-metrics-*")) == []


def test_a_wrong_setting_ends_the_server_with_one_line_that_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="GENQUEUE_LOG_LEVEL: must be one of") as caught,
        gunicorn(tmp_path, GENQUEUE_LOG_LEVEL="loud"),
    ):
        pass
    assert "Traceback" not in str(caught.value)


@pytest.mark.req("X12")
def test_a_job_is_followed_through_the_logs_and_its_content_is_in_none(
    redis_url: str, redis: Redis, ships: Fleet, key: str, tmp_path: Path
) -> None:
    with openai_server() as provider:
        models = tmp_path / "models.toml"
        models.write_text(
            f'default_model = "m"\n[providers.main]\ntype = "openai"\n'
            f'base_url = "{provider.base_url}"\napi_key_env = "CANARY_API_KEY"\n'
            f'[[models]]\nid = "m"\nprovider = "main"\n'
            f"input_usd_micros_per_mtok = 0\noutput_usd_micros_per_mtok = 0\n"
        )
        settings = {
            "REDIS_URL": redis_url,
            "GENQUEUE_MODELS_FILE": str(models),
            "GENQUEUE_LOG_LEVEL": "debug",
            "CANARY_API_KEY": PROVIDER_KEY,
            "OPENAI_LOG": "debug",
        }
        worker = ships.start(("env", *(f"{n}={v}" for n, v in settings.items()), *WORKER))
        with gunicorn(tmp_path, **settings) as web:
            headers = {"x_request_id": "r-4711", "traceparent": f"00-{TRACE}-{'a' * 16}-01"}
            job_id = submit(web, key, **headers)
            wait_for_states(redis, [job_id], "succeeded", 20)
            job = web.ask(f"/v1/jobs/{job_id}", authorization=f"Bearer {key}")
            assert job.json["state"] == "succeeded"
            web_log = web.process.output()
        worker.signal(signal.SIGTERM)
        worker.wait(20)
    assert PROVIDER_KEY in str(provider.requests[0].headers)
    assert CANARY in provider.requests[0].body.decode()

    (submitted,) = [one for one in lines_of(web_log) if one.get("route") == "/v1/prompt"]
    expected = {"request_id": "r-4711", "trace_id": TRACE, "job_id": job_id, "org": "acme"}
    assert expected.items() <= submitted.items()
    assert (submitted["status"], submitted["logger"]) == (202, "service.access")
    assert 0 < submitted["duration_ms"] < 10_000
    (read,) = [one for one in lines_of(web_log) if one.get("route") == "/v1/jobs/<string:job_id>"]
    assert (read["job_id"], read["trace_id"]) == (job_id, read["request_id"])
    ended = [one for one in lines_of(worker.output()) if one.get("outcome")]
    assert [(one["job_id"], one["attempt"], one["org"], one["outcome"]) for one in ended] == [
        (job_id, 1, "acme", "succeeded")
    ]
    loggers = {one["logger"] for one in lines_of(web_log + worker.output())}
    assert {"gunicorn.error", "rq.worker"} <= loggers
    for secret in (CANARY, PROVIDER_KEY, key, "Bearer"):
        assert secret not in web_log + worker.output()


def test_probes_are_logged_only_while_something_is_wrong(redis_url: str, tmp_path: Path) -> None:
    with gunicorn(tmp_path, REDIS_URL="redis://127.0.0.1:1/0") as web:
        assert web.ask("/healthz").status == 200
        assert web.ask("/readyz").status == 503
        routes = [one["route"] for one in lines_of(web.process.output()) if "route" in one]
    assert routes == ["/readyz"]


@pytest.mark.req("A23")
def test_a_scrape_tells_jobs_by_state_failures_by_kind_and_latency_by_org(
    runtime: Runtime, redis: Redis, ships: Fleet
) -> None:
    prompts = ["fine", "[[mock error=auth]]", "[[mock error=provider_4xx]]", "[[mock error=auth]]"]
    jobs = [new_job(prompt_text=text) for text in prompts]
    for job in jobs:
        runtime.queue.submit(job)
    runtime.tickets.issue()
    port = free_port()
    worker = ships.thread_worker(redis, worker_metrics_port=port)
    wait_for_states(redis, [jobs[0].id], "succeeded", 20)
    wait_for_states(redis, [job.id for job in jobs[1:]], "failed", 20)
    running = "genqueue_attempts_running "
    wait_until(lambda: sample(scraped(Web(worker, port)), running) == 0, 10, "nothing runs")
    workers_page = scraped(Web(worker, port))
    ended = 'genqueue_attempts_total{error_kind="%s",kind="prompt",outcome="%s"}'
    assert sample(workers_page, ended % ("", "succeeded")) == 1
    assert sample(workers_page, ended % ("auth", "failed")) == 2
    assert sample(workers_page, "genqueue_attempt_duration_seconds_count") == 4
    worker.signal(signal.SIGTERM)
    worker.wait(20)
    runtime.queue.submit(new_job(org_id="beta", scheduled_for_ms=4_000_000_000_000))
    runtime.queue.submit(new_job(org_id="beta"))

    page = create_app(runtime).test_client().get("/metrics").text
    assert sample(page, "genqueue_store_up ") == 1
    assert sample(page, 'genqueue_jobs{org="acme",state="succeeded"}') == 1
    assert sample(page, 'genqueue_jobs{org="acme",state="failed"}') == 3
    assert sample(page, 'genqueue_jobs{org="beta",state="queued"}') == 2
    assert sample(page, 'genqueue_jobs_failed_total{error_kind="auth",org="acme"}') == 2
    assert sample(page, 'genqueue_job_latency_seconds_count{org="acme"}') == 1
    assert 0 < sample(page, 'genqueue_job_latency_seconds_sum{org="acme"}') < 60
    assert sample(page, 'genqueue_jobs_waiting{reason="scheduled"}') == 1
    assert sample(page, 'genqueue_lanes{gate="open"}') == 1


def test_a_scrape_costs_the_same_few_round_trips_however_many_jobs_there_are(
    runtime: Runtime, make_runtime: Callable[..., Runtime], redis_url: str
) -> None:
    counts = []
    for more in (1, 500):
        for _ in range(more):
            runtime.queue.submit(new_job())
        with counting_proxy(urlsplit(redis_url).port or 0) as proxy:
            slow = make_runtime(redis_url=f"redis://127.0.0.1:{proxy.port}/0")
            app = create_app(slow)
            app.test_client().get("/metrics")
            before = proxy.round_trips
            app.test_client().get("/metrics")
            counts.append(proxy.round_trips - before)
    assert counts[0] == counts[1] <= 6


def test_beyond_a_hundred_organisations_the_small_ones_are_one(
    runtime: Runtime, redis: Redis
) -> None:
    for n in range(103):
        runtime.queue.submit(new_job(org_id=f"org-{n}"))
    runtime.queue.submit(new_job(org_id="org-102"))

    page = create_app(runtime).test_client().get("/metrics").text
    queued = [one for one in page.splitlines() if one.startswith("genqueue_jobs{")]
    queued = [one for one in queued if 'state="queued"' in one]
    assert len(queued) == 101
    assert 'genqueue_jobs{org="org-102",state="queued"} 2.0' in queued
    assert 'genqueue_jobs{org="(other)",state="queued"} 3.0' in queued


@pytest.mark.case("SCH-05")
def test_a_scrape_shows_the_ticks_of_the_clock_and_how_late_they_are(
    runtime: Runtime, redis: Redis
) -> None:
    now_s, _ = redis.time()
    stored = {"interval_ms": 1000, "late_ms": 250, "took_ms": 30, "count": 2, "runs": 7, "total": 9}
    for name, ran_at_s in (("promote", now_s), ("reclaim", now_s - 60)):
        fields = {**stored, "ran_at_ms": ran_at_s * 1000}
        redis.hset(keys.TICKS(), mapping={f"{name}:{part}": v for part, v in fields.items()})

    page = create_app(runtime).test_client().get("/metrics").text
    redis.delete(keys.TICKS())
    assert sample(page, 'genqueue_tick_lateness_seconds{tick="promote"}') == 0.25
    assert sample(page, 'genqueue_tick_duration_seconds{tick="promote"}') == 0.03
    assert sample(page, 'genqueue_tick_runs_total{tick="promote"}') == 7
    assert sample(page, 'genqueue_tick_last_run_timestamp_seconds{tick="promote"}') == now_s
    assert sample(page, 'genqueue_tick_red{tick="promote"}') == 0
    assert sample(page, 'genqueue_tick_red{tick="reclaim"}') == 1


@pytest.mark.req("X13")
def test_a_scrape_without_redis_says_so_and_tells_the_rest(
    make_runtime: Callable[..., Runtime],
) -> None:
    http = create_app(make_runtime(redis_url="redis://127.0.0.1:1/0")).test_client()
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert sample(answer.text, "genqueue_store_up ") == 0
    assert "genqueue_http_request_duration_seconds" in answer.text
    assert "genqueue_jobs" not in answer.text


def test_figures_are_open_until_a_token_is_set(
    runtime: Runtime, make_runtime: Callable[..., Runtime]
) -> None:
    assert create_app(runtime).test_client().get("/metrics").status_code == 200
    http = create_app(make_runtime(metrics_token=TOKEN)).test_client()
    assert http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for header in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer é"}):
        refused = http.get("/metrics", headers=header)
        assert refused.status_code == 401
        assert refused.content_type == "application/problem+json"
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        assert "genqueue_" not in refused.text


def test_routes_are_labels_and_what_callers_type_is_not(runtime: Runtime) -> None:
    http = create_app(runtime).test_client()
    http.get(f"/v1/jobs/{CANARY}")
    http.get(f"/{CANARY}")
    http.open("/healthz", method=CANARY.upper())

    page = http.get("/metrics").text
    count = "genqueue_http_request_duration_seconds_count"
    assert sample(page, f'{count}{{method="GET",route="/v1/jobs/<string:job_id>"') >= 1
    assert sample(page, f'{count}{{method="other"') >= 1
    assert CANARY not in page.lower()


def test_a_system_in_which_nobody_sweeps_is_ready_and_says_that_it_is_degraded(
    runtime: Runtime, redis: Redis
) -> None:
    http = create_app(runtime).test_client()
    now_s, _ = redis.time()
    for ago_s, status in ((0, "ok"), (59, "ok"), (70, "degraded")):
        redis.set(keys.SWEPT_AT(), (now_s - ago_s) * 1000)
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json) == (200, {"status": status})


def test_a_taken_metrics_port_does_not_keep_a_worker_from_working(
    runtime: Runtime, redis: Redis, ships: Fleet
) -> None:
    port = free_port()
    ships.thread_worker(redis, worker_metrics_port=port)
    second = ships.start(WORKER, worker_metrics_port=port)
    said = f"no metrics page on port {port}"
    wait_until(lambda: said in second.output(), 20, "the second says so")
    wait_until(lambda: redis.scard("rq:workers") == 2, 20, "the second registers")
