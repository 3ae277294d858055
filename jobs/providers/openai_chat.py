"""How is a call made to anything that speaks OpenAI's chat completions? (X6)

The only module that imports the openai SDK, which costs most of a second and 40 MB: import it
in workers, never in a web process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import openai

from jobs.domain.abort import AbortScope, current, entered
from jobs.domain.errors import AttemptAbortedError, AttemptError
from jobs.domain.models import ModelFeatures, ModelSpec, ProviderSpec
from jobs.domain.storable_text import storable
from jobs.providers.base import Call, Completion
from jobs.providers.chat_answer import read_answer
from jobs.providers.chat_stream import StreamedAnswer
from jobs.providers.errors import (
    connection_error,
    retry_after_s,
    status_error,
    timeout_error,
    unexpected_error,
)
from jobs.providers.network import CONNECT_BUDGET_S
from jobs.providers.scope import scoped
from jobs.providers.tls import SharedTls
from jobs.providers.transport import is_event_stream, make_transport

# At their debug level these write prompts and headers into the log, and OPENAI_LOG=debug in the
# environment would ask for it.
for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

READ_OUT_S: Final = 0.5
"""How long the end of a connection's answer is waited for once all of it has been said."""

_OURS: Final = (AttemptError, AttemptAbortedError)

# The SDK insists on a key; the transport drops the header that it makes of it.
_KEY_OF_THE_SDK: Final = "added-by-the-transport"


class OpenAIChatProvider:
    """One provider of the models file, shared by all threads of a process (X6).

    `models` are those that it serves: what they support decides which parameters are sent; the
    first of two with the same `provider_model` counts. A connection takes at most
    `connect_budget_s` seconds to come about. Not to be shared over a fork.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        api_key: str | None,
        models: Iterable[ModelSpec],
        tls: SharedTls | None = None,
        connect_budget_s: float = CONNECT_BUDGET_S,
    ) -> None:
        base_url = spec.base_url or ""
        self._name = spec.name
        self._features: dict[str, ModelFeatures] = {}
        for model in models:
            self._features.setdefault(model.provider_model, model.supports)
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=_KEY_OF_THE_SDK,
            # One call is one attempt: the queue decides about another.
            max_retries=0,
            # The scope is the bound; the SDK's timeouts would be a second, looser one.
            timeout=None,
            http_client=httpx2.Client(
                transport=make_transport(base_url, api_key, tls or SharedTls(), connect_budget_s),
                # A redirect would carry the prompt to an address that nobody configured.
                follow_redirects=False,
                trust_env=False,
                timeout=None,
            ),
        )

    @property
    def name(self) -> str:
        """The provider's name in the models file."""
        return self._name

    def complete(self, call: Call, on_text: Callable[[str], None] | None = None) -> Completion:
        """Run one call, in one HTTP request, under the current AbortScope (180 s without one).

        Raises AttemptError and AttemptAbortedError; neither carries prompt, key or SDK error.
        A server that does not stream though it was asked to gives its text in one piece.
        """
        with scoped() as scope:
            if on_text is None:
                return self._complete(call)
            with closing(self._streamed(call)) as pieces:
                return _relayed(pieces, on_text, scope)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def _complete(self, call: Call) -> Completion:
        parameters = _parameters_of(call, self._features_of(call))
        try:
            answer = self._client.chat.completions.with_raw_response.create(**parameters)
            request_id = answer.headers.get("x-request-id")
            return read_answer(answer.content, request_id, call.model)
        except Exception as error:
            failure = _failure_of(error)
        # Raised here, not in the handler: its context would be the SDK's error with the request.
        raise failure

    def _streamed(self, call: Call) -> Generator[str, None, Completion]:
        """Gives the text piece by piece, returns the whole answer; what it is given to raises
        outside of it, so that no failure of others is taken for one of the provider's."""
        features = self._features_of(call)
        parameters = {**_parameters_of(call, features), "stream": True}
        if features.stream_usage:
            parameters["stream_options"] = {"include_usage": True}
        create = self._client.chat.completions.with_streaming_response.create
        try:
            with create(**parameters) as answer:
                return (yield from _pieces_of(answer.http_response, call.model))
        except Exception as error:
            failure = _failure_of(error)
        raise failure

    def _features_of(self, call: Call) -> ModelFeatures:
        return self._features.get(call.model, ModelFeatures())


def _relayed(
    pieces: Generator[str, None, Completion], on_text: Callable[[str], None], scope: AbortScope
) -> Completion:
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            completion: Completion = end.value
            return completion
        # Many pieces come by one read, and to pass them on may take its time.
        scope.check()
        on_text(piece)


def _pieces_of(answer: httpx2.Response, asked_model: str) -> Generator[str, None, Completion]:
    request_id = answer.headers.get("x-request-id")
    if not is_event_stream(answer):
        completion = read_answer(answer.read(), request_id, asked_model)
        yield completion.text
        return completion
    streamed = StreamedAnswer()
    chunks = answer.iter_bytes()
    for chunk in chunks:
        yield from streamed.take(chunk)
        if streamed.is_done:
            break
    yield from streamed.finish()
    completion = streamed.completion(request_id, asked_model)
    _read_out(chunks)
    return completion


def _read_out(chunks: Iterator[bytes]) -> None:
    """Read to the end of an answer that is whole, where that comes soon: only then its
    connection can be used again."""
    scope = current() or AbortScope(READ_OUT_S)
    # Whatever happens here, no more is lost than the connection.
    with suppress(Exception), entered(scope.narrowed(READ_OUT_S)):
        for _ in chunks:
            pass


def _parameters_of(call: Call, features: ModelFeatures) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "model": call.model,
        "messages": [
            {"role": message.role, "content": storable(message.content)}
            for message in call.messages
        ],
    }
    if call.max_tokens is not None:
        parameters[features.max_tokens_parameter] = call.max_tokens
    if call.temperature is not None and features.temperature:
        parameters["temperature"] = call.temperature
    if call.reasoning_effort in features.reasoning_efforts:
        parameters["reasoning_effort"] = call.reasoning_effort
    if call.json_schema is not None and features.strict_schema:
        schema = {"strict": True, **call.json_schema}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    return parameters


def _failure_of(error: Exception) -> AttemptError | AttemptAbortedError:
    """What `error` means to the queue, with nothing left of what it came from."""
    failure = error if isinstance(error, _OURS) else _translated(error)
    failure.__context__ = failure.__cause__ = None
    return failure.with_traceback(None)


def _translated(error: Exception) -> AttemptError:
    # The order matters: a timeout is a connection error to the SDK.
    if isinstance(error, openai.APITimeoutError):
        return timeout_error()
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        return connection_error(_reason_of(cause), was_sent=not _is_connect_error(cause))
    if isinstance(error, httpx2.TransportError):
        # Of a stream that the SDK does not read for us.
        return connection_error(_reason_of(error), was_sent=True)
    if isinstance(error, openai.APIStatusError):
        return _status_failure_of(error)
    return unexpected_error(error)


def _is_connect_error(cause: BaseException | None) -> bool:
    return isinstance(cause, httpx2.ConnectError)


def _reason_of(cause: BaseException | None) -> str:
    if _is_connect_error(cause):
        # Our own words, from jobs.providers.network.
        return str(cause)
    if isinstance(cause, httpx2.ProtocolError):
        return "it broke off or sent malformed HTTP"
    if isinstance(cause, httpx2.NetworkError):
        return "the connection broke"
    return "the connection failed"


def _status_failure_of(error: openai.APIStatusError) -> AttemptError:
    headers = error.response.headers
    wait_s = retry_after_s(
        headers.get_list("retry-after-ms"), headers.get_list("retry-after"), datetime.now(UTC)
    )
    body = error.body if isinstance(error.body, Mapping) else {}
    codes = (error.code, error.type, body.get("status"), error.param)
    return status_error(error.status_code, codes, wait_s)
