"""Is a body that claims to be a chat completion a whole answer? (A9)

Pure. Whatever is not a whole, willing answer becomes an AttemptError: servers answer 200 with
HTML, `{}`, `null`, refusals and cut-off texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind
from jobs.domain.strict_json import parse_strict
from jobs.providers.base import Completion
from jobs.providers.errors import bounded

NAME_MAX_CHARS: Final = 200
TOKENS_MAX: Final = 2**53

# What servers say where they mean that the model came to its end by itself.
_FINISHED: Final = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT_OFF: Final = frozenset({"length", "max_tokens", "model_length"})

# Redis and UTF-8 take no lone surrogate, and tools take no NUL: both become U+FFFD.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def read_answer(body: bytes, request_id: str | None, asked_model: str) -> Completion:
    """The completion in `body`; `request_id` is that of the HTTP answer, else the body's own id
    counts (A15). Raises AttemptError: parse, or provider_4xx for a refusal."""
    answer = _parse(body)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _malformed("it has no choices")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _malformed("it has no message")
    finish_reason = choice.get("finish_reason")
    _refuse_unwilling(message, finish_reason)
    _refuse_unfinished(finish_reason)
    content = message.get("content")
    if not isinstance(content, str):
        raise _malformed("its content is no text")
    if not content.strip():
        raise _malformed("its text is empty")
    return Completion(
        text=storable(content),
        model=_name(answer.get("model")) or asked_model,
        provider_request_id=_name(request_id) or _name(answer.get("id")),
        finish_reason=str(finish_reason),
        usage=_usage(answer.get("usage")),
    )


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        answer = parse_strict(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _malformed("it is no UTF-8") from None
    except ValueError as error:
        raise _malformed(str(error)) from None
    if not isinstance(answer, dict):
        raise _malformed("it is no JSON object")
    return answer


def _refuse_unwilling(message: Mapping[str, Any], finish_reason: object) -> None:
    if message.get("refusal"):
        raise AttemptError(ErrorKind.PROVIDER_4XX, "refused: the model declined to answer")
    if finish_reason == "content_filter":
        raise AttemptError(
            ErrorKind.PROVIDER_4XX, "refused: the provider's content filter stopped the answer"
        )


def _refuse_unfinished(finish_reason: object) -> None:
    if not isinstance(finish_reason, str):
        raise _malformed("it gives no finish reason, so it may be cut off")
    if finish_reason in _CUT_OFF:
        raise AttemptError(ErrorKind.PARSE, "the answer was cut off at max_tokens")
    if finish_reason not in _FINISHED:
        raise _malformed("its finish reason is none of a finished text")


def _malformed(reason: str) -> AttemptError:
    return AttemptError(ErrorKind.PARSE, bounded(f"the answer is no chat completion: {reason}"))


def _name(value: object) -> str | None:
    """`value` where it can be stored as a name or an id."""
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX_CHARS:
        return None
    return value if value.isascii() and value.isprintable() else None


def _usage(usage: object) -> Usage:
    if not isinstance(usage, dict):
        return Usage(None, None)
    return Usage(_tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens")))


def _tokens(count: object) -> int | None:
    if not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 <= count <= TOKENS_MAX else None
