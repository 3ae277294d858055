"""How does a team call in a test? With its token, on the routes of its generations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.teams import Teams

PAYLOAD = {"invocation_id": "run-1", "prompt": "Say hello.", "model": "mock-1"}


@dataclass(frozen=True)
class TeamCaller:
    """A client that sends the token of one team with every request."""

    http: FlaskClient
    token: str
    team_id: str

    @property
    def address(self) -> str:
        return f"/api/projects/{self.team_id}/workflow_llm_generations/"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def submit(self, **changes: Any) -> TestResponse:
        """An ordinary submit with `changes`; a field that is changed to ... is left out."""
        payload = {name: value for name, value in {**PAYLOAD, **changes}.items() if value != ...}
        return self.post(payload)

    def post(self, payload: object) -> TestResponse:
        return self.post_raw(json.dumps(payload).encode())

    def post_raw(self, body: bytes, content_type: str = "application/json") -> TestResponse:
        headers = {**self.headers, "Content-Type": content_type}
        return self.http.post(self.address, data=body, headers=headers)

    def collect(self, generation_id: str) -> TestResponse:
        return self.http.get(f"{self.address}{generation_id}/", headers=self.headers)

    def again(self) -> TeamCaller:
        """The same caller with a client of its own, for a thread."""
        return TeamCaller(self.http.application.test_client(), self.token, self.team_id)


def team_caller(
    http: FlaskClient,
    runtime: Runtime,
    team_id: str = "1",
    org_id: str = "acme",
    *,
    enable: bool = True,
    cap_usd_micros: int | None = 1_000_000,
) -> TeamCaller:
    """A new team with a token; by default its org has the feature and a dollar."""
    Teams(runtime.redis).create(team_id, org_id)
    if enable:
        Flags(runtime.redis).enable(WORKFLOWS_LLM_ACTION, org_id)
    if cap_usd_micros is not None:
        runtime.credits.set_cap(org_id, cap_usd_micros)
    return TeamCaller(http, runtime.credentials.create_for_team(team_id, org_id)[1], team_id)


def stored_jobs(redis: Redis) -> list[str]:
    """Ids of all jobs that are stored."""
    prefix = keys.JOB("")
    names = [name.removeprefix(prefix) for name in redis.scan_iter(match=keys.JOB("*"))]
    return sorted(name for name in names if ":" not in name)
