"""Where does a proof run, and how does it leave nothing behind?

A claim takes the most urgent job of all organisations, so a proof that claims must not do so
where others' jobs are. `LiveGround` is the store of REDIS_URL, under an organisation of its own,
and only the workers that are up claim there. `ScratchGround` is a logical database of the same
server that was found empty: the same scripts on the same Redis, and workers of this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import uuid
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import Redis
from redis.exceptions import ResponseError

from jobs.domain.job import Job, NewJob
from jobs.domain.states import State
from jobs.runtime import Runtime, build
from jobs.store.connection import connect
from jobs.store.scratch import Scratch, forget_org
from jobs.worker.assembly import Crew, assemble
from service.cli.proofs.facts import ProofBrokenError, ProofSkippedError

DATABASES: Final = range(15, 0, -1)
"""Logical databases that are looked at, in this order; 0 is where others live."""

USER: Final = "proof"
CREW_LEAVES_S: Final = 2.0


class Ground:
    """A store to submit to, under an organisation that only this proof uses."""

    def __init__(self, runtime: Runtime, target: str) -> None:
        self.runtime = runtime
        self.org_id = f"proof-{secrets.token_hex(6)}"
        self.job_ids: list[str] = []
        self._target = target
        self._crews: list[Crew] = []

    def submit(self, text: str, *, is_announced: bool = False, **changes: Any) -> str:
        """Store a prompt job and answer its id; `is_announced` issues a ticket, if wanted."""
        job = NewJob(
            id=str(uuid.uuid4()),
            prompt_id=str(uuid.uuid4()),
            org_id=self.org_id,
            created_by=USER,
            prompt_text=text,
            target=self._target,
            **changes,
        )
        self.job_ids.append(job.id)
        wanted = self.runtime.queue.submit(job).ticket_wanted
        if is_announced and wanted:
            self.runtime.tickets.issue()
        return job.id

    def job(self, job_id: str) -> Job:
        """The record as it is now."""
        view = self.runtime.records.job(job_id)
        if view is None:
            raise ProofBrokenError(f"job {job_id} is not stored any more")
        return view.job

    def verbs(self, job_id: str) -> list[str]:
        """The moves of a job, oldest first."""
        view = self.runtime.records.job(job_id)
        return [move.verb for move in view.history] if view else []

    def crew(self, concurrency: int) -> Crew:
        """A worker of this process, over this ground; it is ended with the ground."""
        crew = assemble(self.runtime, concurrency=concurrency)
        self._crews.append(crew)
        return crew

    def end_crews(self) -> None:
        """Have the workers of this process leave: what they run goes back."""
        for crew in self._crews:
            crew.pool.hand_back()
            crew.runner.leave()
            crew.pool.wait_idle(CREW_LEAVES_S)
            crew.heartbeat.stop()


@contextlib.contextmanager
def live_ground(runtime: Runtime, target: str) -> Iterator[Ground]:
    """The store itself. At the end, however that comes, the proof's jobs are cancelled and
    removed, and every key of its organisation with them."""
    ground = Ground(runtime, target)
    try:
        yield ground
    finally:
        _remove(ground)


@contextlib.contextmanager
def scratch_ground(runtime: Runtime, target: str, scratch_url: str | None) -> Iterator[Ground]:
    """An empty database of the same server, or the empty Redis at `scratch_url`.

    Emptied again at the end, however that comes. Raises ProofSkippedError where there is none,
    StoreUnavailableError where Redis is away.
    """
    url, scratch = _take_scratch(runtime, scratch_url)
    settings = dataclasses.replace(
        runtime.settings, redis_url=url, lease_window_s=4, heartbeat_interval_s=1
    )
    ground = Ground(build(settings), target)
    try:
        yield ground
    finally:
        ground.end_crews()
        scratch.give_back()
        ground.runtime.redis.close()
        ground.runtime.rq_redis.close()


def _remove(ground: Ground) -> None:
    runtime = ground.runtime
    for job_id in ground.job_ids:
        view = runtime.records.job(job_id)
        if view is not None and view.job.state in (State.QUEUED, State.RUNNING):
            runtime.queue.cancel(job_id, ground.org_id, "the proof has ended")
    runtime.upkeep.archive(ground.job_ids)
    forget_org(runtime.redis, ground.org_id, ground.job_ids)


def _take_scratch(runtime: Runtime, scratch_url: str | None) -> tuple[str, Scratch]:
    """An empty database that is ours now."""
    live_url, prefix = runtime.settings.redis_url, runtime.settings.rq_prefix
    live_number = int(runtime.redis.get_connection_kwargs().get("db") or 0)
    urls = (
        [scratch_url]
        if scratch_url
        else [_with_database(live_url, number) for number in DATABASES if number != live_number]
    )
    reason = ""
    for url in urls:
        redis: Redis = connect(url)
        try:
            scratch = Scratch(redis, rq_prefix=prefix)
            if scratch.take():
                return url, scratch
        except ResponseError as error:
            # No such database, a cluster, or a user who may not go there.
            reason = f": {error}"
        redis.close()
    where = "the Redis of --scratch-url" if scratch_url else "none of the databases 1 to 15"
    raise ProofSkippedError(
        f"{where} is empty and free to use{reason}; name an empty Redis with --scratch-url"
    )


def _with_database(url: str, number: int) -> str:
    """The same address with another logical database."""
    parts = urlsplit(url)
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "db"]
    path = parts.path
    if parts.scheme == "unix":
        query.append(("db", str(number)))
    else:
        path = f"/{number}"
    return urlunsplit(parts._replace(path=path, query=urlencode(query)))
