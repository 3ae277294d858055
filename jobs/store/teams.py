"""Which teams are there, and whose are they? (B2)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from redis import Redis

from jobs.domain.errors import TeamExistsError, TeamMissingError
from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.credentials import NAME_PATTERN


@dataclass(frozen=True, slots=True)
class Team:
    """A team of one organisation. Its id is unique over all of them: an address names no org."""

    team_id: str
    org_id: str
    created_at_ms: int


class Teams:
    """The teams. All methods raise StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def create(self, team_id: str, org_id: str) -> Team:
        """Make a team; of two at once one is made.

        Raises TeamExistsError, and ValueError unless both ids are 1 to 32 of letters, digits,
        `_`, `.`, `-`.
        """
        for name, value in (("team", team_id), ("org", org_id)):
            if not NAME_PATTERN.fullmatch(value):
                raise ValueError(f"{name} must be 1 to 32 letters, digits, '_', '.' or '-'")
        with store_errors():
            seconds, micros = self._redis.time()
            created_at_ms = seconds * 1000 + micros // 1000
            pipe = self._redis.pipeline(transaction=True)
            pipe.hsetnx(keys.TEAM(team_id), "org_id", org_id)
            pipe.hsetnx(keys.TEAM(team_id), "created_at", str(created_at_ms))
            pipe.sadd(keys.TEAMS(), team_id)
            pipe.hget(keys.TEAM(team_id), "org_id")
            is_new, _, _, owner = pipe.execute()
        if not is_new:
            raise TeamExistsError(team_id, owner)
        return Team(team_id, org_id, created_at_ms)

    def get(self, team_id: str) -> Team:
        """One team. Raises TeamMissingError."""
        with store_errors():
            row = cast("dict[str, str]", self._redis.hgetall(keys.TEAM(team_id)))
        if not row:
            raise TeamMissingError(team_id)
        return _team(team_id, row)

    def list(self, org_id: str | None = None) -> list[Team]:
        """Every team by its id; only those of `org_id` where it is given."""
        with store_errors():
            ids = sorted(cast("set[str]", self._redis.smembers(keys.TEAMS())))
            pipe = self._redis.pipeline(transaction=False)
            for team_id in ids:
                pipe.hgetall(keys.TEAM(team_id))
            rows = pipe.execute()
        teams = [_team(team_id, row) for team_id, row in zip(ids, rows, strict=True) if row]
        return [team for team in teams if org_id in {None, team.org_id}]


def _team(team_id: str, row: dict[str, str]) -> Team:
    return Team(team_id, row["org_id"], int(row["created_at"]))
