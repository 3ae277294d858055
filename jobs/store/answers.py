"""What do the verbs of the store ask and answer? Frozen values, one a verb."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.domain.job import PRIORITY_MAX, Attempt
from jobs.domain.states import Answer
from jobs.domain.turn_left import EndedChain


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submit; `replayed` where the idempotency key named an earlier job."""

    job_id: str
    prompt_id: str
    replayed: bool
    ticket_wanted: bool


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker asks for: up to `count` attempts of priority <= `ceiling`, leased for
    `window_ms`. `token` makes the claim repeatable. `worker` and `ticket_id` are RQ names,
    empty where there is none; `ticket_names` is what runs under the ticket already."""

    token: str
    count: int
    window_ms: int
    ceiling: int = PRIORITY_MAX
    worker: str = ""
    ticket_id: str = ""
    ticket_names: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim got. `refused` says why none may be had now ("" where it may);
    `more` means look again at once. `due_in_ms` is the time until the next scheduled job, None
    where there is none; `sweep_age_ms` that since the last reclaim sweep, None where there was
    none."""

    attempts: tuple[Attempt, ...]
    refused: str = ""
    more: bool = False
    due_in_ms: int | None = None
    sweep_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to a verb that ends an attempt or a job; `delivery_wanted` where something is to
    be posted since."""

    answer: Answer
    ticket_wanted: bool = False
    delivery_wanted: bool = False
    ended_chains: tuple[EndedChain, ...] = ()


@dataclass(frozen=True, slots=True)
class Promoted:
    """What one promotion did. `due_in_ms` is the time until the next scheduled job, None where
    there is none; `sweep_age_ms` that since the last reclaim sweep, None where there was none."""

    promoted: int
    reopened: int
    ticket_wanted: bool
    due_in_ms: int | None
    sweep_age_ms: int | None
    ended_chains: tuple[EndedChain, ...] = ()


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What one sweep did; `renewed` where it took nothing because the sweep before was not
    when it should have been; `since_ms` is the time since that one, None where none was;
    `dangling` ids in the running set had no running job and were removed. `failed_ids` names the
    first 100 that failed."""

    requeued: int
    failed: int
    renewed: bool
    ticket_wanted: bool
    since_ms: int | None
    dangling: int = 0
    failed_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repaired:
    """What one look over stored jobs did: jobs looked at, put back, ids that named none, and
    whether that ended a whole round."""

    looked_at: int
    mended: int
    dangling: int
    ticket_wanted: bool
    is_round_done: bool


@dataclass(frozen=True, slots=True)
class Superseded:
    """The answer to supersede; `superseded_by` names the successor of a job that has one."""

    answer: Answer
    superseded_by: str | None = None
    ticket_wanted: bool = False
