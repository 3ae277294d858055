"""Which jobs are there, and which changed? Bounded pages over an org's jobs by last move (A20).

`changed:<org>` holds every job of an organisation under the number of its last move. A page
by it never misses a change: a job that moves while pages are read gets a higher number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.job import Job, Kind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.codec import job_from_fields
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

LOOKED_AT_MAX: Final = 1000
"""Jobs that one page looks at, however few of them fit the filter."""

RETRIES_MAX: Final = 1000
"""Superseded jobs of one prompt that a page by prompt looks at, the newest."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs of an org to list; an empty set means all. `since_seq` is exclusive."""

    states: frozenset[State] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    prompt_id: str | None = None
    since_seq: int = 0

    def fits(self, fields: Mapping[str, str]) -> bool:
        """Whether a record's `state` and `kind` are asked for."""
        if self.states and fields.get("state") not in self.states:
            return False
        return not self.kinds or fields.get("kind") in self.kinds


@dataclass(frozen=True, slots=True)
class JobsPage:
    """Jobs, the one that moved last first. `next_before` continues, None at the end; a page may
    be shorter than its limit and still have a next one."""

    jobs: tuple[Job, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class PromptChange:
    """A prompt with its current job; instants in ms."""

    prompt_id: str
    created_at_ms: int
    response_id: str | None
    job: Job


@dataclass(frozen=True, slots=True)
class Changes:
    """Prompts that changed after a number; `as_of` is the number to ask from next.

    `has_more` where the page was full; `lost` where the number asked from was never given out
    by this Redis, and the page is that of a first look instead."""

    prompts: tuple[PromptChange, ...]
    as_of: int
    has_more: bool
    lost: bool = False


class Listing:
    """Reads; nothing here writes. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def seq_at(self, org_id: str, at_ms: int) -> int:
        """A number after which is all that changed at or after `at_ms` by the clock of Redis."""
        return int(float(self._scripts.run("seq_at", org_id=org_id, at_ms=at_ms)))

    def state(self, job_id: str, org_id: str) -> State | None:
        """The state of a job, None where it is not one of this org."""
        with store_errors():
            state, owner = cast(
                "list[str | None]", self._redis.hmget(keys.JOB(job_id), ["state", "org_id"])
            )
        return State(state) if state and owner == org_id else None

    def jobs(self, org_id: str, wanted: Filter, limit: int, before: int | None) -> JobsPage:
        """Up to `limit` jobs that moved before the number `before`, None for the newest.

        Looks at no more than LOOKED_AT_MAX of them, in two or three round trips.
        """
        look = limit + 1 if not (wanted.states or wanted.kinds) else LOOKED_AT_MAX
        if wanted.prompt_id is None:
            rows = self._moved_before(org_id, wanted.since_seq, before, look)
        else:
            rows = self._of_prompt(org_id, wanted, before)[:look]
        fitting, next_before = self._fitting(rows, wanted, limit)
        if next_before is None and len(rows) == look:
            next_before = rows[-1][1]
        return JobsPage(tuple(self._load(fitting)), next_before)

    def changes(self, org_id: str, after: int | None, limit: int) -> Changes:
        """Up to `limit` prompts that changed after the number `after`, by their last move; for
        None the `limit` prompts that changed last.

        The records are read after `as_of` was: what changes meanwhile is told again.
        """
        changed = keys.CHANGED(org_id)
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.get(keys.SEQ())
            if after is None:
                pipe.zrange(changed, 0, limit - 1, desc=True, withscores=True)
            else:
                pipe.zrangebyscore(
                    changed, f"({after}", "+inf", start=0, num=limit + 1, withscores=True
                )
            seq, rows = pipe.execute()
        as_of = int(seq or 0)
        if after is not None and after > as_of:
            first = self.changes(org_id, None, limit)
            return Changes(first.prompts, first.as_of, first.has_more, lost=True)
        has_more = after is not None and len(rows) > limit
        rows = rows[:limit]
        if has_more:
            as_of = int(rows[-1][1])
        return Changes(tuple(self._prompts_of([row[0] for row in rows])), as_of, has_more)

    def _moved_before(
        self, org_id: str, since: int, before: int | None, count: int
    ) -> list[tuple[str, int]]:
        upper = "+inf" if before is None else f"({before}"
        with store_errors():
            rows = self._redis.zrevrangebyscore(
                keys.CHANGED(org_id), upper, f"({since}", start=0, num=count, withscores=True
            )
        return [(job_id, int(score)) for job_id, score in cast("Any", rows)]

    def _of_prompt(self, org_id: str, wanted: Filter, before: int | None) -> list[tuple[str, int]]:
        """The prompt's jobs in the same order; none where it is another org's."""
        prompt_id = cast("str", wanted.prompt_id)
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hmget(keys.PROMPT(prompt_id), ["org_id", "job_id"])
            pipe.lrange(keys.REPLACED(prompt_id), -RETRIES_MAX, -1)
            (owner, current), replaced = pipe.execute()
            if owner != org_id:
                return []
            ids = [*replaced, *([current] if current else [])]
            scores = cast("Any", self._redis.zmscore(keys.CHANGED(org_id), ids)) if ids else []
        rows = [(one, int(score)) for one, score in zip(ids, scores, strict=True) if score]
        return sorted(
            (
                (one, seq)
                for one, seq in rows
                if seq > wanted.since_seq and (before is None or seq < before)
            ),
            key=lambda row: -row[1],
        )

    def _fitting(
        self, rows: Sequence[tuple[str, int]], wanted: Filter, limit: int
    ) -> tuple[list[str], int | None]:
        """The ids of up to `limit` rows that fit, and where to go on if there were more."""
        if wanted.states or wanted.kinds:
            with store_errors():
                pipe = self._redis.pipeline(transaction=False)
                for job_id, _ in rows:
                    pipe.hmget(keys.JOB(job_id), ["state", "kind"])
                found = pipe.execute()
            fits = [
                wanted.fits({"state": state or "", "kind": kind or ""}) for state, kind in found
            ]
        else:
            fits = [True] * len(rows)
        ids: list[str] = []
        last = 0
        for (job_id, seq), fit in zip(rows, fits, strict=True):
            if fit and len(ids) == limit:
                return ids, last
            if fit:
                ids.append(job_id)
            last = seq
        return ids, None

    def _load(self, ids: Sequence[str]) -> list[Job]:
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            for job_id in ids:
                pipe.hgetall(keys.JOB(job_id))
                pipe.get(keys.OPTIONS(job_id))
                pipe.get(keys.ERROR(job_id))
            found = pipe.execute()
        return [
            job_from_fields(job_id, *found[3 * n : 3 * n + 3])
            for n, job_id in enumerate(ids)
            if found[3 * n]  # archived meanwhile
        ]

    def _prompts_of(self, job_ids: Sequence[str]) -> list[PromptChange]:
        """The prompts of these jobs, each once, in the order of its last job here."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hget(keys.JOB(job_id), "prompt_id")
            found = [one for one in pipe.execute() if one]
            prompt_ids = list(dict.fromkeys(found))
            pipe = self._redis.pipeline(transaction=False)
            for prompt_id in prompt_ids:
                pipe.hmget(keys.PROMPT(prompt_id), ["job_id", "created_at", "response_id"])
            prompts = {
                prompt_id: fields
                for prompt_id, fields in zip(prompt_ids, pipe.execute(), strict=True)
                if fields[0]
            }
        jobs = {job.id: job for job in self._load([fields[0] for fields in prompts.values()])}
        return [
            PromptChange(prompt_id, int(created_at), response_id, jobs[job_id])
            for prompt_id, (job_id, created_at, response_id) in prompts.items()
            if job_id in jobs
        ]
