"""What happens from now on, in every organisation or in one? Read from the event streams. (A21)"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from jobs.domain.errors import StoreUnavailableError
from jobs.runtime import Runtime
from jobs.store.events import Event

BLOCK_MS: Final = 500
ORGS_EVERY_S: Final = 1.0
OUTAGE_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Events in order, oldest first, none after a quiet half second; `trouble` where Redis is
    away, or lost what was to be read."""

    events: tuple[Event, ...] = ()
    trouble: str = ""


class Follower:
    """Follows the events of `org_id`, None for those of all organisations, also of new ones."""

    def __init__(self, runtime: Runtime, org_id: str | None) -> None:
        self._runtime = runtime
        self._org_id = org_id
        self._began_at = runtime.events.last_seq()
        self._positions: dict[str, int] = {}
        self._orgs_at_s = float("-inf")

    def __iter__(self) -> Iterator[Heard]:
        """Goes on until the caller stops; an outage of Redis is told and waited out."""
        is_away = False
        while True:
            try:
                if is_away:
                    lost = self._lost()
                    is_away = False
                    if lost:
                        yield Heard(trouble="Redis lost events: there is a gap here")
                yield Heard(self._read())
            except StoreUnavailableError as error:
                is_away = True
                yield Heard(trouble=f"{error.reason}; trying again")
                time.sleep(OUTAGE_PAUSE_S)

    def _read(self) -> tuple[Event, ...]:
        self._look_for_orgs()
        if not self._positions:
            time.sleep(BLOCK_MS / 1000)
            return ()
        found = self._runtime.events.read(self._positions, block_ms=BLOCK_MS)
        for org, events in found.items():
            if events:
                self._positions[org] = events[-1].seq
        return tuple(sorted((e for es in found.values() for e in es), key=lambda e: e.seq))

    def _look_for_orgs(self) -> None:
        if self._org_id is not None:
            self._positions.setdefault(self._org_id, self._began_at)
            return
        if time.monotonic() - self._orgs_at_s < ORGS_EVERY_S:
            return
        for org in self._runtime.stats.by_org():
            self._positions.setdefault(org, self._began_at)
        self._orgs_at_s = time.monotonic()

    def _lost(self) -> bool:
        """Whether Redis came back with fewer events than we have read; then read on from now."""
        now = self._runtime.events.last_seq()
        if all(seq <= now for seq in self._positions.values()) and self._began_at <= now:
            return False
        self._began_at = now
        self._positions = dict.fromkeys(self._positions, now)
        return True
