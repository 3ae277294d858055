"""What must be true of the jobs in a store? A small model of it, for the state machine test.

It keeps what a reader of architecture.md would: the state, attempt, token and place of each
job, the quotas, and who may be claimed next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs.domain.job import Attempt, Kind, NewJob
from jobs.domain.states import State, Verb
from jobs.store import keys

READY, SCHEDULED, DUE = "ready", "scheduled", "due"
MOVED_TO = {
    Verb.SUCCEED: State.SUCCEEDED,
    Verb.RETRY: State.QUEUED,
    Verb.SNOOZE: State.QUEUED,
    Verb.FAIL: State.FAILED,
}


@dataclass
class ModelJob:
    """What must be true of one job."""

    submitted: NewJob
    id: str
    org_id: str
    order: int
    state: State = State.QUEUED
    attempt: int = 1
    place: str = READY
    token: str = ""
    tokens: list[str] = field(default_factory=list)
    ended: tuple[str, Verb] | None = None
    expired: bool = False
    lease_is_over: bool = False
    is_old: bool = False
    moves: int = 1
    successor: str | None = None

    @property
    def lane(self) -> str:
        new = self.submitted
        return keys.lane(self.org_id, new.kind, new.target)

    @property
    def score(self) -> tuple[int, int]:
        return self.submitted.priority, self.order

    def queue_again(self, place: str = READY) -> None:
        self.state, self.place, self.token = State.QUEUED, place, ""

    def end(self, state: State) -> None:
        self.state, self.place, self.token = state, "", ""

    def settle(self, token: str, verb: Verb, *, waits: bool) -> None:
        """The attempt ended by `verb` under its own token."""
        self.ended = (token, verb)
        self.moves += 1
        if MOVED_TO[verb] is State.QUEUED:
            self.queue_again(SCHEDULED if waits else READY)
            self.attempt += verb is Verb.RETRY
        else:
            self.end(MOVED_TO[verb])

    def reclaim(self) -> None:
        """The lease was over when the sweep came."""
        self.ended = (self.token, Verb.RECLAIM)
        self.moves += 1
        endless = self.submitted.kind is Kind.ESCALATION
        if endless or (self.attempt < self.submitted.max_attempts and not self.is_old):
            self.queue_again()
            self.attempt += not endless
        else:
            self.end(State.FAILED)


class StoreModel:
    """All jobs by id, in the order in which they came, and the quotas."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.caps: dict[str, int] = {}
        self.ever_capped: set[str] = set()

    def add(self, new: NewJob, job_id: str) -> None:
        self.jobs[job_id] = ModelJob(new, job_id, new.org_id, order=len(self.jobs))

    def all(self) -> list[ModelJob]:
        return list(self.jobs.values())

    def pick(self, number: int) -> ModelJob:
        return self.all()[number % len(self.jobs)]

    def running(self) -> list[ModelJob]:
        return [job for job in self.all() if job.state is State.RUNNING]

    def token(self, job: ModelJob, choice: str) -> str:
        """The token that `choice` means for `job`; any other word stands for itself."""
        if choice == "own":
            return job.token or (job.tokens[-1] if job.tokens else "none.1")
        if choice == "old":
            return job.tokens[0] if job.tokens else "none.1"
        if choice == "another's":
            return next((j.token for j in self.all() if j is not job and j.token), "x.1")
        return choice

    def time_passes(self) -> int:
        """Due jobs are ready; answers how many there were."""
        due = [job for job in self.all() if job.place == DUE]
        for job in due:
            job.place = READY
        return len(due)

    def room(self, org_id: str) -> int:
        running = sum(job.org_id == org_id for job in self.running())
        return max(0, self.caps.get(org_id, 1000) - running)

    def ready(self, ceiling: int = 100) -> list[ModelJob]:
        return [j for j in self.all() if j.place == READY and j.submitted.priority <= ceiling]

    def take(
        self, attempts: Iterable[Attempt], ceiling: int, *, is_over: bool = False
    ) -> list[ModelJob]:
        """Check each job that a claim gave, in order, and let it run."""
        taken = []
        for attempt in attempts:
            job = self.jobs[attempt.job.id]
            ready = self.ready(ceiling)
            assert job in ready
            assert job is min((j for j in ready if j.lane == job.lane), key=lambda j: j.score)
            assert self.room(job.org_id) > 0
            never_held = [j.submitted.priority for j in ready if j.org_id not in self.ever_capped]
            assert job.submitted.priority <= min(never_held, default=100)
            job.state, job.place, job.token = State.RUNNING, "", attempt.token
            job.lease_is_over, job.is_old = is_over, False
            job.tokens.append(attempt.token)
            job.moves += 1
            taken.append(job)
        return taken
