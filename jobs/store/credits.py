"""What may an organisation spend, and what did its teams? In micro-dollars (B17)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts


@dataclass(frozen=True, slots=True)
class CreditBalance:
    """Credits of an org, or a team's share of them. `reserved` is held for generations that
    have not ended, `unsettled` for calls of which nobody knows what they used; both count as
    spent. Without a cap an org has no credits; a team has none of its own."""

    cap_usd_micros: int | None
    spent_usd_micros: int
    reserved_usd_micros: int
    unsettled_usd_micros: int

    @property
    def left_usd_micros(self) -> int:
        """What may still be spent; never negative."""
        used = self.spent_usd_micros + self.reserved_usd_micros + self.unsettled_usd_micros
        return max(0, (self.cap_usd_micros or 0) - used)


@dataclass(frozen=True, slots=True)
class CreditRow:
    """One row of a team's ledger: an event and when it was booked."""

    at_ms: int
    event: Mapping[str, Any]


class Credits:
    """The scripts of a generation's life move credits; operators set the cap. All raise
    StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def set_cap(self, org_id: str, cap_usd_micros: int | None) -> None:
        """Let an org spend so much in all, what it spent so far included; None takes the cap
        away, and with it all credits."""
        with store_errors():
            if cap_usd_micros is None:
                self._redis.hdel(keys.CREDITS(org_id), "cap")
            else:
                self._redis.hset(keys.CREDITS(org_id), "cap", str(cap_usd_micros))

    def add(self, org_id: str, usd_micros: int) -> None:
        """Raise the cap."""
        while True:
            cap = self.of_org(org_id).cap_usd_micros
            raised = (cap or 0) + usd_micros
            if self._scripts.run("raise_cap", org_id=org_id, before=cap, after=raised):
                return

    def write_off(self, org_id: str, team_ids: Sequence[str] = ()) -> int:
        """Count what is unsettled of an org and of these teams of it as not spent; each team's
        ledger gets a row. Answers how much that was."""
        return int(self._scripts.run("write_off", org_id=org_id, team_ids=list(team_ids)))

    def of_org(self, org_id: str) -> CreditBalance:
        """The balance of an org."""
        return self._read(keys.CREDITS(org_id))

    def of_team(self, team_id: str) -> CreditBalance:
        """What a team used of its org's credits."""
        return self._read(keys.TEAM_CREDITS(team_id))

    def ledger(self, team_id: str, limit: int = 100) -> list[CreditRow]:
        """The newest rows of a team, newest first; 10,000 are kept."""
        with store_errors():
            rows = self._redis.lrange(keys.CREDITS_LEDGER(team_id), 0, max(0, limit - 1))
        found = []
        for row in cast("list[str]", rows):
            at_ms, _, event = row.partition("|")
            found.append(CreditRow(int(at_ms), json.loads(event)))
        return found

    def _read(self, key: str) -> CreditBalance:
        with store_errors():
            fields = cast("dict[str, str]", self._redis.hgetall(key))
        cap = fields.get("cap")
        return CreditBalance(
            cap_usd_micros=None if cap is None else int(cap),
            spent_usd_micros=int(fields.get("spent", 0)),
            reserved_usd_micros=int(fields.get("reserved", 0)),
            unsettled_usd_micros=int(fields.get("unsettled", 0)),
        )
