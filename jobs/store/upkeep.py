"""What does an operator's hand or the clock do to many jobs at once? Bounded, repeatable."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.store.answers import Repaired
from jobs.store.scripts import Scripts


class Upkeep:
    """Repair, archive and quotas. `ticket_cap` bounds the tickets that wait at a time."""

    def __init__(self, scripts: Scripts, *, ticket_cap: int) -> None:
        self._scripts = scripts
        self._ticket_cap = ticket_cap

    def repair(self, *, window_ms: int, limit: int = 500) -> Repaired:
        """Look over up to `limit` stored jobs, going on where the last call stopped: a live job
        that is in no set is put back, an id that names no job is removed (A8)."""
        reply = self._scripts.run(
            "repair", limit=limit, window_ms=window_ms, ticket_cap=self._ticket_cap
        )
        return Repaired(
            looked_at=int(reply[0]),
            mended=int(reply[1]),
            dangling=int(reply[2]),
            ticket_wanted=bool(reply[3]),
            is_round_done=bool(reply[4]),
        )

    def archive(self, job_ids: Sequence[str]) -> list[str]:
        """Remove ended jobs; call it only with what was written elsewhere (A24). Answers the
        ids that are gone now; live jobs and unknown ids are left out. At most 500 a call."""
        return list(self._scripts.run("archive", ids=job_ids[:500]))

    def set_quota(self, org_id: str, most: int | None) -> bool:
        """Let at most `most` jobs of an org run at once, None lifts the limit (A31). Answers
        whether a ticket is wanted for lanes that this opened."""
        reply = self._scripts.run("quota", org_id=org_id, most=most, ticket_cap=self._ticket_cap)
        return bool(reply[1])
