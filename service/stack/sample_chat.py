"""Does a chat turn that fails go on in the background? One that is made to, over HTTP."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import requests

from jobs import formation_file
from jobs.providers import registry
from jobs.settings import Settings
from service.stack.errors import SampleFailedError
from service.stack.sample import StackClient

CHAT: Final = "/v1/chat"
DEV_USER: Final = "dev"
MESSAGE: Final = "Chart the Q3 numbers. [[mock error=provider_4xx]]"
"""The mock fails the turn; the plan that replaces it has no such word."""

ENDS_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the turn answered, and what came of it."""

    message: str
    text: str
    request_id: str
    status: str
    result: str
    took_s: float


def chats_by_mock(settings: Settings) -> bool:
    """Whether the mock answers whatever the formation asks. Raises SettingsInvalidError."""
    models = registry.load(settings.models_file)
    formation = formation_file.load(settings.formation_file, models)
    asked = {
        formation.planner_model,
        *(agent.model for agent in formation.agents),
        *(name for agent in formation.agents for name in agent.fallbacks),
    }
    specs = [models.resolve(name or models.default_model) for name in asked]
    return all(models.providers[spec.provider].type == "mock" for spec in specs)


def chat_headers(client_key: str) -> dict[str, str]:
    """Who is asking: the development client, for user dev."""
    return {"X-Muxi-Client-Key": client_key, "X-Muxi-User-Id": DEV_USER}


def run_chat(client: StackClient, client_key: str) -> ChatAnswer:
    """Send a turn that fails, and poll until its chain has ended.

    Raises SampleFailedError where the service answers otherwise, or the chain does not end.
    """
    began_at_s = time.monotonic()
    headers = chat_headers(client_key)
    answered = client.request("POST", CHAT, headers, {"message": MESSAGE})
    body = _json_of(answered, "POST /v1/chat")
    request_id = str(body["request"]["id"])
    ended = _wait_for_end(client, answered.headers["Location"], headers)
    return ChatAnswer(
        message=MESSAGE,
        text=str(body["data"]["content"]),
        request_id=request_id,
        status=str(ended["status"]),
        result=str(ended.get("result") or ""),
        took_s=time.monotonic() - began_at_s,
    )


def _wait_for_end(
    client: StackClient, location: str, headers: Mapping[str, str]
) -> Mapping[str, Any]:
    deadline_s = time.monotonic() + ENDS_WITHIN_S
    while True:
        status: Mapping[str, Any] = _json_of(client.request("GET", location, headers), location)[
            "data"
        ]
        if status["status"] not in {"queued", "processing"}:
            return status
        if time.monotonic() > deadline_s:
            raise SampleFailedError(f"request {status['request_id']} is still {status['status']}")
        client.pause()


def _json_of(answer: requests.Response, what: str) -> Mapping[str, Any]:
    if answer.status_code not in {requests.codes.ok, requests.codes.accepted}:
        raise SampleFailedError(f"{what} answered {answer.status_code}: {answer.text[:300]}")
    body: Mapping[str, Any] = answer.json()
    return body
