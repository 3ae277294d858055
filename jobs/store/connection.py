"""How do we connect to Redis, and what do its failures mean to a caller?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis import Redis
from redis import exceptions as redis_errors
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from jobs.domain.errors import StoreUnavailableError

SOCKET_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 2.0
RESEND_TIMES: Final = 2
"""A lost reply is asked for again so often; every script bears it (decision 5)."""

AWAY: Final = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.BusyLoadingError,
    redis_errors.ReadOnlyError,
)

REFUSALS: Final = (
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "MASTERDOWN",
    "UNBLOCKED",
    "CLUSTERDOWN",
    "BUSY",
)
"""Answers of a Redis that lives but takes no writes now."""


def connect(url: str, *, socket_timeout_s: float = SOCKET_TIMEOUT_S, **extra: Any) -> Redis:
    """A client for the store: text in, text out, bounded waits, few re-sends.

    Raises ValueError for a malformed `url`; connects on first use.
    """
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_keepalive=True,
        health_check_interval=30,
        retry=Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), RESEND_TIMES),
        max_connections=256,
        **extra,
    )


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn what Redis says of its own state into StoreUnavailableError; bugs stay bugs."""
    try:
        yield
    except AWAY as error:
        raise StoreUnavailableError(f"Redis is away: {type(error).__name__}") from error
    except redis_errors.ResponseError as error:
        if _is_refusal(error):
            raise StoreUnavailableError("Redis takes no writes now", retry_after_s=5) from error
        raise


def _is_refusal(error: redis_errors.ResponseError) -> bool:
    """Whether Redis refuses writes as a whole. The client cuts the code of the answers that it
    knows off the text and keeps it beside; Redis 6 wraps the answer of a script's command."""
    text = str(error)
    return (
        error.status_code in REFUSALS
        or text.split(" ", 1)[0] in REFUSALS
        or any(f"-{code} " in text for code in REFUSALS)
    )
