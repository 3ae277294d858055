"""What is stored of a chat turn and of its chain, and who may see it? (C1-C21)

A request is named by its first job; each background attempt is a job of its own, which names
that one as its root.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final, cast

from redis import Redis

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, ChainPolicy, ChainState, Delivery
from jobs.domain.job import Attempt, Kind, NewJob
from jobs.domain.states import Answer
from jobs.domain.turn_left import EndedChain
from jobs.domain.turn_plan import Awaiting, Plan, plan_json, plan_of
from jobs.store import keys
from jobs.store.codec import whole
from jobs.store.connection import store_errors
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from jobs.store.turn_codec import entries_of

TARGET: Final = "genqueue:chat"
"""The lane of turns; which models one calls, its plan says."""

PRIORITY: Final = 5
"""Somebody waits for it."""

LOG_PAGE_MAX: Final = 100
"""Lines of one page of a captain's log; a line is some kB at most."""

_EPOCH: Final = date(1970, 1, 1)


class RequestStatus(StrEnum):
    """How a request stands, as its caller sees it (C11, C15)."""

    QUEUED = "queued"
    PROCESSING = "processing"
    AWAITING_CLARIFICATION = "awaiting_clarification"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_CREDENTIAL = "awaiting_credential"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn as submitted. `id` is that of its first job, `org_id` the formation. `target_url` is
    where its outcome is posted, None where it is polled for; `user_id` "" where none was named."""

    id: str
    prompt_id: str
    client_id: str
    user_id: str
    org_id: str
    message: str
    delivery: Delivery
    target_url: str | None = None
    streams: bool = False
    idempotency_key: str | None = None
    payload_hash: str = ""


@dataclass(frozen=True, slots=True)
class SubmittedTurn:
    """What became of a submit; `replayed` where the idempotency key named an earlier one."""

    job_id: str
    replayed: bool
    ticket_wanted: bool


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """What a running attempt needs to go on. `runs` counts how often this attempt was begun,
    `deaths` how often its worker died,
    `plan` is what it noted; `policy` and `deadline_at_ms` are those of its chain, None where there
    is none. `now_ms` is Redis's clock."""

    request_job_id: str
    streams: bool
    has_ended: bool
    runs: int
    deaths: int
    plan: Plan | None
    entries: tuple[AttemptEntry, ...]
    policy: ChainPolicy | None
    deadline_at_ms: int | None
    now_ms: int

    @property
    def number(self) -> int:
        """The number of this attempt; the synchronous turn is 1."""
        return len(self.entries) + 1


@dataclass(frozen=True, slots=True)
class RequestStanding:
    """How far a request came, and nothing of what it holds."""

    status: RequestStatus
    escalated: bool


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a caller gets to see. `result` is the answer of a completed request; `state`, `detail`
    and `entries` are those of its chain; `attempts` counts all that were begun and ended."""

    job_id: str
    client_id: str
    user_id: str
    status: RequestStatus
    escalated: bool
    delivery: Delivery
    webhook_url: str | None
    message: str | None
    result: str | None
    awaiting: Awaiting | None
    question: str | None
    error_kind: ErrorKind | None
    error_message: str | None
    state: ChainState | None
    detail: str
    entries: tuple[AttemptEntry, ...]
    attempts: int
    created_at_ms: int
    ended_at_ms: int | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.ended_at_ms is not None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancel; `ended_chains` holds the chain that it ended as abandoned."""

    answer: Answer
    ended_chains: tuple[EndedChain, ...] = ()
    ticket_wanted: bool = False


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A chain that ended without an answer; `reasons` are those of its failed attempts, each once
    and of very long ones the first."""

    at_ms: int
    request_job_id: str
    state: ChainState
    attempts: int
    detail: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some lines of a day; `next_cursor` is where the next page begins, None on the last."""

    entries: tuple[LogEntry, ...]
    next_cursor: int | None


class Turns:
    """Submits, reads, notes and cancels. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts, queue: Queue) -> None:
        self._redis = redis
        self._scripts = scripts
        self._queue = queue

    def submit(self, new: NewTurn) -> SubmittedTurn:
        """Store a turn and its job in one round trip. Raises IdempotencyKeyReusedError."""
        key = new.idempotency_key
        submitted = self._queue.submit(
            NewJob(
                id=new.id,
                prompt_id=new.prompt_id,
                org_id=new.org_id,
                created_by=f"client:{new.client_id}",
                prompt_text=new.message,
                target=TARGET,
                kind=Kind.CHAT,
                priority=PRIORITY,
                max_attempts=1,
                idempotency_key=key and f"{new.client_id}\n{new.user_id}\n{key}",
                payload_hash=new.payload_hash,
                team_id=new.client_id,
                target_url=new.target_url,
                request={
                    "user": new.user_id,
                    "delivery": new.delivery,
                    "streams": str(int(new.streams)),
                },
            )
        )
        return SubmittedTurn(submitted.job_id, submitted.replayed, submitted.ticket_wanted)

    def load(self, attempt: Attempt) -> StoredTurn | None:
        """The turn that `attempt` belongs to, in one round trip; None where its record is gone."""
        request_job_id = attempt.job.root_id
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.REQUEST(request_job_id))
            pipe.get(keys.REQUEST_PLAN(request_job_id))
            pipe.lrange(keys.REQUEST_ATTEMPTS(request_job_id), 0, -1)
            pipe.time()
            fields, plan, rows, (seconds, micros) = pipe.execute()
        if not fields:
            return None
        return StoredTurn(
            request_job_id=request_job_id,
            streams=fields.get("streams") == "1",
            has_ended="ended_at" in fields,
            runs=whole(fields, "runs") or 0,
            deaths=whole(fields, "deaths") or 0,
            plan=plan_of(json.loads(plan), attempt.prompt_text) if plan else None,
            entries=entries_of(rows),
            policy=_policy(fields),
            deadline_at_ms=whole(fields, "deadline_at"),
            now_ms=seconds * 1000 + micros // 1000,
        )

    def note(self, attempt: Attempt, plan: Plan, number: int) -> Answer:
        """Write down that a running attempt begins with `plan`; only for the holder of its
        lease."""
        word = self._scripts.run(
            "note_turn",
            id=attempt.job.id,
            token=attempt.token,
            plan=compact_json(plan_json(plan, attempt.prompt_text)),
            attempt=number,
        )
        return Answer(word)

    def view(self, job_id: str, client_id: str, user_id: str) -> RequestView | None:
        """A request of this client and user, in one round trip; None for anybody else (C21)."""
        view = self.read(job_id)
        if view is None or (view.client_id, view.user_id) != (client_id, user_id):
            return None
        return view

    def standing(self, job_id: str, client_id: str, user_id: str) -> RequestStanding | None:
        """How a request of this client and user stands, in one round trip, however large it is;
        None for anybody else (C21)."""
        with store_errors():
            found = self._redis.hmget(
                keys.REQUEST(job_id), ["client", "user", "status", "escalated_at"]
            )
        client, user, status, escalated_at = cast("list[str | None]", found)
        if status is None or (client, user) != (client_id, user_id):
            return None
        return RequestStanding(RequestStatus(status), escalated=escalated_at is not None)

    def read(self, job_id: str) -> RequestView | None:
        """A request, whosever it is, in one round trip; None where there is none."""
        found = self._scripts.run("read_request", id=job_id)
        if not found:
            return None
        flat, rows, *texts = found
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        return _view(job_id, fields, rows, _Texts(*(text or None for text in texts)))

    def cancel(self, job_id: str, client_id: str, user_id: str) -> Cancelled:
        """End a request of this client and user, whichever attempt of it is under way (C15)."""
        with store_errors():
            owners = self._redis.hmget(keys.REQUEST(job_id), ["client", "user", "org_id"])
        client, user, org_id = cast("list[str | None]", owners)
        if client != client_id or user != user_id or org_id is None:
            return Cancelled(Answer.MISSING)
        done = self._queue.cancel(job_id, org_id, "cancelled by its caller", is_request=True)
        return Cancelled(done.answer, done.ended_chains, done.ticket_wanted)

    def captains_log(
        self, client_id: str, user_id: str, day: date, limit: int = LOG_PAGE_MAX, cursor: int = 0
    ) -> LogPage:
        """What could not be done for a user on a day in UTC, in its order, up to `limit` lines
        after the first `cursor`; in one round trip (C14)."""
        log = keys.CAPTAINS_LOG(f"{client_id}:{(day - _EPOCH).days}:{user_id}")
        with store_errors():
            rows = cast("list[str]", self._redis.lrange(log, cursor, cursor + limit))
        entries = tuple(_log_entry(row) for row in rows[:limit])
        return LogPage(entries, cursor + limit if len(rows) > limit else None)


@dataclass(frozen=True, slots=True)
class _Texts:
    note: str | None
    target: str | None
    error_kind: str | None
    error: str | None
    message: str | None
    result: str | None


def _log_entry(row: str) -> LogEntry:
    at_ms, job_id, state, attempts, texts = row.split("|", 4)
    detail, *reasons = json.loads(texts)
    return LogEntry(int(at_ms), job_id, ChainState(state), int(attempts), detail, tuple(reasons))


def _policy(fields: Mapping[str, str]) -> ChainPolicy | None:
    if "escalated_at" not in fields:
        return None
    deadline_ms = whole(fields, "deadline_ms")
    return ChainPolicy(
        max_attempts=int(fields["max_attempts"]),
        idle_timeout_s=int(fields["idle_ms"]) / 1000,
        deadline_s=None if deadline_ms is None else deadline_ms / 1000,
    )


def _view(job_id: str, fields: Mapping[str, str], rows: list[str], texts: _Texts) -> RequestView:
    status = RequestStatus(fields["status"])
    entries = entries_of(rows)
    is_completed = status is RequestStatus.COMPLETED
    is_escalated = "escalated_at" in fields
    is_failed = status is RequestStatus.FAILED and not is_escalated
    awaiting = None
    if status.startswith("awaiting_"):
        awaiting = Awaiting(status.removeprefix("awaiting_"))
    return RequestView(
        job_id=job_id,
        client_id=fields["client"],
        user_id=fields["user"],
        status=status,
        escalated=is_escalated,
        delivery=Delivery(fields["delivery"]),
        webhook_url=texts.target if fields["delivery"] == Delivery.WEBHOOK else None,
        message=texts.message,
        result=texts.result if is_completed else None,
        awaiting=awaiting,
        question=texts.note if awaiting else None,
        error_kind=ErrorKind(texts.error_kind) if is_failed and texts.error_kind else None,
        error_message=texts.error if is_failed else None,
        state=ChainState(fields["state"]) if "state" in fields else None,
        detail=(texts.note or "") if is_escalated else "",
        entries=entries,
        attempts=len(entries) + is_completed,
        created_at_ms=int(fields["created_at"]),
        ended_at_ms=whole(fields, "ended_at"),
    )
