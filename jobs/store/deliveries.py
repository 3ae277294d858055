"""Which outcomes are still to be posted, which were, and who may see that? (C16, C17)

The scripts that end a chain or a generation add deliveries (prelude/deliveries.lua); whoever
posts takes some under a lease and settles each with its token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.delivery import DeliveryKind, DeliveryState, Verdict
from jobs.domain.states import Answer
from jobs.store import keys
from jobs.store.codec import whole
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

LEASE_MS: Final = 30_000
"""Twice as long as a post may take, so that there is as long again to settle it; then another one
may take the delivery."""

PAGE: Final = 100
LOOKED_AT_MAX: Final = 1_000
"""So many deliveries one list looks at, the newest."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that this process posts now, and the token that settles it. `body` is what was
    posted before, None before the first settled try; `step` counts the tries since it was added
    or replayed, `failures` those of its hook in a row. `wake_token` and `step_state` are what a
    wake tells of a generation, or of a step."""

    id: str
    token: str
    kind: DeliveryKind
    owner: str
    user: str
    ref: str
    url: str
    first_at_ms: int
    step: int
    failures: int
    body: bytes | None = None
    wake_token: str | None = None
    step_state: str | None = None


@dataclass(frozen=True, slots=True)
class TakenSome:
    """What a look found. `due_in_ms` is the time until the next look, None where nothing waits."""

    deliveries: tuple[Taken, ...]
    due_in_ms: int | None


@dataclass(frozen=True, slots=True)
class SettledDelivery:
    """The answer to a settle; `due_in_ms` as in TakenSome."""

    answer: Answer
    due_in_ms: int | None


@dataclass(frozen=True, slots=True)
class DeliveryTry:
    """One line of the log: when a try ended, with which status or error, after how long. The time
    is None where whoever tried did not come back (`unsettled`)."""

    at_ms: int
    entry: str
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery as its owner and operators see it; `log` is newest first, 20 lines at most."""

    id: str
    kind: DeliveryKind
    state: DeliveryState
    owner: str
    user: str
    ref: str
    url: str
    tries: int
    created_at_ms: int
    due_at_ms: int | None
    gives_up_at_ms: int
    ended_at_ms: int | None
    log: tuple[DeliveryTry, ...]


class Deliveries:
    """All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def take(self, token: str, count: int, lease_ms: int = LEASE_MS) -> TakenSome:
        """Lease up to `count` deliveries that are due, in one round trip. Repeated with its token
        it answers the same."""
        due_at, now, *found = self._scripts.run(
            "take_deliveries", token=token, count=count, lease_ms=lease_ms
        )
        taken = [_taken(*each) for each in found]
        return TakenSome(tuple(taken), _due_in_ms(due_at, now))

    def settle(
        self, taken: Taken, verdict: Verdict, entry: str, took_ms: int, body: bytes | None
    ) -> SettledDelivery:
        """Say how a try ended; `body` is what was posted, kept for the tries after it. LEASE_LOST
        where another one has it by now."""
        word, due_at, now = self._scripts.run(
            "settle_delivery",
            id=taken.id,
            token=taken.token,
            outcome=verdict.state.value,
            after_ms=verdict.after_ms,
            pause_ms=verdict.pause_ms,
            counts=int(verdict.counts),
            entry=entry,
            took_ms=took_ms,
            body=None if taken.body is not None else body,
        )
        return SettledDelivery(Answer(word), _due_in_ms(due_at, now))

    def replay(self, delivery_id: str, owner: str, user: str) -> Answer:
        """Send it again at once with the same id and body, for a fresh day of tries, whatever
        became of it. One that is in flight is sent again only where that fails. MISSING where it is
        not there or not theirs; FINAL for a wake that ended."""
        return Answer(self._scripts.run("replay_delivery", id=delivery_id, owner=owner, user=user))

    def get(self, delivery_id: str, owner: str, user: str) -> DeliveryView | None:
        """One delivery; None where it is not there or not theirs."""
        view = self._views([delivery_id])[0]
        return view if view and (view.owner, view.user) == (owner, user) else None

    def find(self, delivery_id: str) -> DeliveryView | None:
        """One delivery, whoever's, for operators."""
        return self._views([delivery_id])[0]

    def list(
        self,
        owner: str,
        user: str,
        *,
        ref: str | None = None,
        state: DeliveryState | None = None,
        limit: int = PAGE,
    ) -> Sequence[DeliveryView]:
        """Those of a user of an owner, newest first, of one request or generation and in one state
        where that is asked for. Looks at the newest 1,000."""

        def is_wanted(view: DeliveryView) -> bool:
            return ref in {None, view.ref} and state in {None, view.state}

        return self._newest(keys.DELIVERIES(f"{owner}|{user}"), is_wanted, limit)

    def recent(
        self, limit: int = PAGE, state: DeliveryState | None = None
    ) -> Sequence[DeliveryView]:
        """Those of everybody, for operators, newest first. Looks at the newest 1,000."""
        return self._newest(keys.ALL_DELIVERIES(), lambda view: state in {None, view.state}, limit)

    def _newest(
        self, key: str, is_wanted: Callable[[DeliveryView], bool], limit: int
    ) -> Sequence[DeliveryView]:
        found: tuple[DeliveryView, ...] = ()
        for first in range(0, LOOKED_AT_MAX, PAGE):
            with store_errors():
                ids = self._redis.zrange(key, first, first + PAGE - 1, desc=True)
            views = self._views(cast("list[str]", ids))
            found += tuple(view for view in views if view is not None and is_wanted(view))
            if len(found) >= limit or len(views) < PAGE:
                break
        return found[:limit]

    def _views(self, ids: Sequence[str]) -> Sequence[DeliveryView | None]:
        if not ids:
            return []
        with store_errors(), self._redis.pipeline(transaction=False) as pipe:
            for delivery_id in ids:
                pipe.hgetall(keys.DELIVERY(delivery_id))
                pipe.lrange(keys.DELIVERY_LOG(delivery_id), 0, -1)
            rows = pipe.execute()
        return [
            _view(delivery_id, fields, log) if fields else None
            for delivery_id, fields, log in zip(ids, rows[::2], rows[1::2], strict=True)
        ]


def _due_in_ms(due_at: str, now: str) -> int | None:
    return max(0, int(due_at) - int(now)) if due_at else None


def _taken(delivery_id: str, token: str, failures: str, body: str, record: list[str]) -> Taken:
    fields: Mapping[str, Any] = dict(zip(record[::2], record[1::2], strict=True))
    return Taken(
        id=delivery_id,
        token=token,
        kind=DeliveryKind(fields["kind"]),
        owner=fields["owner"],
        user=fields["user"],
        ref=fields["ref"],
        url=fields["url"],
        first_at_ms=int(fields["first_at"]),
        step=int(fields.get("step", 0)),
        failures=int(failures),
        body=body.encode() if body else None,
        wake_token=fields.get("wake_token"),
        step_state=fields.get("step_state"),
    )


def _view(delivery_id: str, fields: Mapping[str, str], log: Sequence[str]) -> DeliveryView:
    return DeliveryView(
        id=delivery_id,
        kind=DeliveryKind(fields["kind"]),
        state=DeliveryState(fields["state"]),
        owner=fields["owner"],
        user=fields["user"],
        ref=fields["ref"],
        url=fields["url"],
        tries=int(fields.get("tries", 0)),
        created_at_ms=int(fields["created_at"]),
        due_at_ms=whole(fields, "due_at"),
        gives_up_at_ms=int(fields["gives_up_at"]),
        ended_at_ms=whole(fields, "ended_at"),
        log=tuple(_try(line) for line in log),
    )


def _try(line: str) -> DeliveryTry:
    at_ms, entry, took_ms = line.split("|", 2)
    return DeliveryTry(int(at_ms), entry, int(took_ms) if took_ms else None)
