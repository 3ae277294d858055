"""Is work of the dead taken back, that of the living not, and nothing finished twice?

Proven on scratch ground."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from jobs.domain.entities import Response, Usage, response_id
from jobs.domain.errors import ErrorKind
from jobs.domain.job import Attempt
from jobs.domain.states import Answer, State
from jobs.store.answers import ClaimRequest, Reclaimed
from service.cli.proofs.facts import Facts, ProofBrokenError, wait_for
from service.cli.proofs.grounds import Ground

SWEEP_INTERVAL_MS: Final = 1000
CEILING_MS: Final = 900_000
LONG_MS: Final = 60_000
SHORT_MS: Final = 300
CALL_S: Final = 6
"""Longer than a lease of the scratch ground, which is 4 s: only a heartbeat carries it over."""

CLAIMERS: Final = 8
RACED: Final = 300
FINISHED: Final = 40


def heartbeat(ground: Ground, facts: Facts, within_s: float) -> None:
    """A worker that stopped renewing loses its jobs to the sweep; one that renews does not."""
    _sweep(ground)
    lives = ground.submit(f"[[mock delay={CALL_S}]] A long call.")
    crew = ground.crew(concurrency=1)
    runner = threading.Thread(target=crew.pool.drain, daemon=True)
    runner.start()
    wait_for(lambda: ground.job(lives).state is State.RUNNING, within_s, "the long call runs")
    dies, last = ground.submit("Crash."), ground.submit("Crash.", max_attempts=1)
    dead = _claim(ground, 2, SHORT_MS)
    facts.hold(
        {a.job.id for a in dead} == {dies, last}, "a worker that will die holds two jobs", dead
    )

    def swept() -> bool:
        _sweep(ground)
        return State.RUNNING not in (ground.job(dies).state, ground.job(last).state)

    wait_for(swept, within_s, "the sweep takes back what the dead worker held")
    job, move = ground.job(dies), _last_reason(ground, dies)
    facts.hold(
        (job.state, job.attempt, move) == (State.QUEUED, 2, "worker_crash"),
        "its job is queued again, as the next attempt, and the history says worker_crash",
        f"{job.state}, attempt {job.attempt}, {move}",
    )
    job = ground.job(last)
    facts.hold(
        (job.state, job.error_kind) == (State.FAILED, ErrorKind.STUCK),
        "a job without attempts left fails as stuck",
        f"{job.state}, {job.error_kind}",
    )
    while runner.is_alive():
        _sweep(ground)
        runner.join(0.2)
    job = ground.job(lives)
    facts.hold(
        (job.state, job.attempt) == (State.SUCCEEDED, 1),
        f"a call of {CALL_S} s outlives its lease of 4 s, since its worker renewed it",
        f"{job.state}, attempt {job.attempt}, {ground.verbs(lives)}",
    )


def concurrent_safety(ground: Ground, facts: Facts, within_s: float) -> None:
    """Of many claims of a job one wins; of two workers with one job, the last claim's writes
    count and the other's do not."""
    job_ids = [ground.submit("One of many.") for _ in range(RACED)]
    claims = _race_claims(ground, within_s)
    twice = [job_id for job_id, count in claims.items() if count > 1]
    facts.hold(
        set(claims) == set(job_ids) and not twice,
        f"{CLAIMERS} claimers took {RACED} jobs, each once",
        f"{len(claims)} of {len(job_ids)} jobs, {len(twice)} of them more than once",
    )
    _sweep(ground)
    for _ in range(FINISHED):
        ground.submit("Claimed twice.")
    stale = _claim(ground, FINISHED, 1)
    requeued = 0

    def all_requeued() -> bool:
        nonlocal requeued
        requeued += _sweep(ground).requeued
        return requeued >= FINISHED

    wait_for(all_requeued, within_s, "the sweep takes back the first claims")
    fresh = {a.job.id: a for a in _claim(ground, FINISHED, LONG_MS)}
    pairs = [(old, fresh[old.job.id]) for old in stale if old.job.id in fresh]
    facts.hold(len(pairs) == FINISHED, "two workers believe to hold each of these jobs", len(pairs))
    words = [_race_finish(ground, old, new) for old, new in pairs]
    facts.hold(
        all(old is not Answer.OK and new is Answer.OK for old, new in words),
        f"of {FINISHED} races to finish, the worker with the lease won every one",
        Counter(f"stale {old}, fresh {new}" for old, new in words),
    )
    wrong = [new.job.id for _, new in pairs if not _is_whole(ground, new)]
    facts.hold(
        not wrong, "each has one response, one ledger row and one end: the winner's", len(wrong)
    )


def _sweep(ground: Ground) -> Reclaimed:
    return ground.runtime.queue.reclaim(
        window_ms=LONG_MS, interval_ms=SWEEP_INTERVAL_MS, ceiling_ms=CEILING_MS
    )


def _claim(ground: Ground, count: int, window_ms: int) -> Sequence[Attempt]:
    request = ClaimRequest(secrets.token_hex(8), count, window_ms)
    return ground.runtime.queue.claim(request).attempts


def _last_reason(ground: Ground, job_id: str) -> str:
    view = ground.runtime.records.job(job_id)
    return view.history[-1].reason if view else ""


def _race_claims(ground: Ground, within_s: float) -> Counter[str]:
    """How often each job was claimed by claimers that began at the same instant."""
    begin, claims, lock = threading.Barrier(CLAIMERS), Counter[str](), threading.Lock()
    until_s = time.monotonic() + within_s

    def claim_all() -> None:
        begin.wait()
        while time.monotonic() < until_s and claims.total() < 2 * RACED:
            taken = [attempt.job.id for attempt in _claim(ground, 3, LONG_MS)]
            if not taken:
                return
            with lock:
                claims.update(taken)

    _together([claim_all] * CLAIMERS)
    return claims


def _race_finish(ground: Ground, old: Attempt, new: Attempt) -> tuple[Answer, Answer]:
    """What two workers are answered that finish the same job at the same instant."""
    begin, words = threading.Barrier(2), dict[str, Answer]()

    def finish(attempt: Attempt) -> Callable[[], None]:
        def work() -> None:
            begin.wait()
            response = _response(attempt)
            words[attempt.token] = ground.runtime.queue.succeed(
                attempt.job.id, attempt.token, response
            ).answer

        return work

    _together([finish(old), finish(new)])
    if len(words) != 2:
        raise ProofBrokenError(f"a worker that finished job {old.job.id} got no answer")
    return words[old.token], words[new.token]


def _together(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _response(attempt: Attempt) -> Response:
    """A response that names the lease it was made under."""
    job = attempt.job
    return Response(
        id=response_id(job.prompt_id, attempt.token, job.id, job.attempt),
        text=attempt.token,
        provider="proof",
        model="proof",
        provider_request_id=attempt.token,
        finish_reason="stop",
        usage=Usage(1, 1),
        cost_usd_micros=0,
        source_refs=(job.prompt_id,),
    )


def _is_whole(ground: Ground, winner: Attempt) -> bool:
    prompt = ground.runtime.records.prompt(winner.job.prompt_id)
    if prompt is None or prompt.response is None:
        return False
    ends = ground.verbs(winner.job.id).count("succeed")
    return (
        prompt.response.text == winner.token
        and len(prompt.edges) == 1
        and len(prompt.ledger) == 1
        and ends == 1
        and ground.job(winner.job.id).response_id == prompt.response.id
    )
