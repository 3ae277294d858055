"""Do the scripts do what a small model in Python says, whatever comes in whatever order?

The model keeps what a reader of architecture.md would: the state, attempt, token and place of
each job. After every step the record of each job is compared with it, and the store's own
invariants must hold. Time passes by moving stamps, never by waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.job import Kind, NewJob
from jobs.domain.states import LIVE, TERMINAL, Answer, State, Verb
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.support.factories import claim, new_id, new_job, records_of
from tests.support.invariants import keys_without_end, problems_of
from tests.support.job_states import apply, now_ms, sweep
from tests.support.snapshot import SWEEP_STAMPS, snapshot

ORGS = ("acme", "beta", "capped")
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
        self.state, self.place = state, ""


tokens = st.sampled_from(["own", "own", "own", "old", "another's", "", "junk.1"])


class StoreMachine(RuleBasedStateMachine):
    """Every verb in every order on one Redis, which is emptied at the start."""

    jobs = Bundle("jobs")

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        redis.flushall()
        self.redis = redis
        self.queue = Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=16)
        self.records = records_of(redis)
        self.model: dict[str, ModelJob] = {}
        self.caps: dict[str, int] = {}
        self.ever_capped: set[str] = set()
        self.last_claim: tuple[str, list[ModelJob]] = ("", [])

    # What the rules share

    def _add(self, new: NewJob, job_id: str) -> ModelJob:
        job = ModelJob(new, job_id, new.org_id, order=len(self.model))
        self.model[job_id] = job
        return job

    def _token(self, job: ModelJob, choice: str) -> str:
        if choice == "own":
            return job.token or (job.tokens[-1] if job.tokens else "none.1")
        if choice == "old":
            return job.tokens[0] if job.tokens else "none.1"
        if choice == "another's":
            return next((j.token for j in self.model.values() if j is not job and j.token), "x.1")
        return choice

    def _unchanged(self, act: Any, *, ignore: tuple[str, ...] = ()) -> Any:
        before = snapshot(self.redis, ignore=ignore)
        answer = act()
        assert snapshot(self.redis, ignore=ignore) == before
        return answer

    def _time_passes(self) -> None:
        for job in self.model.values():
            if job.place == DUE:
                job.place = READY

    def _running(self, org_id: str) -> int:
        jobs = self.model.values()
        return sum(j.state is State.RUNNING and j.org_id == org_id for j in jobs)

    def _has_room(self, org_id: str) -> bool:
        return org_id not in self.caps or self._running(org_id) < self.caps[org_id]

    def _ready(self, ceiling: int = 100) -> list[ModelJob]:
        return [
            job
            for job in self.model.values()
            if job.place == READY and job.submitted.priority <= ceiling
        ]

    def _take(self, attempts: Any, ceiling: int, *, is_over: bool) -> list[ModelJob]:
        """Check each job that a claim gave, in order, and let it run."""
        taken = []
        for attempt in attempts:
            job = self.model[attempt.job.id]
            ready = self._ready(ceiling)
            assert job in ready
            assert job is min((j for j in ready if j.lane == job.lane), key=lambda j: j.score)
            assert self._has_room(job.org_id)
            never_held = [j.submitted.priority for j in ready if j.org_id not in self.ever_capped]
            assert job.submitted.priority <= min(never_held, default=100)
            job.state, job.place, job.token = State.RUNNING, "", attempt.token
            job.lease_is_over, job.is_old = is_over, False
            job.tokens.append(attempt.token)
            job.moves += 1
            taken.append(job)
        return taken

    # The verbs

    @rule(
        target=jobs,
        org=st.sampled_from(ORGS),
        priority=st.sampled_from([0, 10, 50, 50, 100]),
        max_attempts=st.integers(1, 3),
        kind=st.sampled_from([Kind.PROMPT, Kind.PROMPT, Kind.ESCALATION]),
        target_name=st.sampled_from(["mock:a", "mock:b"]),
    )
    def submit(
        self, org: str, priority: int, max_attempts: int, kind: Kind, target_name: str
    ) -> ModelJob:
        new = new_job(
            org_id=org, priority=priority, max_attempts=max_attempts, kind=kind, target=target_name
        )
        assert self.queue.submit(new).job_id == new.id
        return self._add(new, new.id)

    @rule(job=jobs)
    def submit_again(self, job: ModelJob) -> None:
        if job.submitted.id == job.id:
            self._unchanged(lambda: self.queue.submit(job.submitted))

    @rule(
        count=st.integers(0, 4),
        ceiling=st.sampled_from([-1, 10, 50, 100, 100]),
        is_over=st.booleans(),
    )
    def claim(self, count: int, ceiling: int, is_over: bool) -> None:
        token = new_id()
        got = claim(
            self.queue, count, token=token, ceiling=ceiling, window_ms=0 if is_over else 60_000
        )
        self._time_passes()
        taken = self._take(got.attempts, ceiling, is_over=is_over)
        if taken:
            self.last_claim = (token, taken)
        assert len(taken) <= count
        if len(taken) < count:
            left = [j for j in self._ready(ceiling) if j.org_id not in self.ever_capped]
            assert left == []

    @rule()
    def claim_again(self) -> None:
        token, taken = self.last_claim
        if token:
            got = self._unchanged(lambda: claim(self.queue, 4, token=token))
            held = [
                job.id
                for n, job in enumerate(taken, start=1)
                if job.state is State.RUNNING and job.token == f"{token}.{n}"
            ]
            assert [attempt.job.id for attempt in got.attempts] == held

    @rule()
    def drain(self) -> None:
        """After a promotion a claim gets all that quotas have room for."""
        self.promote()
        room = {org: self.caps.get(org, 1000) - self._running(org) for org in ORGS}
        ready = self._ready()
        expected = sum(min(max(0, room[org]), sum(j.org_id == org for j in ready)) for org in ORGS)
        got = claim(self.queue, 1000)
        assert len(self._take(got.attempts, 100, is_over=False)) == expected

    @rule(job=jobs, choice=tokens, verb=st.sampled_from(sorted(MOVED_TO)), waits=st.booleans())
    def settle(self, job: ModelJob, choice: str, verb: Verb, waits: bool) -> None:
        token = self._token(job, choice)
        after_ms = 3_600_000 if waits else 0

        def act() -> Answer | None:
            if verb is Verb.RETRY:
                kind = ErrorKind.TIMEOUT
                return self.queue.retry(job.id, token, kind, "slow", after_ms).answer
            if verb is Verb.SNOOZE:
                return self.queue.snooze(job.id, token, "busy", after_ms).answer
            return apply(verb, self.redis, self.queue, job.id, token)

        if job.ended == (token, verb):
            assert self._unchanged(act) is Answer.OK
        elif job.state is not State.RUNNING:
            assert self._unchanged(act) is Answer.WRONG_STATE
        elif token != job.token:
            assert self._unchanged(act) is Answer.LEASE_LOST
        else:
            assert act() is Answer.OK
            job.ended = (token, verb)
            job.moves += 1
            if MOVED_TO[verb] is State.QUEUED:
                job.queue_again(SCHEDULED if waits else READY)
                job.attempt += verb is Verb.RETRY
            else:
                job.end(MOVED_TO[verb])

    @rule(job=jobs)
    def expire(self, job: ModelJob) -> None:
        def act() -> Answer | None:
            return apply(Verb.EXPIRE, self.redis, self.queue, job.id, "")

        if job.state is State.QUEUED:
            assert act() is Answer.OK
            job.end(State.FAILED)
            job.moves += 2
            job.expired = True
        else:
            repeated = job.expired and job.state is State.FAILED
            assert self._unchanged(act) is (Answer.OK if repeated else Answer.WRONG_STATE)

    @rule(job=jobs, is_own=st.sampled_from([True, True, False]))
    def cancel(self, job: ModelJob, is_own: bool) -> None:
        def act() -> Answer:
            return self.queue.cancel(job.id, job.org_id if is_own else "stranger").answer

        if not is_own:
            assert self._unchanged(act) is Answer.MISSING
        elif job.state in LIVE:
            assert act() is Answer.OK
            job.end(State.CANCELLED)
            job.moves += 1
        else:
            again = job.state is State.CANCELLED
            assert self._unchanged(act) is (Answer.OK if again else Answer.WRONG_STATE)

    @rule(target=jobs, job=jobs, repeats=st.booleans())
    def supersede(self, job: ModelJob, repeats: bool) -> ModelJob:
        new = job.successor if repeats and job.successor else new_id()

        def act() -> Any:
            return self.queue.supersede(job.id, new, job.org_id, "ada")

        if job.successor == new:
            assert self._unchanged(act).answer is Answer.OK
            return self.model[new]
        if job.state not in TERMINAL - {State.SUPERSEDED}:
            refused = self._unchanged(act)
            assert (refused.answer, refused.superseded_by) == (Answer.WRONG_STATE, job.successor)
            return job
        assert act().answer is Answer.OK
        job.successor, job.state = new, State.SUPERSEDED
        job.moves += 1
        return self._add(job.submitted, new)

    @rule()
    def promote(self) -> None:
        due = sum(job.place == DUE for job in self.model.values())
        assert self.queue.promote().promoted == due
        self._time_passes()

    @rule()
    def reclaim(self) -> None:
        swept = sweep(self.redis, self.queue)
        over = [j for j in self.model.values() if j.state is State.RUNNING and j.lease_is_over]
        requeued = 0
        for job in over:
            job.ended = (job.token, Verb.RECLAIM)
            job.moves += 1
            endless = job.submitted.kind is Kind.ESCALATION
            may_run = job.attempt < job.submitted.max_attempts and not job.is_old
            if endless or may_run:
                job.queue_again()
                job.attempt += not endless
                requeued += 1
            else:
                job.end(State.FAILED)
        assert (swept.requeued, swept.failed) == (requeued, len(over) - requeued)

    @rule(since_ms=st.sampled_from([46_000, -16_000]))
    def reclaim_at_a_strange_time(self, since_ms: int) -> None:
        ignore = (*SWEEP_STAMPS, keys.RUNNING())
        swept = self._unchanged(
            lambda: sweep(self.redis, self.queue, since_ms=since_ms), ignore=ignore
        )
        assert swept.renewed
        for job in self.model.values():
            job.lease_is_over = False

    @rule(choice=tokens)
    def renew(self, choice: str) -> None:
        held = {job.id: self._token(job, choice) for job in self.model.values()}
        held["gone"] = "x.1"
        lost = self.queue.renew(held, window_ms=60_000)
        expected = {"gone": ""}
        for job in self.model.values():
            if job.state is State.RUNNING and held[job.id] == job.token:
                job.lease_is_over = False
            else:
                expected[job.id] = job.state
        assert lost == expected
        assert self._unchanged(lambda: self.queue.check(held)) == expected

    # What happens meanwhile

    @rule(job=jobs)
    def its_time_comes(self, job: ModelJob) -> None:
        if job.place == SCHEDULED:
            past = now_ms(self.redis) - 1
            self.redis.zadd(keys.SCHEDULED(), {job.id: past})
            job.place = DUE

    @rule(job=jobs)
    def its_lease_ends(self, job: ModelJob) -> None:
        if job.state is State.RUNNING:
            self.redis.zadd(keys.RUNNING(), {job.id: now_ms(self.redis) - 1})
            job.lease_is_over = True

    @rule(job=jobs)
    def it_grows_old(self, job: ModelJob) -> None:
        if job.state is State.RUNNING:
            self.redis.hset(keys.JOB(job.id), "started_at", now_ms(self.redis) - 900_001)
            job.is_old = True

    @rule(org=st.sampled_from(ORGS[1:]), cap=st.sampled_from([None, 0, 1, 2]))
    def set_quota(self, org: str, cap: int | None) -> None:
        if cap is None:
            self.redis.hdel(keys.QUOTAS(), org)
            self.caps.pop(org, None)
        else:
            self.redis.hset(keys.QUOTAS(), org, cap)
            self.caps[org] = cap
            self.ever_capped.add(org)

    @rule(verb=st.sampled_from([*sorted(MOVED_TO), Verb.EXPIRE, Verb.CANCEL, Verb.SUPERSEDE]))
    def name_no_job(self, verb: Verb) -> None:
        answer = self._unchanged(lambda: apply(verb, self.redis, self.queue, "unknown", "x.1"))
        assert answer is Answer.MISSING

    # What must hold after each step

    @invariant()
    def the_store_is_healthy(self) -> None:
        assert problems_of(self.redis) == []
        assert keys_without_end(self.redis) == set()

    @invariant()
    def records_say_what_the_model_says(self) -> None:
        for job in self.model.values():
            view = self.records.job(job.id, job.org_id)
            assert view is not None
            record = view.job
            assert (record.state, record.attempt) == (job.state, job.attempt)
            assert len(view.history) == job.moves
            assert record.superseded_by == job.successor
            assert (record.finished_at_ms is not None) == (job.state in TERMINAL)
            assert (record.run_at_ms is not None) == (job.place in (SCHEDULED, DUE))
            if job.state in LIVE:
                assert record.worker_claim == (job.token or None)
                assert (record.started_at_ms is not None) == (job.state is State.RUNNING)
