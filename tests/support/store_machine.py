"""Do the scripts do what a small model in Python says, whatever comes in whatever order?

After every step the record of each job is compared with the model (store_model.py), and the
store's own invariants must hold. Time passes by moving stamps, never by waiting.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
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
from tests.support.store_model import DUE, MOVED_TO, SCHEDULED, ModelJob, StoreModel

ORGS = ("acme", "beta", "capped")

tokens = st.sampled_from(["own", "own", "own", "old", "another's", "", "junk.1"])
fates = st.lists(st.sampled_from([None, *sorted(MOVED_TO)]), min_size=4, max_size=4)
"""How each attempt of a claim ends at once; None leaves it running."""

picks = st.integers(0, 40)
"""Which job a rule acts on: a number that is folded onto those that there are."""

new_jobs = st.builds(
    new_job,
    org_id=st.sampled_from(ORGS),
    priority=st.sampled_from([0, 10, 50, 50, 100]),
    max_attempts=st.integers(1, 3),
    kind=st.sampled_from([Kind.PROMPT, Kind.PROMPT, Kind.ESCALATION]),
    target=st.sampled_from(["mock:a", "mock:b"]),
)


class StoreMachine(RuleBasedStateMachine):
    """Every verb in every order on one Redis, which is emptied at the start."""

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        redis.flushall()
        self.redis = redis
        self.queue = Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=16)
        self.records = records_of(redis)
        self.model = StoreModel()
        self.last_claim: tuple[str, list[ModelJob]] = ("", [])

    # What the rules share

    def _unchanged(self, act: Any, *, ignore: tuple[str, ...] = ()) -> Any:
        before = snapshot(self.redis, ignore=ignore)
        answer = act()
        assert snapshot(self.redis, ignore=ignore) == before
        return answer

    def _one_running(self, pick: int) -> list[ModelJob]:
        running = self.model.running()
        return running[pick % max(1, len(running)) :][:1]

    def _settle(self, job: ModelJob, token: str, verb: Verb, *, waits: bool = False) -> None:
        """Send `verb` for `job`, and see that the answer and its effect are the right ones."""
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
            job.settle(token, verb, waits=waits)

    def _meet(self, taken: list[ModelJob], fates: list[Verb | None], *, waits: bool) -> None:
        for job, fate in zip(taken, cycle(fates), strict=False):
            if fate:
                self._settle(job, job.token, fate, waits=waits)

    # The verbs

    @initialize(jobs=st.lists(new_jobs, min_size=3, max_size=8))
    def start_with_some_jobs(self, jobs: list[NewJob]) -> None:
        for new in jobs:
            self.submit(new)

    @rule(new=new_jobs)
    def submit(self, new: NewJob) -> None:
        new = replace(new, id=new_id(), prompt_id=new_id())
        assert self.queue.submit(new).job_id == new.id
        self.model.add(new, new.id)

    @rule(
        count=st.integers(0, 4),
        ceiling=st.sampled_from([-1, 10, 50, 100, 100, 100]),
        is_over=st.booleans(),
        fates=fates,
        waits=st.booleans(),
    )
    def claim(
        self, count: int, ceiling: int, is_over: bool, fates: list[Verb | None], waits: bool
    ) -> None:
        """A worker's turn: take some jobs, end some of them at once, keep the others."""
        token = new_id()
        got = claim(
            self.queue, count, token=token, ceiling=ceiling, window_ms=0 if is_over else 60_000
        )
        self.model.time_passes()
        taken = self.model.take(got.attempts, ceiling, is_over=is_over)
        if taken:
            self.last_claim = (token, taken)
        assert len(taken) <= count
        if len(taken) < count:
            left = [j for j in self.model.ready(ceiling) if j.org_id not in self.model.ever_capped]
            assert left == []
        self._meet(taken, fates, waits=waits)

    @rule(fates=fates, waits=st.booleans())
    def drain(self, fates: list[Verb | None], waits: bool) -> None:
        """After a promotion a claim gets all that quotas have room for."""
        self.promote()
        ready = self.model.ready()
        expected = sum(
            min(self.model.room(org), sum(job.org_id == org for job in ready)) for org in ORGS
        )
        got = claim(self.queue, 1000)
        taken = self.model.take(got.attempts, 100)
        assert len(taken) == expected
        self._meet(taken, fates, waits=waits)

    @precondition(lambda self: self.model.running())
    @rule(pick=picks, verb=st.sampled_from(sorted(MOVED_TO)), waits=st.booleans())
    def settle(self, pick: int, verb: Verb, waits: bool) -> None:
        for job in self._one_running(pick):
            self._settle(job, job.token, verb, waits=waits)

    @rule(pick=picks, choice=tokens, verb=st.sampled_from(sorted(MOVED_TO)))
    def settle_with_any_token(self, pick: int, choice: str, verb: Verb) -> None:
        job = self.model.pick(pick)
        self._settle(job, self.model.token(job, choice), verb)

    @rule(pick=picks)
    def expire(self, pick: int) -> None:
        job = self.model.pick(pick)

        def act() -> Answer | None:
            return apply(Verb.EXPIRE, self.redis, self.queue, job.id, "")

        if job.state is State.QUEUED:
            assert act() is Answer.OK
            job.end(State.FAILED)
            job.moves += 2
            job.expired = True
            if job.ended:  # the record keeps the last word only
                job.ended = (job.ended[0], Verb.EXPIRE)
        else:
            repeated = job.expired and job.state is State.FAILED
            assert self._unchanged(act) is (Answer.OK if repeated else Answer.WRONG_STATE)

    @rule(pick=picks, is_own=st.sampled_from([True, True, False]))
    def cancel(self, pick: int, is_own: bool) -> None:
        job = self.model.pick(pick)

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

    @rule(pick=picks, repeats=st.booleans())
    def supersede(self, pick: int, repeats: bool) -> None:
        job = self.model.pick(pick)
        new = job.successor if repeats and job.successor else new_id()

        def act() -> Any:
            return self.queue.supersede(job.id, new, job.org_id, "ada")

        if job.submitted.kind is Kind.ESCALATION:
            assert self._unchanged(act).answer is Answer.FINAL
        elif job.successor == new:
            assert self._unchanged(act).answer is Answer.OK
        elif job.state in TERMINAL - {State.SUPERSEDED}:
            assert act().answer is Answer.OK
            job.successor, job.state = new, State.SUPERSEDED
            job.moves += 1
            self.model.add(job.submitted, new)
        else:
            refused = self._unchanged(act)
            assert (refused.answer, refused.superseded_by) == (Answer.WRONG_STATE, job.successor)

    @rule()
    def promote(self) -> None:
        assert self.queue.promote().promoted == self.model.time_passes()

    @rule(since_ms=st.sampled_from([15_000, 15_000, 0, 46_000, -16_000]), dead=st.integers(0, 4))
    def reclaim(self, since_ms: int, dead: int) -> None:
        for job in self.model.running()[:dead]:
            self.redis.zadd(keys.RUNNING(), {job.id: now_ms(self.redis) - 1})
            job.lease_is_over = True
        if not 0 <= since_ms <= 45_000:
            ignore = (*SWEEP_STAMPS, keys.RUNNING())
            swept = self._unchanged(
                lambda: sweep(self.redis, self.queue, since_ms=since_ms), ignore=ignore
            )
            assert swept.renewed
            for job in self.model.all():
                job.lease_is_over = False
            return
        over = [job for job in self.model.running() if job.lease_is_over]
        swept = sweep(self.redis, self.queue, since_ms=since_ms)
        for job in over:
            job.reclaim()
        requeued = sum(job.state is State.QUEUED for job in over)
        assert (swept.requeued, swept.failed) == (requeued, len(over) - requeued)

    @rule(choice=tokens)
    def renew(self, choice: str) -> None:
        held = {job.id: self.model.token(job, choice) for job in self.model.all()}
        held["gone"] = "x.1"
        lost = self.queue.renew(held, window_ms=60_000)
        expected = {"gone": ""}
        for job in self.model.all():
            if job.state is State.RUNNING and held[job.id] == job.token:
                job.lease_is_over = False
            else:
                expected[job.id] = job.state
        assert lost == expected
        assert self._unchanged(lambda: self.queue.check(held)) == expected

    @rule(verb=st.sampled_from([None, *sorted(MOVED_TO)]))
    def repeat_all(self, verb: Verb | None) -> None:
        """All that was sent is sent again: submits, the last claim, and what ended attempts,
        by the same verb or by another; and a verb for a job that never was."""
        for job in self.model.all():
            if job.submitted.id == job.id:
                self._unchanged(lambda new=job.submitted: self.queue.submit(new))
            if job.ended:
                token, ended_by = job.ended
                again = verb or (ended_by if ended_by in MOVED_TO else Verb.FAIL)
                self._settle(job, token, again)
        token, taken = self.last_claim
        if token:
            got = self._unchanged(lambda: claim(self.queue, 4, token=token))
            held = [job.id for n, job in enumerate(taken, 1) if job.token == f"{token}.{n}"]
            assert [attempt.job.id for attempt in got.attempts] == held
        unknown = verb or Verb.SUPERSEDE
        answer = self._unchanged(lambda: apply(unknown, self.redis, self.queue, "unknown", "x.1"))
        assert answer is Answer.MISSING

    # What happens meanwhile

    @rule(pick=picks, what=st.sampled_from(["due", "over", "over", "old"]))
    def time_passes(self, pick: int, what: str) -> None:
        """A job comes due, a lease ends, an attempt grows old: by moving its stamp."""
        now = now_ms(self.redis)
        if what == "due":
            waiting = [job for job in self.model.all() if job.place == SCHEDULED]
            for job in waiting[: 1 + pick % 3]:
                self.redis.zadd(keys.SCHEDULED(), {job.id: now - 1})
                job.place = DUE
        for job in self._one_running(pick):
            if what == "over":
                self.redis.zadd(keys.RUNNING(), {job.id: now - 1})
                job.lease_is_over = True
            elif what == "old":
                self.redis.hset(keys.JOB(job.id), "started_at", now - 900_001)
                job.is_old = True

    @rule(org=st.sampled_from(ORGS[1:]), cap=st.sampled_from([None, 0, 1, 2]))
    def set_quota(self, org: str, cap: int | None) -> None:
        if cap is None:
            self.redis.hdel(keys.QUOTAS(), org)
            self.model.caps.pop(org, None)
        else:
            self.redis.hset(keys.QUOTAS(), org, cap)
            self.model.caps[org] = cap
            self.model.ever_capped.add(org)

    # What must hold after each step

    @invariant()
    def the_store_is_healthy(self) -> None:
        assert problems_of(self.redis) == []
        assert keys_without_end(self.redis) == set()

    @invariant()
    def records_say_what_the_model_says(self) -> None:
        for job in self.model.all():
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
