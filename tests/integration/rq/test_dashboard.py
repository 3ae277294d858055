"""Does the dashboard do its work, and nothing else, in front of a real queue? (X7, X12)"""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.security import generate_password_hash

from jobs import maintenance
from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.runtime import Runtime
from service.app import create_app
from tests.support.factories import claim_one, new_job
from tests.support.job_states import reach
from tests.support.processes import ROOT, Fleet, wait_for_states
from tests.support.web import gunicorn

USER, PASSWORD = "root", "correct horse battery"
ADMIN = {"admin_user": USER, "admin_password": PASSWORD}
TOKEN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
LOGIN = {"Authorization": f"Basic {TOKEN}"}
HERE = {**LOGIN, "Origin": "http://localhost"}
HOSTILE = "<img src=x onerror=alert(1)>"
FAILED = "jobs/genqueue/failed/10/asc/1"
PAGES = ("", "0/view/queues", "0/view/workers", "0/view/jobs", f"0/view/{FAILED}")
DATA = ("0/data/queues.json", "0/data/workers.json", f"0/data/{FAILED}.json")
CHANGES = (
    "requeue/genqueue",
    "job/some/requeue",
    "job/some/delete",
    "queue/genqueue/queued/empty",
    "queue/genqueue/compact",
)


@pytest.fixture
def dashed(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime whose settings name an admin."""
    return make_runtime(**ADMIN)


@pytest.fixture
def client(dashed: Runtime) -> FlaskClient:
    """A browser without a login of its own."""
    return create_app(dashed).test_client()


def fail_with(runtime: Runtime, message: str) -> str:
    """A job that failed for good with `message`, shown in RQ."""
    job = new_job()
    runtime.queue.submit(job)
    attempt = claim_one(runtime.queue)
    runtime.queue.fail(job.id, attempt.token, ErrorKind.PARSE, message)
    maintenance.mirror(runtime)
    return job.id


@pytest.mark.req("X7", "X12")
@pytest.mark.case("SEC-03")
@pytest.mark.parametrize("path", [*PAGES, *DATA, *CHANGES, "static/css/main.css"])
def test_without_the_login_every_page_and_every_action_is_shut(
    client: FlaskClient, path: str
) -> None:
    wrong = base64.b64encode(f"{USER}:{PASSWORD}x".encode()).decode()
    for headers in ({}, {"Authorization": f"Basic {wrong}"}):
        for method in ("GET", "HEAD", "POST"):
            answer = client.open(f"/admin/rq/{path}", method=method, headers=headers)
            assert answer.status_code == 401, (method, path)


@pytest.mark.req("X7")
def test_with_the_login_every_page_and_its_data_are_served(
    dashed: Runtime, client: FlaskClient
) -> None:
    job_id = fail_with(dashed, "not JSON")
    for path in (*PAGES, f"0/view/job/{job_id}"):
        answer = client.get(f"/admin/rq/{path}", headers=LOGIN, follow_redirects=True)
        assert (answer.status_code, answer.mimetype) == (200, "text/html"), path
    for path in (*DATA, f"0/data/job/{job_id}.json"):
        answer = client.get(f"/admin/rq/{path}", headers=LOGIN)
        assert (answer.status_code, answer.is_json) == (200, True), path

    listed = client.get(f"/admin/rq/0/data/{FAILED}.json", headers=LOGIN).get_json()["jobs"]
    assert [job["id"] for job in listed] == [job_id]
    assert f"{job_id} of acme: parse: not JSON" in listed[0]["description"]


@pytest.mark.req("X7")
def test_a_password_may_be_set_as_its_hash(make_runtime: Callable[..., Runtime]) -> None:
    hashed = generate_password_hash(PASSWORD)
    app = create_app(make_runtime(admin_user=USER, admin_password_hash=hashed))

    assert app.test_client().get("/admin/rq/", headers=LOGIN).status_code == 200
    assert app.test_client().get("/admin/rq/").status_code == 401


@pytest.mark.req("X7")
@pytest.mark.case("SEC-03")
@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "source",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://localhost.elsewhere.example"},
        {"Referer": "https://elsewhere.example/localhost"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_an_action_that_no_page_of_this_host_asked_for_is_refused(
    dashed: Runtime, client: FlaskClient, path: str, source: dict[str, str]
) -> None:
    fail_with(dashed, "x")

    assert client.post(f"/admin/rq/{path}", headers={**LOGIN, **source}).status_code == 403
    for method in ("GET", "HEAD"):
        answer = client.open(f"/admin/rq/{path}", method=method, headers={**LOGIN, **source})
        assert answer.status_code in {403, 404, 405}, method
    assert dashed.rq_redis.zcard("rq:failed:genqueue") == 1


@pytest.mark.req("X7")
@pytest.mark.case("SEC-03")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_its_action_that_also_takes_a_get_is_refused_as_one_from_its_own_page(
    dashed: Runtime, client: FlaskClient, method: str
) -> None:
    fail_with(dashed, "x")

    answer = client.open("/admin/rq/requeue/genqueue", method=method, headers=HERE)

    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"
    assert dashed.rq_redis.zcard("rq:failed:genqueue") == 1


@pytest.mark.req("X7")
@pytest.mark.case("SEC-03")
def test_what_a_provider_or_caller_wrote_stays_text_on_every_page(
    dashed: Runtime, client: FlaskClient
) -> None:
    job_id = fail_with(dashed, HOSTILE)

    for path in (*PAGES, f"0/view/job/{job_id}"):
        page = client.get(f"/admin/rq/{path}", headers=LOGIN, follow_redirects=True)
        text = page.get_data(as_text=True)
        assert HOSTILE not in text, path
        # Their scripts fill templates with the data: `<%=` does so without escaping.
        assert "<%=" not in text, path
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    for path in (f"0/data/{FAILED}.json", f"0/data/job/{job_id}.json"):
        data = client.get(f"/admin/rq/{path}", headers=LOGIN)
        assert data.mimetype == "application/json"
        assert HOSTILE in str(data.get_json())


class Touches:
    """Makes a file where somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._path), "w")


@pytest.mark.req("X12")
@pytest.mark.case("SEC-01")
def test_a_pickle_in_redis_is_never_loaded(
    dashed: Runtime, client: FlaskClient, tmp_path: Path
) -> None:
    trap = tmp_path / "sprung"
    data = pickle.dumps(Touches(trap))
    fields = {"data": data, "meta": data, "status": "failed", "created_at": "2026-01-01T00:00:00Z"}
    dashed.rq_redis.hset("rq:job:trap", mapping={**fields, "origin": "genqueue"})  # type: ignore[arg-type]
    dashed.rq_redis.expire("rq:job:trap", 60)
    dashed.rq_redis.sadd("rq:queues", "rq:queue:genqueue")
    dashed.rq_redis.zadd("rq:failed:genqueue", {"trap": 4e9})

    for path in (f"0/data/{FAILED}.json", "0/data/job/trap.json", "0/view/job/trap"):
        assert client.get(f"/admin/rq/{path}", headers=LOGIN).status_code < 500, path
    for path in ("job/trap/requeue", "requeue/genqueue", "job/trap/delete"):
        assert client.post(f"/admin/rq/{path}", headers=HERE).status_code < 500, path

    assert not trap.exists()


@pytest.mark.req("X7")
@pytest.mark.parametrize("action", ["requeue/genqueue", "job/{}/requeue"])
def test_its_requeue_button_is_a_retry(
    redis: Redis, ships: Fleet, dashed: Runtime, client: FlaskClient, action: str
) -> None:
    failed = reach(dashed.queue, State.FAILED)
    maintenance.mirror(dashed)
    path = action.format(failed.job_id)

    assert client.post(f"/admin/rq/{path}", headers=HERE).status_code == 200
    ships.thread_worker(redis)

    wait_for_states(redis, [failed.job_id], State.SUPERSEDED, 15)
    view = dashed.records.prompt(failed.prompt_id)
    assert view is not None
    assert len(view.jobs) == 2
    wait_for_states(redis, [job.id for job in view.jobs[1:]], State.SUCCEEDED, 15)


@pytest.mark.req("X7")
def test_an_action_on_a_job_that_is_gone_is_told_as_a_problem(client: FlaskClient) -> None:
    answer = client.post("/admin/rq/job/nothing/requeue", headers=HERE)

    assert answer.status_code == 404
    assert answer.mimetype == "application/problem+json"


@pytest.mark.req("X7")
def test_it_is_served_by_the_real_web_processes(redis_url: str, tmp_path: Path) -> None:
    settings = {"GENQUEUE_ADMIN_USER": USER, "GENQUEUE_ADMIN_PASSWORD": PASSWORD}
    with gunicorn(tmp_path, REDIS_URL=redis_url, RQ_REDIS_URL=redis_url, **settings) as web:
        assert web.ask("/admin/rq/").status == 401
        assert web.ask("/admin/rq/", **LOGIN).status == 200
        assert web.ask("/admin/rq/0/data/queues.json", **LOGIN).json["queues"] is not None
        assert web.ask("/healthz").status == 200


@pytest.mark.req("X12")
def test_a_web_process_that_shows_it_does_not_load_the_provider_library(redis_url: str) -> None:
    code = f"""
import sys
from jobs.runtime import build
from service.app import create_app

answer = create_app(build()).test_client().get("/admin/rq/", headers={LOGIN!r})
print(answer.status_code, "rq_dashboard" in sys.modules, "openai" in sys.modules)
"""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": redis_url,
        "RQ_REDIS_URL": redis_url,
        "GENQUEUE_ADMIN_USER": USER,
        "GENQUEUE_ADMIN_PASSWORD": PASSWORD,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["200", "True", "False"]
