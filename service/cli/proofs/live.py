"""Does the system that is up run work? Proven with the workers that are up."""

from __future__ import annotations

from rq import Worker
from rq.suspension import is_suspended

from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store.records import JobView
from service.cli.proofs.facts import Facts, ProofBrokenError, wait_for
from service.cli.proofs.grounds import Ground

PRIORITY = 5
TEXT = "[[mock delay=0.2]] This prompt proves that work is done."


def refuse_idle(runtime: Runtime) -> None:
    """Raise ProofBrokenError where nobody would run a job: nothing is stored then."""
    count = Worker.count(connection=runtime.rq_redis)
    if not count:
        raise ProofBrokenError("no worker is up: start `genqueue worker`")
    if is_suspended(runtime.rq_redis):
        raise ProofBrokenError("RQ is suspended: see `rq resume`")


def async_execution(ground: Ground, facts: Facts, within_s: float) -> None:
    """A prompt that is stored is run by a worker that is up, and its end is written whole."""
    refuse_idle(ground.runtime)
    job_id = ground.submit(TEXT, is_announced=True, priority=PRIORITY)
    view = wait_for(
        lambda: _ended(ground, job_id), within_s, f"a worker that is up ends job {job_id}"
    )
    job = view.job
    verbs = [move.verb for move in view.history]
    facts.hold(
        job.state is State.SUCCEEDED and verbs == ["submit", "claim", "succeed"],
        "the job went queued, running, succeeded",
        f"{job.state} by {', '.join(verbs)}, {job.error_kind}",
    )
    stamps = (job.created_at_ms, job.claimed_at_ms or 0, job.finished_at_ms or 0)
    facts.hold(list(stamps) == sorted(stamps), "it was claimed, then finished", stamps)
    _hold_written(ground, facts, view)
    events = ground.runtime.events.read({ground.org_id: 0}, block_ms=10).get(ground.org_id, [])
    facts.hold(
        [event.seq for event in events] == [move.seq for move in view.history],
        "each move was announced as one event, in order",
        [event.verb for event in events],
    )


def _ended(ground: Ground, job_id: str) -> JobView | None:
    view = ground.runtime.records.job(job_id)
    return view if view is not None and view.job.is_terminal else None


def _hold_written(ground: Ground, facts: Facts, view: JobView) -> None:
    prompt = ground.runtime.records.prompt(view.job.prompt_id)
    response = prompt.response if prompt else None
    edges = [(e.source_id, e.type, e.target_id) for e in prompt.edges] if prompt else []
    facts.hold(
        bool(response and response.text and response.id == view.job.response_id),
        "the response is stored under the id that the job names",
        response,
    )
    facts.hold(
        edges == [(view.job.prompt_id, "flows-to", view.job.response_id)],
        "the prompt flows to that response",
        edges,
    )
    rows = [(row.job_id, row.attempt) for row in prompt.ledger] if prompt else []
    facts.hold(rows == [(view.job.id, 1)], "one call is in the ledger", rows)
