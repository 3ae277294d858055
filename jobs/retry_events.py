"""What do log and metrics say of a chain? One line an event, as the organisation's stream (C18)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from jobs import metrics
from jobs.domain.escalation import ChainState
from jobs.domain.job import Job, Kind
from jobs.domain.outcome import Failed, Outcome
from jobs.domain.request_ids import request_id_of
from jobs.domain.turn_left import EndedChain

logger = logging.getLogger(__name__)


def tell_attempt(job: Job, number: int) -> None:
    """A background attempt begins."""
    _tell(logging.INFO, "attempt", job.root_id, attempt=number)


def tell_failed(job: Job, outcome: Outcome) -> None:
    """What the recorded failure of an attempt means for its chain, if anything, but its end."""
    if not isinstance(outcome, Failed) or outcome.turn is None:
        return
    entry = outcome.turn.entry
    if outcome.turn.policy is not None:
        metrics.ESCALATED.inc()
        _tell(logging.INFO, "escalated", job.root_id, attempt=1)
    elif entry is not None and entry.plan is None and job.kind is Kind.ESCALATION:
        tell_attempt(job, entry.number)  # it failed before it had a plan


def tell_ended(chains: Iterable[EndedChain]) -> None:
    """Chains that a script has just ended: each a warning, unless it has its answer."""
    for chain in chains:
        metrics.CHAINS_ENDED.labels(chain.state).inc()
        level = logging.INFO if chain.state is ChainState.ACHIEVED else logging.WARNING
        detail = {"detail": chain.detail} if chain.detail else {}
        _tell(level, "terminal", chain.request_job_id, state=chain.state.value, **detail)


def _tell(level: int, event: str, request_job_id: str, **fields: Any) -> None:
    name = f"response.retry.{event}"
    request_id = request_id_of(request_job_id)
    shown = {"event": name, "request_id": request_id, **fields}
    logger.log(level, "%s: request %s", name, request_id, extra={"fields": shown})
