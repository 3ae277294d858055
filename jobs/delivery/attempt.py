"""What is one try at a delivery? Its body, its signature, the post, the verdict, the settle (C16).

The body is a function of the stored outcome and of the time of the first try, which the store
gave, so a process that is killed before it settled is followed by one that makes the same bytes;
what was settled once is posted as it was kept.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Final

from jobs.delivery.outcome_body import outcome_body, step_body, wake_body
from jobs.delivery.poster import Poster
from jobs.delivery.signatures import signed_headers, unsigned_headers
from jobs.domain.client_keys import key_of
from jobs.domain.delivery import (
    DeliveryKind,
    DeliveryState,
    Jitter,
    Tried,
    TryError,
    judge,
    team_of,
)
from jobs.domain.errors import StoreUnavailableError
from jobs.domain.states import Answer
from jobs.store.deliveries import LEASE_MS, Deliveries, SettledDelivery, Taken
from jobs.store.turns import Turns

logger = logging.getLogger(__name__)

SETTLE_AGAIN_S: Final = 1.0


def _jitter(spread: float) -> float:
    return random.uniform(0.0, spread)


class DeliveryAttempt:
    """Tries deliveries, one at a time for each thread that calls it. `client_keys` are those of
    the settings: a client whose key is no longer set gets nothing until it is set again."""

    def __init__(
        self,
        deliveries: Deliveries,
        turns: Turns,
        poster: Poster,
        client_keys: Iterable[str],
        *,
        jitter: Jitter = _jitter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deliveries = deliveries
        self._turns = turns
        self._poster = poster
        self._client_keys = tuple(client_keys)
        self._jitter = jitter
        self._clock = clock

    def run(self, taken: Taken) -> int | None:
        """Try once; answers the ms until the store is to be looked at again, None where nothing
        waits there, or where the store is away: then the lease runs out and another one tries."""
        began_s = time.monotonic()
        body: bytes | None = None
        try:
            body = taken.body or self._body_of(taken)
            tried = self._post(taken, body) if body else Tried(error=TryError.NO_RECORD)
        except StoreUnavailableError as error:
            logger.warning("delivery %s: %s", taken.id, error)
            return None
        except Exception:
            logger.exception("delivery %s: unexpected failure", taken.id)
            tried = Tried(error=TryError.INTERNAL)
        verdict = judge(tried, taken.kind, taken.step, taken.failures, self._jitter)
        self._tell(taken, tried, verdict.state)
        took_ms = round((time.monotonic() - began_s) * 1000)
        done = self._settled(
            lambda: self._deliveries.settle(taken, verdict, tried.entry, took_ms, body),
            began_s + LEASE_MS / 1000,
        )
        if done is not None and done.answer is Answer.LEASE_LOST:
            logger.warning("delivery %s: another one took it meanwhile", taken.id)
        return done.due_in_ms if done is not None else None

    def _body_of(self, taken: Taken) -> bytes | None:
        if taken.step_state is not None:
            return step_body(taken.ref, team_of(taken.owner), taken.step_state)
        if taken.kind is DeliveryKind.WAKE:
            return wake_body(taken.ref, team_of(taken.owner), taken.wake_token or "")
        view = self._turns.view(taken.ref, taken.owner, taken.user)
        return outcome_body(taken.kind, view, taken.first_at_ms) if view else None

    def _post(self, taken: Taken, body: bytes) -> Tried:
        sent_at_s = int(self._clock())
        if taken.kind is DeliveryKind.WAKE:
            return self._poster.post(
                taken.url, unsigned_headers(taken.id, sent_at_s), body, owner=taken.owner
            )
        key = key_of(taken.owner, self._client_keys)
        if key is None:
            return Tried(error=TryError.NO_KEY)
        headers = signed_headers(key, taken.id, sent_at_s, body)
        return self._poster.post(taken.url, headers, body, owner=taken.owner)

    def _settled(
        self, settle: Callable[[], SettledDelivery], until_s: float
    ) -> SettledDelivery | None:
        """Settle, also where the store is away for a while: what was taken must not be sent again
        for that. Answers None where the lease ended first."""
        while True:
            try:
                return settle()
            except StoreUnavailableError as error:
                logger.warning("a delivery could not be settled yet: %s", error)
                if time.monotonic() + SETTLE_AGAIN_S > until_s:
                    return None
                time.sleep(SETTLE_AGAIN_S)

    def _tell(self, taken: Taken, tried: Tried, state: DeliveryState) -> None:
        """One line a try, without the URL: its path may be a secret."""
        logger.log(
            logging.INFO if state is DeliveryState.DELIVERED else logging.WARNING,
            "delivery %s of %s: %s, %s",
            taken.id,
            taken.ref,
            tried.entry,
            state.value,
        )
