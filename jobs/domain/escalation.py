"""Does a failed turn go on in the background, and how does its chain end? (C2-C7, C11, C12)

Pure: every instant, bound and record comes as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from jobs.domain.errors import ErrorKind, Fault
from jobs.domain.failure_signature import signature
from jobs.domain.plan_likeness import compared, is_different
from jobs.domain.retry import Jitter, backoff_s
from jobs.domain.turn_plan import Plan, plan_json, plan_of

OUTAGES: Final = frozenset({ErrorKind.PROVIDER_5XX, ErrorKind.TIMEOUT, ErrorKind.RATE_LIMIT})
OUTAGE_FAULTS: Final = frozenset({Fault.OVERLOADED, Fault.NO_ANSWER})

REASON_MAX_CHARS: Final = 1_000
"""Of the reason of a failed attempt; so much of it is kept."""


class ChainState(StrEnum):
    """How a chain ended (C11)."""

    ACHIEVED = "achieved"
    IMPOSSIBLE = "impossible"
    STUCK = "stuck"
    BUDGET_EXHAUSTED = "budget_exhausted"
    ABANDONED = "abandoned"


class Delivery(StrEnum):
    """How an outcome reaches the caller (C10)."""

    CHANNEL = "notification_channel"
    WEBHOOK = "webhook"
    POLLING = "polling"


class Refusal(StrEnum):
    """Why a turn does not go on in the background (C3)."""

    NON_REPLANNABLE = "non_replannable"
    AWAITING = "awaiting"
    CANCELLED = "cancelled"
    NESTED = "nested"
    SHUTTING_DOWN = "shutting_down"
    DISABLED = "disabled"
    NO_REQUEST_ID = "no_request_id"


@dataclass(frozen=True, slots=True)
class Standing:
    """How things are with a turn at its end, apart from its failure: it waits for a human, was
    cancelled, is itself a background attempt (C19); whether work is being ended everywhere,
    `retry_async` is on, and there is a request to find the outcome by."""

    is_awaiting: bool = False
    is_cancelled: bool = False
    is_background: bool = False
    is_shutting_down: bool = False
    is_enabled: bool = True
    has_request_id: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of a workflow: kind and fault as of an AttemptError, `reason` for people,
    without prompt text or answers. `retry_after_s` is what a provider asked for."""

    kind: ErrorKind
    reason: str
    fault: Fault = Fault.NONE
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChainPolicy:
    """The bounds of a chain, as they were when it began; seconds."""

    max_attempts: int
    idle_timeout_s: float
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """A failed attempt as it is recorded; number 1 is the synchronous turn. `plan` is None where
    it failed before there was one."""

    number: int
    plan: Plan | None
    failure: Failure


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The chain goes on, `after_ms` from now."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The chain is over; `detail` is for people."""

    state: ChainState
    detail: str


def gate(failure: Failure | None, patterns: Sequence[str], standing: Standing) -> Refusal | None:
    """Why the turn does not escalate, or None: it does (C3). `failure` is None where it didn't
    fail; ValueError where it didn't and neither waits nor was cancelled.

    The first of these that holds: it was cancelled; it waits for a human; it is a background
    attempt; the failure names a blocker; the formation shuts down; escalation is off; there is
    no request id. What the caller gets depends on the first two, so they come before the rest;
    what is true of the turn comes before what is true of the formation just now.
    """
    if standing.is_cancelled:
        return Refusal.CANCELLED
    if standing.is_awaiting:
        return Refusal.AWAITING
    if failure is None:
        raise ValueError("a turn that has not failed has nothing to escalate")
    if standing.is_background:
        return Refusal.NESTED
    if is_non_replannable(failure, patterns):
        return Refusal.NON_REPLANNABLE
    if standing.is_shutting_down:
        return Refusal.SHUTTING_DOWN
    if not standing.is_enabled:
        return Refusal.DISABLED
    return None if standing.has_request_id else Refusal.NO_REQUEST_ID


def is_non_replannable(failure: Failure, patterns: Sequence[str]) -> bool:
    """Whether a different plan would meet the same failure: one of `patterns` occurs in
    `<kind>: <reason>`, in any letter case (C3)."""
    text = f"{failure.kind}: {failure.reason}".casefold()
    return any(pattern.casefold() in text for pattern in patterns)


def deciding(failures: Sequence[Failure], patterns: Sequence[str]) -> Failure:
    """The one of all `failures` of a workflow (at least one) that stands for it: the first that
    a different plan may avoid, else the first."""
    return next(
        (failure for failure in failures if not is_non_replannable(failure, patterns)), failures[0]
    )


def is_outage(failure: Failure) -> bool:
    """Whether a provider was down, slow or too busy. That says nothing about a plan, so it never
    counts as stuck (C12); it is over sooner or later."""
    return failure.kind in OUTAGES or failure.fault in OUTAGE_FAULTS


def failure_signature(failure: Failure) -> str:
    """What two failures share that are the same wall (C12): equal texts, for comparing alone."""
    return signature(failure.kind, failure.reason)


def is_stuck(plan: Plan, entries: Sequence[AttemptEntry]) -> bool:
    """Whether the chain ends before `plan` is run (C12): the last two failures are the same, no
    outages, and `plan` is not meaningfully different from those that were tried."""
    last_two = [entry.failure for entry in entries[-2:]]
    if len(last_two) < 2 or any(is_outage(failure) for failure in last_two):
        return False
    if len({failure_signature(failure) for failure in last_two}) > 1:
        return False
    return not is_different(plan, [entry.plan for entry in entries if entry.plan is not None])


def after_failure(
    entries: Sequence[AttemptEntry],
    policy: ChainPolicy,
    patterns: Sequence[str],
    deadline_at_ms: int | None,
    now_ms: int,
    jitter: Jitter,
) -> NextAttempt | ChainEnd:
    """What follows the last of `entries`, which has just failed (C5, C7, C11).

    The first that holds: a background attempt failed at what no plan avoids; the deadline has
    passed; all background attempts are spent. Else the next attempt, at once, or after an outage
    as late as a job's would be (A10), but never beyond the deadline. The synchronous turn is
    entry 1 and is not charged: whether it goes on at all is the gate's question.
    """
    failure, used = entries[-1].failure, len(entries) - 1
    if used > 0 and is_non_replannable(failure, patterns):
        return ChainEnd(ChainState.IMPOSSIBLE, f"no other plan gets around this: {failure.reason}")
    if deadline_at_ms is not None and now_ms >= deadline_at_ms:
        return deadline_end(policy)
    if used >= policy.max_attempts:
        return ChainEnd(ChainState.BUDGET_EXHAUSTED, f"all {used} async attempt(s) failed")
    if not is_outage(failure):
        return NextAttempt(0)
    wait_s = backoff_s(failure.kind, len(entries) + 1, failure.retry_after_s, jitter)
    after_ms = math.ceil(wait_s * 1000)
    return NextAttempt(
        after_ms if deadline_at_ms is None else min(after_ms, deadline_at_ms - now_ms)
    )


def stuck_end() -> ChainEnd:
    """The end of a chain that `is_stuck`."""
    detail = "the same failure came again, and no meaningfully different plan was found"
    return ChainEnd(ChainState.STUCK, detail)


def deadline_end(policy: ChainPolicy) -> ChainEnd:
    """The end of a chain whose time is over."""
    length = "" if policy.deadline_s is None else f" of {_duration(policy.deadline_s)}"
    return ChainEnd(ChainState.BUDGET_EXHAUSTED, f"the deadline{length} has passed")


def broken_end(why: str) -> ChainEnd:
    """The end of a chain that could not be carried on, for a reason of ours."""
    return ChainEnd(ChainState.BUDGET_EXHAUSTED, f"the chain itself broke: {why}")


def delivery_mode(has_channel: bool, user_id: str, webhook_url: str | None) -> Delivery:
    """How the outcome gets to the caller (C10). `has_channel`: the formation has one; `user_id`
    may be empty; `webhook_url` is the request's or else the formation's."""
    if has_channel and user_id:
        return Delivery.CHANNEL
    return Delivery.WEBHOOK if webhook_url else Delivery.POLLING


def entry_json(entry: AttemptEntry) -> Mapping[str, Any]:
    """What is kept of an entry; `entry_of` reads it again. Of the plan that is what counts in a
    comparison, 40,000 characters at most: the plan of a long message is as long."""
    return {
        "attempt": entry.number,
        "plan": None if entry.plan is None else plan_json(compared(entry.plan)),
        "kind": entry.failure.kind.value,
        "reason": entry.failure.reason[:REASON_MAX_CHARS],
        "fault": entry.failure.fault.value,
        "retry_after_s": entry.failure.retry_after_s,
    }


def entry_of(kept: Mapping[str, Any]) -> AttemptEntry:
    """The entry that `entry_json` wrote. KeyError, TypeError or ValueError where it did not."""
    plan = None if kept["plan"] is None else plan_of(kept["plan"])
    failure = Failure(
        ErrorKind(kept["kind"]), kept["reason"], Fault(kept["fault"]), kept["retry_after_s"]
    )
    return AttemptEntry(kept["attempt"], plan, failure)


def _duration(seconds: float) -> str:
    """As a formation file spells it: 2h, 15m, 90s, 500ms."""
    milliseconds = math.ceil(seconds * 1000)
    for unit, length_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % length_ms == 0:
            return f"{milliseconds // length_ms}{unit}"
    return f"{milliseconds}ms"
