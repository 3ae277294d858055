"""Which pool works in this process? Tickets are run by name, so they have to find it."""

from __future__ import annotations

import os

from jobs.worker.pool import WorkPool

_pools: dict[int, WorkPool] = {}


def set_current_pool(pool: WorkPool) -> None:
    """Make `pool` the one of this process; a fork does not inherit it."""
    _pools.clear()
    _pools[os.getpid()] = pool


def current_pool() -> WorkPool | None:
    """The pool of this process, or None where it has none."""
    return _pools.get(os.getpid())
