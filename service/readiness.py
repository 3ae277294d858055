"""Can this process take work now? Redis answers, takes writes, and keeps what it is given."""

from __future__ import annotations

from typing import Final

from redis import Redis

from jobs.domain.errors import StoreUnavailableError
from jobs.store.health import probe
from service.errors import NotReadyError

PROBE_TIMEOUT_S: Final = 1.0
"""A probe is asked every few seconds: it says no rather than wait."""

SWEEPS_LATE: Final = 4
"""A reclaim sweep that is so many intervals late is told. Workers stand in after three, so by
then nobody sweeps."""


def check_ready(redis: Redis, *, sweep_interval_s: int) -> str:
    """`ok` where work can be taken, `degraded` where it can but nobody takes back what crashed
    workers left. Raises NotReadyError where it can't be taken (X13)."""
    try:
        sweep_age_ms = probe(redis)
    except StoreUnavailableError as error:
        raise NotReadyError(error.reason) from error
    is_late = sweep_age_ms is not None and sweep_age_ms > SWEEPS_LATE * 1000 * sweep_interval_s
    return "degraded" if is_late else "ok"
