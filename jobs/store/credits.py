"""What may an organisation spend, and what did its teams? In micro-dollars (B17)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors

# Sent twice, it raises once: the second time the cap is no longer what it was.
_RAISE: Final = """
local cap = redis.call('HGET', KEYS[1], 'cap') or ''
if cap ~= ARGV[1] then return cap == ARGV[2] and 1 or 0 end
redis.call('HSET', KEYS[1], 'cap', ARGV[2])
return 1
"""
# A late booking sees by `written_off` that its unsettled amount is gone already.
_WRITE_OFF: Final = """
local held = redis.call('HGET', KEYS[1], 'unsettled') or '0'
redis.call('HSET', KEYS[1], 'unsettled', '0')
redis.call('HINCRBY', KEYS[1], 'written_off', 1)
local t = redis.call('TIME')
local at = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
for n = 2, #KEYS, 2 do
  local own = redis.call('HGET', KEYS[n], 'unsettled') or '0'
  if own ~= '0' then
    redis.call('HSET', KEYS[n], 'unsettled', '0')
    local told = '{"team_id":"' .. ARGV[n / 2] .. '","usd_micros":' .. own .. '}}'
    redis.call('LPUSH', KEYS[n + 1],
      at .. '|{"event":"credits_written_off","properties":' .. told)
  end
end
return tonumber(held)
"""


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

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

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
        key = keys.CREDITS(org_id)
        with store_errors():
            while True:
                cap = cast("str | None", self._redis.hget(key, "cap")) or ""
                raised = str(int(cap or 0) + usd_micros)
                if self._redis.eval(_RAISE, 1, key, cap, raised):
                    return

    def write_off(self, org_id: str, team_ids: Sequence[str] = ()) -> int:
        """Count what is unsettled of an org and of these teams of it as not spent; each team's
        ledger gets a row. Answers how much that was."""
        places = [keys.CREDITS(org_id)]
        for team_id in team_ids:
            places += [keys.TEAM_CREDITS(team_id), keys.CREDITS_LEDGER(team_id)]
        with store_errors():
            return int(self._redis.eval(_WRITE_OFF, len(places), *places, *team_ids))

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
