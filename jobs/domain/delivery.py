"""Is a delivery tried again, and when? Pure: jitter comes as an argument (C16, C17)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Jitter = Callable[[float], float]
"""Given a spread in seconds, answers a value from 0 up to that spread."""


class DeliveryKind(StrEnum):
    """What is posted: the outcome of a chain to a notification channel or a webhook (C10), or that
    a generation or a step has ended, to whoever waits for it (B26)."""

    CHANNEL = "channel"
    WEBHOOK = "webhook"
    WAKE = "wake"


TEAM_OWNER: Final = "team:"
"""Before the id of a team that owns a delivery, which so is no client's."""


def team_of(owner: str) -> str:
    """The team that owns a delivery of kind wake."""
    return owner.removeprefix(TEAM_OWNER)


class DeliveryState(StrEnum):
    """How far a delivery is. `given_up`: nobody took it for as long as it is tried; `gone`: its
    receiver wants no more (410); `failed`: no try can succeed."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    GONE = "gone"
    FAILED = "failed"


class TryError(StrEnum):
    """Why a try got no answer."""

    TIMEOUT = "timeout"
    NO_CONNECTION = "no_connection"
    TLS = "tls"
    BROKEN = "broken"
    REFUSED_ADDRESS = "refused_address"
    INVALID_URL = "invalid_url"
    NO_KEY = "no_key"
    NO_RECORD = "no_record"
    NO_LOOKUP = "no_lookup"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one try: a status, or an error. `retry_after_s` is what the receiver asked
    for."""

    status: int | None = None
    error: TryError | None = None
    retry_after_s: float | None = None

    @property
    def entry(self) -> str:
        """The word that the log of tries keeps."""
        return str(self.status) if self.error is None else self.error.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the delivery: `pending` is due again `after_ms` from now. `pause_ms` is for
    how long its hook is left alone, 0 where it is well, None where the try does not say. What does
    not count makes no later wait longer, and is none of the tries that a delivery has."""

    state: DeliveryState
    after_ms: int = 0
    pause_ms: int | None = None
    counts: bool = True


WAITS_S: Final = (5.0, 30.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Before the second try, the third, …; the last one is for all after it."""

SPREAD: Final = 0.2
WAKE_TRIES_MAX: Final = 4
PAUSES_S: Final = WAITS_S[:3]
"""How long a hook is left alone, by its failures in a row: at most 5 minutes, so that what is
new does not wait for hours for a hook that came back."""

_FINAL: Final = {TryError.INVALID_URL, TryError.NO_RECORD}
_OURS: Final = {TryError.NO_KEY, TryError.INTERNAL, TryError.NO_LOOKUP, *_FINAL}
"""Of these the receiver knows nothing."""


def judge(
    tried: Tried, kind: DeliveryKind, tries_before: int, failures_before: int, jitter: Jitter
) -> Verdict:
    """What follows from a try. `tries_before` counts those since it was added or replayed,
    `failures_before` those of its hook in a row.

    Any 2xx delivers; 410 ends it; all else is tried again, redirects included, which are not
    followed. The store gives it up when its time is over, however long it shall wait here.
    """
    if tried.error is TryError.NO_LOOKUP:
        # Others of ours were in the way; nobody was asked anything.
        return Verdict(DeliveryState.PENDING, _spread_ms(WAITS_S[0], jitter), counts=False)
    pause_ms = _pause_ms(tried, failures_before, jitter)
    if tried.status is not None and 200 <= tried.status < 300:
        return Verdict(DeliveryState.DELIVERED, pause_ms=pause_ms)
    if tried.status == 410:
        return Verdict(DeliveryState.GONE, pause_ms=pause_ms)
    if tried.error in _FINAL:
        return Verdict(DeliveryState.FAILED, pause_ms=pause_ms)
    if kind is DeliveryKind.WAKE and tries_before + 1 >= WAKE_TRIES_MAX:
        return Verdict(DeliveryState.GIVEN_UP, pause_ms=pause_ms)
    wait_s = _step(WAITS_S, tries_before)
    if tried.retry_after_s is not None:
        wait_s = max(wait_s, tried.retry_after_s)
    return Verdict(DeliveryState.PENDING, _spread_ms(wait_s, jitter), pause_ms)


def _pause_ms(tried: Tried, failures_before: int, jitter: Jitter) -> int | None:
    if tried.error in _OURS:
        return None
    answered = tried.status is not None and tried.status < 500 and tried.status != 429
    return 0 if answered else _spread_ms(_step(PAUSES_S, failures_before), jitter)


def _step(ladder: tuple[float, ...], done: int) -> float:
    return ladder[min(done, len(ladder) - 1)]


def _spread_ms(wait_s: float, jitter: Jitter) -> int:
    """Jitter is added: what the receiver asked for is never undercut."""
    return math.ceil((wait_s + jitter(wait_s * SPREAD)) * 1000)
