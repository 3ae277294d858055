"""What do the routes of jobs say of a generation? It is a job like others, but never retried."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from jobs.runtime import Runtime
from tests.integration.service.conftest import Caller
from tests.support.factories import claim_one
from tests.support.stored_generations import ENVELOPE, new_generation, open_to


@pytest.fixture
def generation(redis: Redis, runtime: Runtime) -> str:
    open_to(redis, "acme")
    new = new_generation()
    runtime.generations.submit(new)
    return new.id


def test_a_user_of_the_organisation_sees_it_among_its_jobs(caller: Caller, generation: str) -> None:
    (job,) = caller.get("/v1/jobs").json["jobs"]
    assert (job["id"], job["kind"], job["state"]) == (generation, "generation", "queued")
    assert caller.get(f"/v1/jobs/{generation}").json["waiting_on"]["reason"] == "queue"


def test_another_organisation_does_not(
    make_caller: Callable[[str, str], Caller], generation: str
) -> None:
    assert make_caller("other", "eve").get(f"/v1/jobs/{generation}").status_code == 404


@pytest.mark.req("A16", "B11")
def test_a_retry_of_one_is_refused_and_says_what_to_do(
    caller: Caller, runtime: Runtime, generation: str
) -> None:
    attempt = claim_one(runtime.queue)
    runtime.queue.succeed_generation(generation, attempt.token, ENVELOPE, "")

    refused = caller.http.post(f"/v1/jobs/{generation}/retry", headers=caller.headers)

    assert refused.status_code == 409
    assert refused.json["type"] == "urn:genqueue:problem:job-not-retried"
    assert "submit it again" in refused.json["detail"]
    assert caller.get(f"/v1/jobs/{generation}").json["state"] == "succeeded"
