"""Does the stack answer? Wait for it, run one prompt and one generation over HTTP."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urljoin

import requests

from service.stack.environment import MOCK_MODEL
from service.stack.errors import SampleFailedError, StackNotReadyError

READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 30.0
HTTP_WITHIN_S = 10.0
POLL_PAUSE_S = 0.1
SAMPLE_PROMPT = "Say in one sentence what a queue is good for."
DEV_TEAM: Final = "dev"
GENERATIONS: Final = f"/api/projects/{DEV_TEAM}/workflow_llm_generations/"
SAMPLE_TEXT_PROMPT: Final = "Welcome Ada, who placed a first order, in one sentence."
SAMPLE_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"subject_line": "A subject line of at most 8 words."}
)
# A failure that the submit answers is somebody's choice (the flag, the credits, the models file,
# many submits), which is no reason not to serve.
REFUSALS: Final = frozenset(
    {requests.codes.ok, requests.codes.not_found, requests.codes.too_many_requests}
)

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


@dataclass(frozen=True, slots=True)
class GenerationAnswer:
    """What came back for the sample generation; `refusal` is `code: message` where it was not
    accepted, else empty."""

    prompt: str
    text: str
    fields: Mapping[str, str]
    generation_id: str
    took_s: float
    refusal: str = ""


def generation_body(invocation_id: str, output_fields: Mapping[str, str]) -> dict[str, Any]:
    """What the sample generation submits; `output_fields` is left out where it is empty."""
    body: dict[str, Any] = {
        "invocation_id": invocation_id,
        "model": MOCK_MODEL,
        "prompt": SAMPLE_TEXT_PROMPT,
    }
    return {**body, "output_fields": dict(output_fields)} if output_fields else body


class StackClient:
    """An HTTP client of the stack's own API at `http://127.0.0.1:<port>`."""

    def __init__(self, base_url: str, pause: Pause) -> None:
        self._base_url = base_url
        self._pause = pause
        self._http = requests.Session()
        # A proxy of the environment is never wanted on loopback.
        self._http.trust_env = False

    @property
    def base_url(self) -> str:
        """Where the API is."""
        return self._base_url

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
            self.pause()
        raise StackNotReadyError(url, within_s, answer)

    def accepts(self, key: str) -> bool:
        """Whether the API knows the key: an unknown job is 404 with it and 401 without."""
        response = self._request("GET", f"/v1/jobs/{uuid.uuid4()}", key)
        return response.status_code == requests.codes.not_found

    def accepts_token(self, token: str) -> bool:
        """Whether the API knows the team's token: an unknown generation is 404 with it."""
        response = self._request("GET", f"{GENERATIONS}{uuid.uuid4()}/", token)
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

    def run_generation(
        self, token: str, output_fields: Mapping[str, str], within_s: float = ANSWER_WITHIN_S
    ) -> GenerationAnswer:
        """Submit one generation, wait until it ended, answer its result or why it was refused.

        Raises SampleFailedError where the request was faulty, or where what was accepted failed
        or did not end in time.
        """
        began_at_s = time.monotonic()
        body = generation_body(f"sample-{uuid.uuid4()}", output_fields)
        submitted = self._request("POST", GENERATIONS, token, body)
        if submitted.status_code in REFUSALS:
            refusal = _failure(submitted.json())
            return GenerationAnswer(body["prompt"], "", {}, "", 0.0, refusal)
        if submitted.status_code != requests.codes.accepted:
            raise SampleFailedError(
                f"submit answered {submitted.status_code}: {submitted.text[:300]}"
            )
        generation = self._wait_for_generation(
            submitted.headers["Location"], token, began_at_s + within_s
        )
        if generation["status"] != "succeeded":
            reason = _failure(generation)
            raise SampleFailedError(f"generation {generation['id']} failed, {reason}")
        return GenerationAnswer(
            prompt=body["prompt"],
            text=generation["result"]["text"],
            fields=generation["result"]["fields"],
            generation_id=generation["id"],
            took_s=time.monotonic() - began_at_s,
        )

    def pause(self) -> None:
        """Wait a moment before asking again; raises where the stack is to stop."""
        self._pause(POLL_PAUSE_S)

    def _wait_for_generation(self, location: str, token: str, deadline_s: float) -> dict[str, Any]:
        while True:
            response = self._request("GET", location, token)
            if response.status_code == requests.codes.ok:
                ended: dict[str, Any] = response.json()
                return ended
            if response.status_code != requests.codes.accepted:
                raise SampleFailedError(f"{location} answered {response.status_code}")
            if time.monotonic() > deadline_s:
                raise SampleFailedError(f"generation {response.json()['id']} is still pending")
            self.pause()

    def _wait_for_end(self, location: str, key: str, deadline_s: float) -> dict[str, Any]:
        while True:
            job = self._fetch(location, key)
            if job["terminal"]:
                return job
            if time.monotonic() > deadline_s:
                raise SampleFailedError(f"job {job['id']} is still {job['state']}")
            self.pause()

    def _fetch(self, location: str, key: str) -> dict[str, Any]:
        response = self._request("GET", location, key)
        if response.status_code != requests.codes.ok:
            raise SampleFailedError(f"{location} answered {response.status_code}")
        body: dict[str, Any] = response.json()
        return body

    def _request(
        self, method: str, location: str, key: str, body: Mapping[str, Any] | None = None
    ) -> requests.Response:
        return self.request(method, location, {"Authorization": f"Bearer {key}"}, body)

    def request(
        self,
        method: str,
        location: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> requests.Response:
        """One request of the API. Raises SampleFailedError where there is no answer."""
        url = urljoin(self._base_url, location)
        try:
            return self._http.request(
                method, url, headers=headers, json=body, timeout=HTTP_WITHIN_S
            )
        except requests.RequestException as error:
            raise SampleFailedError(f"{method} {location}: {error}") from error


def _failure(generation: Mapping[str, Any]) -> str:
    error = generation["error"]
    return f"{error['code']}: {error['message']}"
