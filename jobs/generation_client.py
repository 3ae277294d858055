"""How does a step reach a generation service, and what do its answers mean? (B5, B30)

A status code says whether to ask again; the words beside it are for people. Everything that
comes back is another's: it is read within bounds, and nothing of it is taken on trust.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import quote

from jobs.domain.generation import envelope, fits
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.generation_prompts import collapsed
from jobs.domain.retry import RETRY_AFTER_MAX_S, parse_retry_after
from jobs.domain.step import Answer, Ended, NoAnswer, Pending, Result, StepRequest, Throttled
from jobs.domain.storable_text import storable
from jobs.domain.strict_json import parse_strict
from jobs.providers.exchange import Exchange, Exchanged, ExchangeError

SUBMIT_WITHIN_S: Final = 5.0
RETRIEVE_WITHIN_S: Final = 3.0
"""Wall clock of a call, from the name lookup to the last byte (B30)."""

ANSWER_MAX_BYTES: Final = 64 * 1024
MESSAGE_MAX_CHARS: Final = 300
RETRY_AFTER_MIN_S: Final = 1.0
GONE: Final = "The generation is not there any more. Run the step again."

_LATER: Final = frozenset({408, 425})
"""Of the 4xx those that say nothing about the request."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD: Final = re.compile(r"[a-z0-9_]{1,40}")


class GenerationClient(Protocol):
    """Submits and collects generations for steps; what goes wrong is a value too."""

    def submit(self, request: StepRequest) -> Answer:
        """Ask for a generation. The same request again is the same generation (B9)."""
        ...

    def retrieve(self, team_id: str, generation_id: str) -> Answer:
        """What became of a generation of this team."""
        ...


class HttpGenerationClient:
    """Asks the service at `base_url`, an http or https address without the routes' own path.

    `token` is a team's, and is sent to that address alone: neither a redirect nor a proxy of the
    environment is followed. Wakes are not asked for: the backup polls collect (B27). To be
    shared by threads.
    """

    def __init__(
        self,
        base_url: str,
        token: str,
        *,
        submit_within_s: float = SUBMIT_WITHIN_S,
        retrieve_within_s: float = RETRIEVE_WITHIN_S,
    ) -> None:
        self._exchange = Exchange(base_url, token)
        self._submit_within_s = submit_within_s
        self._retrieve_within_s = retrieve_within_s

    def submit(self, request: StepRequest) -> Answer:
        """Ask for a generation, in at most 5 s (B30)."""
        body: dict[str, Any] = {
            "invocation_id": request.invocation_id,
            "prompt": request.prompt,
            "model": request.model,
            "output_fields": dict(request.output_fields),
        }
        if request.hog_flow_id is not None:
            body["hog_flow_id"] = request.hog_flow_id
        answer = self._call("POST", request.team_id, "", body, self._submit_within_s)
        missing = GenerationCode.FEATURE_UNAVAILABLE
        return answer if isinstance(answer, NoAnswer) else _read(answer, missing, COPY[missing])

    def retrieve(self, team_id: str, generation_id: str) -> Answer:
        """What became of a generation, in at most 3 s (B30)."""
        path = f"{quote(generation_id, safe='')}/"
        answer = self._call("GET", team_id, path, None, self._retrieve_within_s)
        missing = GenerationCode.GATEWAY_UNAVAILABLE
        if isinstance(answer, NoAnswer):
            return answer
        found = _read(answer, missing, GONE)
        if isinstance(found, Pending | Result) and found.generation_id != generation_id:
            return NoAnswer("the answer is for another generation")
        return found

    def _call(
        self, method: str, team_id: str, path: str, body: object, within_s: float
    ) -> _HttpAnswer | NoAnswer:
        team = quote(team_id, safe="")
        try:
            return _HttpAnswer(
                self._exchange.send(
                    method,
                    f"/api/projects/{team}/workflow_llm_generations/{path}",
                    None if body is None else json.dumps(body).encode(),
                    within_s=within_s,
                    max_bytes=ANSWER_MAX_BYTES,
                )
            )
        except ExchangeError as error:
            return NoAnswer(str(error))


class _HttpAnswer:
    """An answer that arrived; `body` is None where it is too long or no JSON object."""

    def __init__(self, answer: Exchanged) -> None:
        self.status = answer.status
        self.retry_after = answer.retry_after
        self.body = _object(answer.body)

    @property
    def code(self) -> str:
        """The code of its error, empty where it has none that is a word."""
        code = _part(self.body, "error").get("code")
        return code if isinstance(code, str) and _WORD.fullmatch(code) else ""

    @property
    def message(self) -> str:
        """The message of its error, in one line."""
        message = _part(self.body, "error").get("message")
        return collapsed(message)[:MESSAGE_MAX_CHARS] if isinstance(message, str) else ""


def _object(body: bytes | None) -> Mapping[str, Any] | None:
    if body is None:
        return None
    try:
        value = parse_strict(body.decode())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _part(body: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    value = body.get(name) if body else None
    return value if isinstance(value, dict) else {}


def _read(answer: _HttpAnswer, missing: GenerationCode, missing_copy: str) -> Answer:
    """What an answer means (B5). A 404 is `missing` unless it has a code of ours."""
    status = answer.status
    if status == 429:
        return Throttled(_retry_after_s(answer.retry_after))
    if status == 404:
        return _ended(answer, missing, missing_copy)
    if 400 <= status < 500 and status not in _LATER:
        said = f"HTTP {status}, {answer.code}" if answer.code else f"HTTP {status}"
        return Ended(
            GenerationCode.GATEWAY_UNAVAILABLE,
            f"The generation service refused the request ({said}). Trying again won't help.",
        )
    if status in {200, 202}:
        return _generation(answer) or NoAnswer("an answer that can't be read")
    return NoAnswer(f"HTTP {status}")


def _generation(answer: _HttpAnswer) -> Answer | None:
    body = answer.body or {}
    generation_id, word = body.get("id"), body.get("status")
    if not isinstance(generation_id, str) or not _ID.fullmatch(generation_id):
        return None
    if (answer.status, word) == (202, "pending"):
        return Pending(generation_id)
    if (answer.status, word) == (200, "succeeded"):
        result = _envelope(_part(body, "result"))
        return None if result is None else Result(generation_id, result)
    if (answer.status, word) == (200, "failed"):
        code = GenerationCode.GATEWAY_UNAVAILABLE
        return _ended(answer, code, COPY[code])
    return None


def _ended(answer: _HttpAnswer, code: GenerationCode, copy: str) -> Ended:
    """With the answer's own code and message where the code is one of ours."""
    try:
        code = GenerationCode(answer.code)
    except ValueError:
        return Ended(code, copy)
    return Ended(code, answer.message or COPY[code])


def _envelope(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    text, fields = result.get("text"), result.get("fields")
    if not isinstance(text, str) or not isinstance(fields, dict):
        return None
    if not all(isinstance(value, str) for value in fields.values()):
        return None
    values = {storable(name): storable(value) for name, value in fields.items()}
    text = storable(text)
    return {"text": text, "fields": values} if fits(envelope(text, values)) else None


def _retry_after_s(header: str | None) -> float:
    """Whole seconds, from 1 to an hour; 1 where the header can't be read."""
    named_s = parse_retry_after(header, datetime.now(UTC))
    wait_s = RETRY_AFTER_MIN_S if named_s is None else named_s
    return float(math.ceil(min(max(wait_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S)))
