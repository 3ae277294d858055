"""Is a body that claims to be a chat completion a whole answer? (A9)

Pure. Whatever is not a whole, willing answer becomes an AttemptError: servers answer 200 with
HTML, `{}`, `null`, refusals and cut-off texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.storable_text import storable
from jobs.domain.strict_json import parse_strict
from jobs.providers.base import Completion
from jobs.providers.errors import bounded

NAME_MAX_CHARS: Final = 200
TOKENS_MAX: Final = 100_000_000
"""More than this no call uses: such a figure is none."""
_UNKNOWN: Final = Usage(None, None)

# What servers say where they mean that the model came to its end by itself.
_FINISHED: Final = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT_OFF: Final = frozenset({"length", "max_tokens", "model_length"})


def read_answer(body: bytes, request_id: str | None, asked_model: str) -> Completion:
    """The completion in `body`; `request_id` is that of the HTTP answer, else the body's own id
    counts (A15). Raises AttemptError: parse, or provider_4xx for a refusal, with its fault and
    with the usage that the body names, since an answer of no use is paid for as well."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise malformed("it is no UTF-8") from None
    return completion_of(parse_object(text), request_id, asked_model)


def completion_of(
    answer: Mapping[str, Any], request_id: str | None, asked_model: str
) -> Completion:
    """The completion that `answer` is, an object as in a body of one piece. As `read_answer`."""
    usage = usage_of(answer.get("usage"))
    text, finish_reason = _text(answer, None if usage == _UNKNOWN else usage)
    return Completion(
        text=storable(text),
        model=name_of(answer.get("model")) or asked_model,
        provider_request_id=name_of(request_id) or name_of(answer.get("id")),
        finish_reason=finish_reason,
        usage=usage,
    )


def _text(answer: Mapping[str, Any], usage: Usage | None) -> tuple[str, str]:
    """The text and why it ended, where it ended by itself."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise malformed("it has no choices", usage)
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise malformed("it has no message", usage)
    finish_reason = choice.get("finish_reason")
    _refuse_unwilling(message, finish_reason, usage)
    _refuse_unfinished(finish_reason, usage)
    content = message.get("content")
    if not isinstance(content, str):
        raise malformed("its content is no text", usage)
    if not content.strip():
        raise malformed("its text is empty", usage)
    return content, str(finish_reason)


def parse_object(text: str) -> Mapping[str, Any]:
    """The JSON object in `text`. Raises AttemptError(parse)."""
    try:
        answer = parse_strict(text)
    except ValueError as error:
        raise malformed(str(error)) from None
    if not isinstance(answer, dict):
        raise malformed("it is no JSON object")
    return answer


def _refuse_unwilling(
    message: Mapping[str, Any], finish_reason: object, usage: Usage | None
) -> None:
    if message.get("refusal"):
        reason = "the model declined to answer"
    elif finish_reason == "content_filter":
        reason = "the provider's content filter stopped the answer"
    else:
        return
    raise AttemptError(
        ErrorKind.PROVIDER_4XX, f"refused: {reason}", fault=Fault.REFUSED, usage=usage
    )


def _refuse_unfinished(finish_reason: object, usage: Usage | None) -> None:
    if not isinstance(finish_reason, str):
        raise malformed("it gives no finish reason, so it may be cut off", usage)
    if finish_reason in _CUT_OFF:
        message = "the answer was cut off at max_tokens"
        raise AttemptError(ErrorKind.PARSE, message, fault=Fault.CUT_OFF, usage=usage)
    if finish_reason not in _FINISHED:
        raise malformed("its finish reason is none of a finished text", usage)


def malformed(reason: str, usage: Usage | None = None) -> AttemptError:
    """What came is no whole answer, for `reason`, which quotes nothing of it."""
    message = bounded(f"the answer is no chat completion: {reason}")
    return AttemptError(ErrorKind.PARSE, message, fault=Fault.MALFORMED, usage=usage)


def name_of(value: object) -> str | None:
    """`value` where it can be stored as a name or an id."""
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX_CHARS:
        return None
    return value if value.isascii() and value.isprintable() else None


def usage_of(usage: object) -> Usage:
    """The tokens that `usage` counts, None where it counts none that can be."""
    if not isinstance(usage, dict):
        return _UNKNOWN
    return Usage(_tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens")))


def _tokens(count: object) -> int | None:
    if not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 <= count <= TOKENS_MAX else None
