"""How many name lookups may deliveries do at once, and which part of them may hang for one name or
one owner? (C17)

Names come from clients, and a resolver may hang for longer than a post may take: then a lookup
holds its thread, and its slot, beyond the try that asked for it. So neither a name nor all names of
an owner get all slots. Where those of a name are taken, its own lookups hang: that is its fault.
Where those of its owner or of all are taken, others hang: that says nothing about this one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from jobs.providers.network import LookupSlots, NameLateError, NoLookupError

ALL_MAX: Final = 96
"""Three times the threads that post: each may have left two behind."""

OWNER_MAX: Final = 32
HOST_MAX: Final = 4
LINE_S: Final = 2.0
"""A lookup that is well takes far less, so that who waits longer stands behind some that hang."""


class LookupShares:
    """Counts the lookups that run, of each owner and each name. Threads share it."""

    def __init__(
        self, all_max: int = ALL_MAX, owner_max: int = OWNER_MAX, host_max: int = HOST_MAX
    ) -> None:
        self._all_max = all_max
        self._owner_max = owner_max
        self._host_max = host_max
        self._changed = threading.Condition()
        self._of_owners: Counter[str] = Counter()
        self._of_hosts: Counter[str] = Counter()

    def of(self, owner: str) -> LookupSlots:
        """The slots as `owner` finds them. A take of them raises NoLookupError or NameLateError
        where it stands in line for too long."""
        return _OwnerSlots(self, owner)

    def take(self, owner: str, host: str, slice_s: Callable[[], float]) -> Callable[[], None]:
        """As LookupSlots.take, for an owner."""
        until_s = time.monotonic() + LINE_S
        with self._changed:
            while (refusal := self._refusal(owner, host)) is not None:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise refusal
                self._changed.wait(min(left_s, slice_s()))
            self._of_owners[owner] += 1
            self._of_hosts[host] += 1
        return lambda: self._give_back(owner, host)

    def _refusal(self, owner: str, host: str) -> Exception | None:
        if self._of_hosts[host] >= self._host_max:
            return NameLateError("earlier lookups of that name have not ended")
        if self._of_owners[owner] >= self._owner_max or self._of_owners.total() >= self._all_max:
            return NoLookupError("as many lookups as there may be have not ended")
        return None

    def _give_back(self, owner: str, host: str) -> None:
        with self._changed:
            for counts, name in ((self._of_owners, owner), (self._of_hosts, host)):
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]
            self._changed.notify_all()


class _OwnerSlots:
    def __init__(self, shares: LookupShares, owner: str) -> None:
        self._shares = shares
        self._owner = owner

    def take(self, host: str, slice_s: Callable[[], float]) -> Callable[[], None]:
        return self._shares.take(self._owner, host, slice_s)
