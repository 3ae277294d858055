"""Is there another attempt, and when? Pure: jitter and the instant come as arguments (A9, A10)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.outcome import Cooldown, Failed, Retry

Jitter = Callable[[float], float]
"""Given a spread in seconds, answers a value from 0 up to that spread."""

RETRY_AFTER_MAX_S: Final = 3600.0
"""A longer wait than this is not what a provider means: it is clamped."""

RATE_LIMIT_FLOOR_S: Final = 60.0
RATE_LIMIT_SPREAD_S: Final = 15.0
RETRY_AFTER_SPREAD: Final = 0.25

COOLDOWN_UNNAMED_S: Final = 10.0
"""So long nothing more goes to a provider that is too busy and does not say for how long."""

_DELTA_SECONDS: Final = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the ladder: a floor and a spread on top of it, in seconds."""

    floor_s: float
    spread_s: float


LADDER: Final = (Step(5.0, 5.0), Step(25.0, 15.0), Step(125.0, 45.0))


def backoff_s(
    kind: ErrorKind, next_attempt: int, retry_after_s: float | None, jitter: Jitter
) -> float:
    """Seconds to wait before attempt `next_attempt` (2 or more) after a failure of `kind` (A10).

    A provider's own wait is never undercut, whatever the kind: jitter of up to a quarter (at
    least a second) is added to it, so that all who were told the same do not come back in the
    same instant.
    """
    if kind is ErrorKind.WORKER_CRASH:
        return 0.0
    if kind is ErrorKind.RATE_LIMIT:
        if retry_after_s is None:
            return RATE_LIMIT_FLOOR_S + jitter(RATE_LIMIT_SPREAD_S)
        return _named_wait_s(retry_after_s, jitter)
    step = LADDER[min(max(next_attempt, 2) - 2, len(LADDER) - 1)]
    if retry_after_s is not None and retry_after_s > step.floor_s:
        return _named_wait_s(retry_after_s, jitter)
    return step.floor_s + jitter(step.spread_s)


def _named_wait_s(retry_after_s: float, jitter: Jitter) -> float:
    wait_s = min(retry_after_s, RETRY_AFTER_MAX_S)
    return wait_s + jitter(max(1.0, wait_s * RETRY_AFTER_SPREAD))


def decide(
    error: AttemptError, attempt: int, max_attempts: int, jitter: Jitter, target: str
) -> Retry | Failed:
    """What becomes of a job whose attempt `attempt` of `max_attempts` failed (A9, A10, A13), and
    of others for the same `target` (X15)."""
    cooldown = cooldown_of(error, target)
    if not error.kind.is_retryable or attempt >= max_attempts:
        return Failed(error.kind, error.message, cooldown=cooldown)
    wait_s = backoff_s(error.kind, attempt + 1, error.retry_after_s, jitter)
    return Retry(error.kind, error.message, after_ms=math.ceil(wait_s * 1000), cooldown=cooldown)


def cooldown_of(error: AttemptError, target: str) -> Cooldown | None:
    """The pause that a 429 or an overloaded provider asks of everybody: its Retry-After, at most
    an hour (X15); None for any other failure."""
    if error.kind is not ErrorKind.RATE_LIMIT and error.fault is not Fault.OVERLOADED:
        return None
    return pause_of(target, error.retry_after_s)


def pause_of(target: str, named_s: float | None) -> Cooldown | None:
    """The pause of a provider that was too busy and asked for `named_s` seconds, if for any."""
    wait_s = COOLDOWN_UNNAMED_S if named_s is None else min(named_s, RETRY_AFTER_MAX_S)
    return Cooldown(target, math.ceil(wait_s * 1000)) if wait_s > 0 else None


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header: delta-seconds or an HTTP date (RFC 9110, 10.2.3).

    None for a missing or unreadable value (`soon`, `nan`, `-1`, `1_0`), which leaves the
    caller with its own backoff; a date that has passed is 0.
    """
    if value is None:
        return None
    text = value.strip()
    if _DELTA_SECONDS.fullmatch(text):
        return float(text)
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return max(0.0, (instant - now).total_seconds())
