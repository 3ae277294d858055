"""Is rq-dashboard served to the admin alone, and can't it be made to do harm? (X7, X12)"""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

from jobs import maintenance
from jobs.domain.errors import ErrorKind
from jobs.runtime import Runtime
from service.app import create_app
from tests.support.factories import claim_one, new_job

ADMIN = {"admin_user": "root", "admin_password": "correct horse battery"}
SAFE = ("/admin/rq/", "/admin/rq/0/data/queues.json", "/admin/rq/0/data/workers.json")


def login(password: str = ADMIN["admin_password"]) -> dict[str, str]:
    token = base64.b64encode(f"root:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}


@pytest.fixture
def admin(make_runtime: Callable[..., Runtime]) -> FlaskClient:
    return create_app(make_runtime(**ADMIN)).test_client()


@pytest.mark.req("X7")
def test_it_is_off_until_an_admin_is_set(runtime: Runtime) -> None:
    answer = create_app(runtime).test_client().get("/admin/rq/", headers=login())

    assert answer.status_code in {403, 404}
    assert answer.content_type == "application/problem+json"
    assert "GENQUEUE_ADMIN_USER" in answer.get_data(as_text=True)


@pytest.mark.req("X7", "X12")
@pytest.mark.case("SEC-03")
@pytest.mark.parametrize("path", [*SAFE, "/admin/rq/nothing", "/admin/rq"])
def test_nobody_gets_in_without_the_password(admin: FlaskClient, path: str) -> None:
    for headers in (
        {},
        login("wrong"),
        {"Authorization": "Basic ="},
        {"Authorization": "Bearer x"},
    ):
        answer = admin.get(path, headers=headers)
        assert answer.status_code == 401, (path, headers)
        assert "Basic" in answer.headers["WWW-Authenticate"]


@pytest.mark.req("X7")
@pytest.mark.parametrize("path", SAFE)
def test_the_admin_sees_the_pages(admin: FlaskClient, path: str) -> None:
    assert admin.get(path, headers=login(), follow_redirects=True).status_code == 200


@pytest.mark.req("X7")
@pytest.mark.case("SEC-03")
def test_nothing_changes_by_a_get(admin: FlaskClient) -> None:
    assert admin.get("/admin/rq/requeue/genqueue", headers=login()).status_code == 405


@pytest.mark.req("X7")
@pytest.mark.case("SEC-03")
@pytest.mark.parametrize("action", ["requeue/genqueue", "queue/genqueue/queued/empty"])
def test_nothing_changes_from_another_site(admin: FlaskClient, action: str) -> None:
    foreign = {**login(), "Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
    assert admin.post(f"/admin/rq/{action}", headers=foreign).status_code == 403

    own = {**login(), "Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert admin.post(f"/admin/rq/{action}", headers=own).status_code in {200, 302}


@pytest.mark.req("X7")
def test_a_failed_job_is_shown_by_name_and_hostile_text_stays_text(
    make_runtime: Callable[..., Runtime],
) -> None:
    runtime = make_runtime(**ADMIN)
    job = new_job()
    runtime.queue.submit(job)
    attempt = claim_one(runtime.queue)
    hostile = "<script>alert(1)</script>"
    runtime.queue.fail(job.id, attempt.token, ErrorKind.PARSE, hostile)
    maintenance.mirror(runtime)
    client = create_app(runtime).test_client()

    page = client.get(f"/admin/rq/0/view/job/{job.id}", headers=login())
    data = client.get(f"/admin/rq/0/data/job/{job.id}.json", headers=login())

    assert page.status_code == 200
    assert hostile not in page.get_data(as_text=True)
    assert data.status_code == 200
    assert job.id in data.get_data(as_text=True)
