"""What kind of failure is it that a provider or the way to it produced? (A9, X6)

The one table from a provider's failures to ErrorKind. Messages are built from the status and
from the provider's short error codes only: a provider's own sentence may quote the prompt or
the key, so it is never kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from jobs.domain.entities import Usage
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.retry import parse_retry_after

MESSAGE_MAX_CHARS: Final = 300

# Of a call that never left: there is nothing that anybody could have counted.
_NOTHING_SENT: Final = Usage(0, 0)

# What providers call it where the failure comes in a stream whose status was a success. What is
# not listed is the provider's own failure.
_STATUS_OF_CODE: Final = MappingProxyType(
    {
        "rate_limit_exceeded": 429,
        "rate_limit_error": 429,
        "too_many_requests": 429,
        "overloaded_error": 529,
        "server_overloaded": 529,
        "authentication_error": 401,
        "invalid_api_key": 401,
        "permission_error": 403,
        "model_not_found": 404,
        "not_found_error": 404,
        "timeout_error": 408,
        "content_filter": 400,
        "content_policy_violation": 400,
        "context_length_exceeded": 400,
        "invalid_prompt": 400,
        "invalid_request_error": 400,
    }
)

# What is no HTTP error by its number alone. Every other 4xx and every 3xx is provider_4xx.
_KIND_OF_STATUS: Final = MappingProxyType(
    {
        401: ErrorKind.AUTH,
        402: ErrorKind.AUTH,
        403: ErrorKind.AUTH,
        407: ErrorKind.AUTH,
        408: ErrorKind.TIMEOUT,
        # A conflict or a replayed early request is the server's state, not the prompt's fault.
        409: ErrorKind.PROVIDER_5XX,
        425: ErrorKind.PROVIDER_5XX,
        429: ErrorKind.RATE_LIMIT,
    }
)

# No wait helps against these, whatever the status (mostly 429): somebody has to pay first.
_QUOTA_CODES: Final = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_too_low",
    }
)

# A code as providers write them. Keys have digits or dashes, prompts have spaces: neither fits.
_CODE: Final = re.compile(r"[a-z]+(_[a-z]+){0,7}")
_CODE_MAX_CHARS: Final = 48
_STATUS: Final = re.compile(r"[45][0-9]{2}")
_MILLISECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def kind_of_status(status: int) -> ErrorKind:
    """The kind of an HTTP status that is not a success (A9)."""
    if status >= 500:
        return ErrorKind.PROVIDER_5XX
    return _KIND_OF_STATUS.get(status, ErrorKind.PROVIDER_4XX)


def status_error(
    status: int,
    codes: Sequence[object],
    retry_after_s: float | None = None,
    *,
    is_streamed: bool = False,
) -> AttemptError:
    """The failure behind an answer with `status`; `codes` are the provider's code, type and
    parameter as they came, of any type. Quota and billing codes are auth, never a rate limit.
    A provider that has too much to do says so by 529, or by a 503 that names a wait."""
    names = _names_in(codes)
    detail = ", ".join(dict.fromkeys(names))
    suffix = f" ({detail})" if detail else ""
    if is_streamed:
        suffix += ", in the middle of its answer"
    if status == 402 or not _QUOTA_CODES.isdisjoint(names):
        return AttemptError(
            ErrorKind.AUTH, bounded(f"billing quota used up: provider answered {status}{suffix}")
        )
    kind = kind_of_status(status)
    what = "a redirect, which is not followed" if 300 <= status < 400 else "an error"
    message = bounded(f"provider answered {status}, {what}{suffix}")
    is_overloaded = status == 529 or (status == 503 and retry_after_s is not None)
    fault = Fault.OVERLOADED if is_overloaded else Fault.NONE
    return AttemptError(kind, message, retry_after_s, fault=fault)


def streamed_error(codes: Sequence[object]) -> AttemptError:
    """The failure that a provider reports within a stream. `codes` are as those of
    `status_error`, and may hold a status, as a number or in digits."""
    statuses = [int(str(code)) for code in codes if _STATUS.fullmatch(str(code))]
    known = [_STATUS_OF_CODE[name] for name in _names_in(codes) if name in _STATUS_OF_CODE]
    return status_error(next(iter(statuses + known), 500), codes, is_streamed=True)


def broken_stream_error(usage: Usage | None) -> AttemptError:
    """A stream that came to an orderly end before its answer did, as when a server behind a
    proxy dies: as retryable as a connection that broke."""
    message = "no answer from the provider: the stream ended before the answer did"
    return AttemptError(ErrorKind.PROVIDER_5XX, message, fault=Fault.NO_ANSWER, usage=usage)


def timeout_error() -> AttemptError:
    """The provider could not be reached in time; the deadline of the attempt is not over."""
    return AttemptError(
        ErrorKind.TIMEOUT,
        "no connection to the provider in time",
        fault=Fault.NO_ANSWER,
        usage=_NOTHING_SENT,
    )


def connection_error(reason: str, *, was_sent: bool) -> AttemptError:
    """No answer: name lookup, refusal, TLS, a broken connection, a broken HTTP answer. It is
    as retryable as a 5xx, which it mostly is with a proxy in between. `reason` is ours. What
    `was_sent` may have been answered, and paid for, without us hearing of it."""
    return AttemptError(
        ErrorKind.PROVIDER_5XX,
        bounded(f"no answer from the provider: {reason}"),
        fault=Fault.NO_ANSWER,
        usage=None if was_sent else _NOTHING_SENT,
    )


def unexpected_error(error: Exception) -> AttemptError:
    """Anything else: the type is named, its text is not, since it may quote the call."""
    return AttemptError(
        ErrorKind.UNKNOWN, bounded(f"unexpected {type(error).__name__} in the provider client")
    )


def retry_after_s(
    milliseconds: Sequence[str], values: Sequence[str], now: datetime
) -> float | None:
    """The wait in seconds that the headers retry-after-ms and Retry-After ask for, the longest
    where there are several; None where none can be read. `now` is for HTTP dates."""
    waits = [float(text) / 1000 for text in milliseconds if _MILLISECONDS.fullmatch(text)]
    if not waits:
        parsed = [parse_retry_after(value, now) for value in values]
        waits = [wait_s for wait_s in parsed if wait_s is not None]
    return max(waits, default=None)


def bounded(message: str) -> str:
    """`message` without control characters, at most 300 characters."""
    return "".join(char if char.isprintable() else " " for char in message)[:MESSAGE_MAX_CHARS]


def _names_in(codes: Sequence[object]) -> list[str]:
    return [code for code in codes if isinstance(code, str) and _is_code(code)]


def _is_code(text: str) -> bool:
    return len(text) <= _CODE_MAX_CHARS and _CODE.fullmatch(text) is not None
