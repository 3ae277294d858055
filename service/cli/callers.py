"""Which way does a prompt take from the shell? Through the API with a key, or straight to Redis."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote

import requests
from marshmallow import ValidationError

from jobs.domain.errors import GenqueueError, ModelUnknownError
from jobs.domain.job import PRIORITY_DEFAULT, NewJob
from jobs.domain.states import TERMINAL, State
from jobs.runtime import Runtime
from service.schemas.prompts import PromptRequestSchema

HTTP_WITHIN_S: Final = 10.0
SENDS: Final = 3
"""A submit is sent again so often under its Idempotency-Key, where no answer came."""


class RequestRefusedError(GenqueueError):
    """The request can't be done as it was asked; `reason` says what to change."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ApiUnavailableError(GenqueueError):
    """The API does not answer, or can't take work now; `reason` says which."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was stored."""

    job_id: str
    prompt_id: str


@dataclass(frozen=True, slots=True)
class Look:
    """How a job is doing; `waiting_on` is the reason of X14, empty where it does not wait."""

    state: State
    attempt: int
    waiting_on: str = ""
    error_kind: str | None = None
    error_message: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the job will not move by itself any more."""
        return self.state in TERMINAL


class Caller(Protocol):
    """A way to submit and to follow."""

    def submit(self, body: Mapping[str, Any]) -> Receipt:
        """Store a body of `POST /v1/prompt`. Raises RequestRefusedError."""
        ...

    def look(self, receipt: Receipt) -> Look:
        """How the job is doing."""
        ...

    def answer(self, receipt: Receipt) -> str:
        """The text of the response to a job that succeeded."""
        ...


class StoreCaller:
    """An operator on Redis itself, for an org and a user."""

    def __init__(self, runtime: Runtime, org_id: str, user_id: str) -> None:
        self._runtime = runtime
        self._org_id = org_id
        self._user_id = user_id

    def submit(self, body: Mapping[str, Any]) -> Receipt:
        """Store the prompt, held to the rules of the API."""
        runtime = self._runtime
        try:
            asked = PromptRequestSchema().load(dict(body))
            target = runtime.models.target_of(asked.model or runtime.models.default_model)
        except ValidationError as error:
            raise RequestRefusedError(_told(error.messages_dict)) from error
        except ModelUnknownError as error:
            raise RequestRefusedError(f"{error}; there is {', '.join(error.known)}") from error
        reason = runtime.providers.unavailable_reason(asked.model or runtime.models.default_model)
        if reason is not None:
            raise RequestRefusedError(reason)
        job = NewJob(
            id=str(uuid.uuid4()),
            prompt_id=str(uuid.uuid4()),
            org_id=self._org_id,
            created_by=self._user_id,
            prompt_text=asked.prompt,
            target=target,
            priority=PRIORITY_DEFAULT if asked.priority is None else asked.priority,
            max_attempts=asked.max_attempts,
        )
        if runtime.queue.submit(job).ticket_wanted:
            runtime.tickets.issue()
        return Receipt(job.id, job.prompt_id)

    def look(self, receipt: Receipt) -> Look:
        """How the job is doing, in a round trip or two."""
        view = self._runtime.records.job(receipt.job_id, self._org_id)
        if view is None:
            raise RequestRefusedError(f"job {receipt.job_id} is gone: it was archived")
        job = view.job
        waiting = self._runtime.records.waiting_on(job.id) if job.state is State.QUEUED else None
        return Look(
            job.state,
            job.attempt,
            waiting.reason if waiting else "",
            job.error_kind,
            job.error_message,
        )

    def answer(self, receipt: Receipt) -> str:
        """The newest response to the prompt."""
        view = self._runtime.records.prompt(receipt.prompt_id, self._org_id)
        return view.response.text if view and view.response else ""


class _Bearer(requests.auth.AuthBase):
    """The key; set as `auth`, so that no .netrc replaces it."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class ApiCaller:
    """A client of the API at `base_url`, as the org and user of its key."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._http = requests.Session()
        self._http.auth = _Bearer(key)

    def submit(self, body: Mapping[str, Any]) -> Receipt:
        """Send the prompt; one that is sent twice is one job."""
        headers = {"Idempotency-Key": f"cli-{uuid.uuid4()}", "Prefer": "respond-async"}
        for sends in range(1, SENDS + 1):
            try:
                answer = self._ask("POST", "/v1/prompt", json=dict(body), headers=headers)
                return Receipt(str(answer["job_id"]), str(answer["prompt_id"]))
            except ApiUnavailableError:
                if sends == SENDS:
                    raise
        raise AssertionError("unreachable")

    def look(self, receipt: Receipt) -> Look:
        """How the job is doing, in one request."""
        job = self._ask("GET", f"/v1/jobs/{quote(receipt.job_id, safe='')}")
        waiting = job.get("waiting_on") or {}
        return Look(
            State(job["state"]),
            int(job["attempt"]),
            str(waiting.get("reason", "")),
            job.get("error_kind"),
            job.get("error_message"),
        )

    def answer(self, receipt: Receipt) -> str:
        """The newest response to the prompt."""
        prompt = self._ask("GET", f"/v1/prompts/{quote(receipt.prompt_id, safe='')}")
        return str((prompt.get("response") or {}).get("text", ""))

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = self._http.request(
                method,
                f"{self._base_url}{path}",
                timeout=HTTP_WITHIN_S,
                allow_redirects=False,  # a key is not carried to where it was not given for
                **options,
            )
        except requests.RequestException as error:
            raise ApiUnavailableError(
                f"{self._base_url} does not answer: {type(error).__name__}"
            ) from error
        try:
            value = response.json()
        except ValueError:
            value = None
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ApiUnavailableError(f"{self._base_url} answered {_problem(response, value)}")
        if response.status_code >= HTTPStatus.MULTIPLE_CHOICES or not isinstance(value, dict):
            raise RequestRefusedError(f"the API answered {_problem(response, value)}")
        return value


def _problem(response: requests.Response, value: Any) -> str:
    """Status and what a problem document says of it (RFC 9457)."""
    if not isinstance(value, dict):
        return f"{response.status_code}, without a problem document: is this genqueue's API?"
    told = [str(value.get("detail") or value.get("title") or "")]
    told += [
        f"{error.get('field')}: {error.get('reason') or error.get('detail')}"
        for error in value.get("errors") or ()
        if isinstance(error, dict)
    ]
    return f"{response.status_code}: {'; '.join(part for part in told if part)}"


def _told(messages: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name}: {', '.join(found) if isinstance(found, list) else _told(found)}"
        for name, found in messages.items()
    )
