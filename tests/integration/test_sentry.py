"""Do errors reach Sentry, and does nothing of what callers sent go along? (X10)"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.store import keys
from tests.support.factories import new_job
from tests.support.processes import Fleet, fleet, wait_for_states
from tests.support.sentry_server import SentryServer, sentry_server
from tests.support.waiting import wait_until
from tests.support.web import gunicorn

CANARY = "canary-prompt-4711"
PROVIDER_KEY = "sk-canary-provider-0123456789"

# A provider of this kind is what a bug of ours would look like: its error quotes all it was given.
BROKEN_WORKER = (
    sys.executable,
    "-c",
    """
import dataclasses, sys
from jobs.runtime import build
from jobs.worker.run import run_worker

class Broken:
    def complete(self, call):
        canary = call.messages[0].content
        raise ValueError(f"can't send {canary} with {sys.argv[1]}")

class Providers:
    def preload(self): pass
    def unavailable_reason(self, model): return None
    def get(self, name): return Broken()

sys.exit(run_worker(dataclasses.replace(build(), providers=Providers())))
""",
    PROVIDER_KEY,
)

pytestmark = pytest.mark.req("X10", "X12")


@pytest.fixture
def ships(redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(redis_url, tmp_path) as processes:
        yield processes


@pytest.fixture
def sentry() -> Iterator[SentryServer]:
    with sentry_server() as server:
        yield server


def test_a_bug_in_a_request_reaches_sentry_without_what_the_caller_sent(
    redis_url: str, redis: Redis, runtime: Runtime, sentry: SentryServer, tmp_path: Path
) -> None:
    key = runtime.credentials.create("acme", "ann")[1]
    redis.set(keys.TURNS(), "no sorted set", ex=60)
    with gunicorn(tmp_path, REDIS_URL=redis_url, SENTRY_DSN=sentry.dsn) as web:
        headers = {"x_request_id": "r-4711", "authorization": f"Bearer {key}"}
        broken = web.ask(f"/v1/prompt?q={CANARY}", {"prompt": CANARY}, **headers)
        assert broken.status == 500
        wait_until(lambda: sentry.events, 10, "an event arrives")
        log = web.process.output()
    (event,) = sentry.events
    assert event["exception"]["values"][-1]["type"] == "ResponseError"
    assert event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert event["tags"]["request_id"] == "r-4711"
    assert event["request"] == {"method": "POST"}
    assert event["transaction"] == "/v1/prompt"
    secret = key.split("_", 2)[2]
    for text in (sentry.everything, log):
        for canary in (CANARY, key, secret, "Authorization", "Bearer"):
            assert canary not in text


def test_a_bug_in_an_attempt_reaches_sentry_without_prompt_and_keys(
    runtime: Runtime, redis: Redis, ships: Fleet, sentry: SentryServer
) -> None:
    job = new_job(prompt_text=CANARY, max_attempts=1)
    runtime.queue.submit(job)
    runtime.tickets.issue()
    command = ("env", f"SENTRY_DSN={sentry.dsn}", *BROKEN_WORKER)
    worker = ships.start(command, log_level="debug")
    wait_for_states(redis, [job.id], "failed", 20)
    wait_until(lambda: sentry.events, 10, "an event arrives")
    worker.signal(signal.SIGTERM)
    worker.wait(20)

    (event,) = sentry.events
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ValueError", "")
    assert exception["stacktrace"]["frames"][-1]["function"] == "complete"
    assert "vars" not in exception["stacktrace"]["frames"][-1]
    assert event["tags"]["job_id"] == job.id
    assert event["tags"]["attempt"] == "1"
    for text in (sentry.everything, worker.output()):
        assert "ValueError" in text
        assert CANARY not in text
        assert PROVIDER_KEY not in text
