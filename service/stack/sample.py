"""Does the stack answer? Wait for it, get a development key, run one prompt over HTTP."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests

from service.stack.errors import KeyNotMadeError, SampleFailedError, StackNotReadyError

READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 30.0
HTTP_WITHIN_S = 10.0
KEY_WITHIN_S = 30.0
POLL_PAUSE_S = 0.1
SAMPLE_PROMPT = "Say in one sentence what a queue is good for."

Pause = Callable[[float], None]
"""Waits that many seconds; raises to break the wait off."""


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """What came back for the sample prompt."""

    prompt: str
    text: str
    job_id: str
    provider: str
    took_s: float


class StackClient:
    """An HTTP client of the stack's own API at `http://127.0.0.1:<port>`."""

    def __init__(self, base_url: str, pause: Pause) -> None:
        self._base_url = base_url
        self._pause = pause
        self._http = requests.Session()
        # A proxy of the environment is never wanted on loopback.
        self._http.trust_env = False

    def wait_until_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until `/readyz` answers 200. Raises StackNotReadyError."""
        url, answer = f"{self._base_url}/readyz", "no answer"
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                response = self._http.get(url, timeout=HTTP_WITHIN_S)
            except requests.RequestException:
                pass  # not listening yet; how that ends is told after the wait
            else:
                if response.status_code == requests.codes.ok:
                    return
                answer = f"status {response.status_code}: {response.text[:200]}"
            self._pause(POLL_PAUSE_S)
        raise StackNotReadyError(url, within_s, answer)

    def accepts(self, key: str) -> bool:
        """Whether the API knows the key: an unknown job is 404 with it and 401 without."""
        response = self._request("GET", f"/v1/jobs/{uuid.uuid4()}", key)
        return response.status_code == requests.codes.not_found

    def run_sample(self, key: str, within_s: float = ANSWER_WITHIN_S) -> SampleAnswer:
        """Submit one prompt, wait until its job ended, fetch the answer.

        Raises SampleFailedError where it was refused, ended otherwise than succeeded, or did not
        end in time.
        """
        began_at_s = time.monotonic()
        accepted = self._request("POST", "/v1/prompt", key, {"prompt": SAMPLE_PROMPT})
        if accepted.status_code != requests.codes.accepted:
            raise SampleFailedError(
                f"submit answered {accepted.status_code}: {accepted.text[:300]}"
            )
        job = self._wait_for_end(accepted.headers["Location"], key, began_at_s + within_s)
        if job["state"] != "succeeded":
            reason = f"{job.get('error_kind')}: {job.get('error_message')}"
            raise SampleFailedError(f"job {job['id']} ended {job['state']}, {reason}")
        prompt = self._fetch(f"/v1/prompts/{accepted.json()['prompt_id']}", key)
        return SampleAnswer(
            prompt=SAMPLE_PROMPT,
            text=str(prompt["response"]["text"]),
            job_id=str(job["id"]),
            provider=str(prompt["response"].get("provider", "")),
            took_s=time.monotonic() - began_at_s,
        )

    def _wait_for_end(self, location: str, key: str, deadline_s: float) -> dict[str, Any]:
        while True:
            job = self._fetch(location, key)
            if job["terminal"]:
                return job
            if time.monotonic() > deadline_s:
                raise SampleFailedError(f"job {job['id']} is still {job['state']}")
            self._pause(POLL_PAUSE_S)

    def _fetch(self, location: str, key: str) -> dict[str, Any]:
        response = self._request("GET", location, key)
        if response.status_code != requests.codes.ok:
            raise SampleFailedError(f"{location} answered {response.status_code}")
        body: dict[str, Any] = response.json()
        return body

    def _request(
        self, method: str, location: str, key: str, body: dict[str, str] | None = None
    ) -> requests.Response:
        url = urljoin(self._base_url, location)
        headers = {"Authorization": f"Bearer {key}"}
        try:
            return self._http.request(
                method, url, headers=headers, json=body, timeout=HTTP_WITHIN_S
            )
        except requests.RequestException as error:
            raise SampleFailedError(f"{method} {location}: {error}") from error


def development_key(client: StackClient, path: Path, environment: Mapping[str, str]) -> str:
    """The key kept in `path` if it still opens the API, else a new one, kept there (mode 0600).

    Raises KeyNotMadeError.
    """
    if path.exists():
        kept = path.read_text(encoding="ascii").strip()
        if kept and client.accepts(kept):
            return kept
    key = _new_key(environment)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{key}\n")
    return key


def _new_key(environment: Mapping[str, str]) -> str:
    words = ("keys", "create", "--org", "dev", "--user", "dev", "--json")
    try:
        made = subprocess.run(
            [sys.executable, "-m", "service.cli", *words],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=KEY_WITHIN_S,
            check=True,
            start_new_session=True,
        )
        return str(json.loads(made.stdout)["key"])
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise KeyNotMadeError(last_line) from error
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise KeyNotMadeError(repr(error)) from error
