"""Is urgent work first, and is failed work tried again in time? Proven on scratch ground."""

from __future__ import annotations

import secrets

from jobs import maintenance
from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.store.answers import ClaimRequest
from service.cli.proofs.facts import Facts, wait_for
from service.cli.proofs.grounds import Ground

WINDOW_MS = 60_000
WAIT_S = 1
"""What the mock asks to be waited for between the attempts."""

SPREAD_S = 1


def priority_queue(ground: Ground, facts: Facts, within_s: float) -> None:
    """Jobs are claimed by priority, and first in, first out inside one."""
    del within_s
    priorities = (90, 50, 10, 50, 0, 100)
    job_ids = [
        ground.submit(f"Number {n}.", priority=priority) for n, priority in enumerate(priorities)
    ]
    urgent = [job_ids[n] for n in (4, 2)]
    others = [job_ids[n] for n in (1, 3, 0, 5)]
    ceiling = 40
    claimed = ground.runtime.queue.claim(
        ClaimRequest(secrets.token_hex(8), len(job_ids), WINDOW_MS, ceiling=ceiling)
    )
    under = [attempt.job.id for attempt in claimed.attempts]
    facts.hold(
        under == urgent,
        f"a claim with the ceiling {ceiling} takes the two below it, the most urgent first",
        [ground.job(job_id).priority for job_id in under],
    )
    ground.crew(concurrency=1).pool.drain()
    ran = sorted(others, key=lambda job_id: _claimed_at(ground, job_id))
    facts.hold(
        ran == others,
        "one worker runs the others by priority, and equal ones in the order of their submit",
        [ground.job(job_id).priority for job_id in ran],
    )
    states = {ground.job(job_id).state for job_id in ran}
    facts.hold(states == {State.SUCCEEDED}, "all of them succeeded", states)


def _claimed_at(ground: Ground, job_id: str) -> int:
    """The number of the move by which a job was claimed; 0 where it was not."""
    view = ground.runtime.records.job(job_id)
    moves = view.history if view else ()
    return next((move.seq for move in moves if move.verb == "claim"), 0)


def retry(ground: Ground, facts: Facts, within_s: float) -> None:
    """A failure that may pass is tried again after its wait; one that can't is not."""
    passing = ground.submit(f"[[mock error=rate_limit times=1 retry_after={WAIT_S}]] {_nonce()}")
    hopeless = ground.submit(f"[[mock error=provider_4xx]] {_nonce()}")
    spent = ground.submit(f"[[mock error=timeout retry_after={WAIT_S}]] {_nonce()}", max_attempts=1)
    crew = ground.crew(concurrency=3)
    crew.pool.drain()
    job = ground.job(passing)
    facts.hold(
        (job.state, job.attempt, job.error_kind) == (State.QUEUED, 2, ErrorKind.RATE_LIMIT),
        "a failure that may pass puts the job back for its next attempt",
        f"{job.state}, attempt {job.attempt}, {job.error_kind}",
    )
    run_at_ms = job.run_at_ms or 0
    wait_ms = run_at_ms - job.updated_at_ms
    facts.hold(
        WAIT_S * 1000 <= wait_ms <= (WAIT_S + SPREAD_S) * 1000 + 10,
        f"it waits the {WAIT_S} s that the provider asked for, and at most {SPREAD_S} s more",
        f"{wait_ms} ms",
    )
    ended = [(ground.job(one).state, ground.verbs(one)) for one in (hopeless, spent)]
    facts.hold(
        ended == [(State.FAILED, ["submit", "claim", "fail"])] * 2,
        "a failure that can't pass, and one of the last attempt, end the job",
        ended,
    )

    def has_succeeded() -> bool:
        maintenance.promote(ground.runtime)
        crew.pool.drain()
        return ground.job(passing).state is State.SUCCEEDED

    wait_for(has_succeeded, within_s, "the second attempt succeeds")
    view = ground.runtime.records.job(passing)
    moves = view.history if view else ()
    again = [move.at_ms for move in moves if move.verb == "claim"][1:]
    facts.hold(
        [move.verb for move in moves] == ["submit", "claim", "retry", "claim", "succeed"]
        and again[0] >= run_at_ms,
        "the second attempt began when its time had come, and succeeded",
        [(move.verb, move.at_ms - run_at_ms) for move in moves],
    )


def _nonce() -> str:
    """The mock counts its failures by prompt."""
    return secrets.token_hex(8)
