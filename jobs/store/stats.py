"""How many jobs are there, how did they end, and how long did they take? (A23)

Kept by the scripts as they move jobs, so a look costs two round trips however many jobs there
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from redis import Redis

from jobs.domain.states import TERMINAL, State
from jobs.store import keys
from jobs.store.connection import store_errors

_KIND = "kind:"


@dataclass(frozen=True, slots=True)
class OrgStats:
    """The stored jobs of one org by state, all its failures by kind, and the whole time from
    submit to success in ms over `succeeded_ever` jobs."""

    states: Mapping[State, int]
    failures: Mapping[str, int]
    latency_ms_sum: int
    succeeded_ever: int

    @property
    def latency_ms_mean(self) -> float | None:
        """Mean time from submit to success in ms; None where nothing succeeded yet."""
        return self.latency_ms_sum / self.succeeded_ever if self.succeeded_ever else None


class Stats:
    """Reads the counts."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def by_org(self) -> dict[str, OrgStats]:
        """The counts of every org, by name."""
        with store_errors():
            orgs = cast("list[str]", self._redis.zrange(keys.ORGS(), 0, -1))
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(keys.RUNNING_BY_ORG())
            for org in orgs:
                pipe.hgetall(keys.STATS(org))
            running, *rows = pipe.execute()
        return {
            org: _org_stats(row, int(running.get(org, 0)))
            for org, row in zip(orgs, rows, strict=True)
        }


def _org_stats(row: Mapping[str, str], running: int) -> OrgStats:
    states = {state: int(row.get(state, 0)) for state in State if state in TERMINAL}
    submitted = int(row.get("submitted", 0))
    states[State.RUNNING] = running
    states[State.QUEUED] = max(0, submitted - sum(states.values()))
    return OrgStats(
        states=states,
        failures={n.removeprefix(_KIND): int(v) for n, v in row.items() if n.startswith(_KIND)},
        latency_ms_sum=int(row.get("latency_ms", 0)),
        succeeded_ever=int(row.get("latency_n", 0)),
    )
