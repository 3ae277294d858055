"""How long does a request wait for its job? `Prefer: wait` and the mode decide (A27, RFC 7240).

The request follows the event stream, with a poll each second behind it. It holds a thread, so
it takes a place among the streams; where none is left, the receipt is answered at once, as a
server may that can't honour a preference. Nothing is cancelled when the client goes (A32).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from jobs.domain.errors import StoreUnavailableError
from jobs.domain.states import TERMINAL
from jobs.store.listing import Listing
from jobs.store.modes import Mode
from service.errors import StreamsExhaustedError
from service.fanout import Fanout, Subscription

WAIT_MAX_S: Final = 60
POLL_EVERY_S: Final = 1.0
_PREFERENCE: Final = re.compile(
    r"""\s*(?P<name>[\w-]+)\s*(?:=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s;,"]*))\s*)?(?:;[^,]*)?$"""
)


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a `Prefer` header asks for; `wait_s` is whole seconds, at most WAIT_MAX_S, None
    where it names none."""

    wait_s: int | None = None
    respond_async: bool = False

    def held_s(self, mode: Mode) -> int:
        """How long to hold a submit under `mode`; 0 answers at once."""
        if self.wait_s is not None:
            return self.wait_s
        return 0 if mode is Mode.ASYNC or self.respond_async else WAIT_MAX_S


def read_preferences(header: str) -> Preferences:
    """The preferences of a header; the first of a name counts, and what can't be read is
    ignored, as RFC 7240 asks."""
    wait_s: int | None = None
    respond_async = False
    for part in header.split(","):
        match = _PREFERENCE.match(part)
        if match is None:
            continue
        name = match["name"].lower()
        value = match["quoted"] if match["quoted"] is not None else match["plain"] or ""
        if name == "wait" and wait_s is None and value.isascii() and value.isdecimal():
            wait_s = min(WAIT_MAX_S, int(value[:9]))
        elif name == "respond-async":
            respond_async = True
    return Preferences(wait_s, respond_async)


def wait_for_end(
    fanout: Fanout,
    listing: Listing,
    *,
    org_id: str,
    job_id: str,
    within_s: float,
    is_gone: Callable[[], bool],
    client_id: str | None = None,
) -> bool | None:
    """Wait until the job has ended; False where it has not within the time, or where its
    client or this process goes first, and None where there was no place to wait in. `client_id`
    is that of a client of the formation.

    Never raises StoreUnavailableError: the job is stored, and its receipt can be told.
    """
    until_s = time.monotonic() + within_s
    try:
        place = fanout.subscribe(
            org_id, wanted=lambda event: event.job_id == job_id, client_id=client_id
        )
    except (StreamsExhaustedError, StoreUnavailableError):
        return None
    with place:
        while not _has_ended(listing, job_id, org_id):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or place.is_over or is_gone():
                return False
            _hear(place, min(POLL_EVERY_S, left_s))
    return True


def _hear(place: Subscription, within_s: float) -> None:
    """Until the job ended or a gap hides whether it did; polls look after it anyway."""
    until_s = time.monotonic() + within_s
    while (left_s := until_s - time.monotonic()) > 0 and not place.is_over:
        if any(item.event is None or item.event.ends_job for item in place.take(left_s)):
            return


def _has_ended(listing: Listing, job_id: str, org_id: str) -> bool:
    try:
        return listing.state(job_id, org_id) in TERMINAL
    except StoreUnavailableError:
        return False
