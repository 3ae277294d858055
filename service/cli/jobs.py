"""How does an operator find and steer jobs from a shell? All organisations at once. (A22)"""

from __future__ import annotations

import sys
import uuid
from typing import Final, NoReturn

import click
from rich.text import Text

from jobs.domain.job import Job, Kind
from jobs.domain.request_ids import job_id_of, request_id_of
from jobs.domain.states import Answer, State
from jobs.runtime import Runtime, build
from jobs.store.credentials import NAME_PATTERN
from jobs.store.dossiers import Dossiers
from jobs.store.listing import Filter
from jobs.store.records import JobView
from jobs.store.ticks import Ticks
from jobs.store.turns import RequestStatus
from service.cli.moments import MOMENT, Moment, duration
from service.cli.output import as_json_option, print_json, print_table, shown, state_cell
from service.instants import rfc3339
from service.job_views import show_jobs
from service.schemas.fields import as_entity_id
from service.schemas.jobs import JobSchema

_AGAIN: Final = {
    Kind.GENERATION: (
        "submit it again with a new invocation_id, or after its record has ended (5 min)."
    ),
    Kind.STEP: "run the workflow again.",
    Kind.CHAT: "send the message again.",
    Kind.ESCALATION: "send the message of its request again.",
}
"""What to do in place of a retry; a prompt is retried."""

PAGES_MAX: Final = 100
"""Pages of one org that a filter looks through: some 100,000 jobs."""


@click.command("list-jobs")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only jobs in this state; may be repeated.",
)
@click.option("--org", help="Only jobs of this organisation.  [default: all]")
@click.option("--since", type=MOMENT, help="Only jobs that moved since then: RFC 3339, or 15m, 2h.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most jobs."
)
@as_json_option
def list_jobs(
    states: tuple[str, ...], org: str | None, since: Moment | None, limit: int, as_json: bool
) -> None:
    """List jobs, the one that moved last first.

    \b
    Example: genqueue list-jobs --state failed --since 2h
    """
    runtime = build()
    now_ms = Ticks(runtime.redis).now_ms()
    since_ms = None if since is None else since.resolve(now_ms)
    wanted = frozenset(State(state) for state in states)
    jobs: list[Job] = []
    for name in [org] if org else runtime.stats.by_org():
        found, is_whole = _jobs_of(runtime, name, wanted, since_ms, limit)
        jobs += found
        if not is_whole:
            click.echo(f"Of {shown(name)} only the jobs that moved last were looked at.", err=True)
    # Each org's come newest first: a stable sort keeps that within a millisecond.
    jobs = sorted(jobs, key=lambda job: -job.updated_at_ms)[:limit]
    if as_json:
        print_json([JobSchema().dump(one) for one in show_jobs(runtime.records, jobs)])
        return
    codes = _codes(runtime, jobs)
    print_table(
        ("job id", "org", "kind", "state", "prio", "attempt", "moved", "model", "error"),
        [_row(job, now_ms, codes.get(job.id, "")) for job in jobs],
        empty="There are no such jobs.",
    )


def _jobs_of(
    runtime: Runtime, org: str, states: frozenset[State], since_ms: int | None, limit: int
) -> tuple[list[Job], bool]:
    """Up to `limit` jobs of an org, and whether all of its jobs were looked at for them."""
    since_seq = 0 if since_ms is None else runtime.listing.seq_at(org, since_ms)
    wanted = Filter(states=states, since_seq=since_seq)
    jobs: list[Job] = []
    before: int | None = None
    for _ in range(PAGES_MAX):
        page = runtime.listing.jobs(org, wanted, limit - len(jobs), before)
        jobs += page.jobs
        before = page.next_before
        if before is None or len(jobs) >= limit:
            return jobs, True
    return jobs, False


def _codes(runtime: Runtime, jobs: list[Job]) -> dict[str, str]:
    ids = [job.id for job in jobs if job.kind is Kind.GENERATION and job.error_kind]
    return runtime.generations.codes_of(ids)


def _row(job: Job, now_ms: int, code: str) -> tuple[str | Text, ...]:
    return (
        job.id,
        job.org_id,
        job.kind.value,
        state_cell(job.state),
        str(job.priority),
        f"{job.attempt}/{job.max_attempts}",
        f"{duration(max(0, now_ms - job.updated_at_ms))} ago",
        job.target.partition(":")[2],
        error_named(job, code),
    )


def error_named(job: Job, code: str) -> str:
    """The kind of a job's error, and in brackets the code that a generation's author reads."""
    kind = str(job.error_kind or "")
    return f"{kind} ({code})" if code else kind


@click.command("job-details")
@click.argument("job_id")
@as_json_option
def job_details(job_id: str, as_json: bool) -> None:
    """Show all that is known of a job: its record, what it waits on, its history, all jobs of
    its prompt, what was used and who decided; how far its chat request is. JOB_ID may be the id of
    a request, req_…: its first job.

    \b
    Example: genqueue job-details 0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11
    """
    # Imported late: the schemas of prompts cost a third of a second.
    from service.cli.details import print_details  # noqa: PLC0415  # see above

    runtime = build()
    print_details(runtime, find_job(runtime, job_id), as_json=as_json)


@click.command("cancel-job")
@click.argument("job_id")
@click.option("--reason", default="by an operator", show_default=True, help="Kept in the history.")
@as_json_option
def cancel_job(job_id: str, reason: str, as_json: bool) -> None:
    """End a queued or running job now; the call to the provider is broken off within 2 s.

    A job that has ended already stays as it is, which is no error. JOB_ID may be the id of a chat
    request, req_…: that ends, whichever attempt of it is under way.

    \b
    Example: genqueue cancel-job 0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11 --reason "wrong model"
    """
    if not reason.isprintable():
        raise click.UsageError("--reason must be printable, on one line.")
    runtime = build()
    job = find_job(runtime, job_id).job
    is_request = as_request_job_id(job_id) is not None
    before = _standing(runtime, job.id, is_request=is_request)
    settled = runtime.queue.cancel(job.id, job.org_id, reason, is_request=is_request)
    if settled.answer is Answer.MISSING:
        _refuse_missing(runtime, job.id)
    if settled.ticket_wanted:
        runtime.tickets.issue()
    if settled.delivery_wanted:
        runtime.delivery_tickets.issue()
    is_cancelled = settled.answer is Answer.OK
    after = State.CANCELLED if is_cancelled else _standing(runtime, job.id, is_request=is_request)
    did_it = is_cancelled and before != State.CANCELLED
    request_id = request_named(job)
    name = f"request {request_id}" if is_request else f"job {job.id}"
    if as_json:
        told = {"job_id": job.id, "request_id": request_id, "state": after.value}
        print_json(told | {"cancelled_now": did_it})
    elif did_it:
        click.echo(f"Cancelled {name}, which was {before}.")
    else:
        click.echo(f"{name.capitalize()} had ended already: it is {after}.")
        if not is_request and request_id is not None and _goes_on(runtime, job):
            click.echo(f"Its request goes on: genqueue cancel-job {request_id}")


def _standing(runtime: Runtime, job_id: str, *, is_request: bool) -> State | RequestStatus:
    """How a job stands, or the request whose first job it is."""
    request = runtime.turns.read(job_id) if is_request else None
    return request.status if request is not None else find_job(runtime, job_id).job.state


def _goes_on(runtime: Runtime, job: Job) -> bool:
    request = runtime.turns.read(job.root_id)
    return request is not None and not request.has_ended


@click.command("retry-job")
@click.argument("job_id")
@click.option("--user", default="operator", show_default=True, help="Who is recorded to do it.")
@as_json_option
def retry_job(job_id: str, user: str, as_json: bool) -> None:
    """Run the prompt of an ended job again, as a new job with all its attempts; prints its id.

    The old job keeps how it ended, and becomes superseded.

    \b
    Example: genqueue retry-job 0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11 --user ann
    """
    check_name("--user", user)
    runtime = build()
    job = find_job(runtime, job_id).job
    new_id = str(uuid.uuid4())
    done = runtime.queue.supersede(job.id, new_id, job.org_id, user)
    if done.answer is Answer.MISSING:
        _refuse_missing(runtime, job.id)
    if done.answer is Answer.FINAL:
        again = _AGAIN.get(job.kind, "submit it again.")
        _refuse(f"Job {job.id} is of kind {job.kind}, which is not retried: {again}")
    if done.answer is not Answer.OK:
        if done.superseded_by:
            _refuse(f"Job {job.id} was superseded by {done.superseded_by}: retry that one.")
        _refuse(f"Job {job.id} has not ended: it is {find_job(runtime, job.id).job.state}.")
    if done.ticket_wanted:
        runtime.tickets.issue()
    if as_json:
        print_json({"job_id": new_id, "supersedes": job.id, "created_by": user})
    else:
        click.echo(new_id)


def find_job(runtime: Runtime, named: str) -> JobView:
    """The job of any org, by its id or that of the request it is the first job of; ends the
    process with status 1 where there is none."""
    first_id = as_request_job_id(named)
    job_id = first_id or as_entity_id(named) or named
    view = runtime.records.job(job_id)
    if view is None:
        _refuse_missing(runtime, job_id)
    if first_id is not None and view.job.kind is not Kind.CHAT:
        _refuse(f"There is no request {shown(named)}; see genqueue list-jobs.")
    return view


def as_request_job_id(named: str) -> str | None:
    """The first job of the request that is named by its id, req_…; None for any other text."""
    return job_id_of(named.lower())


def request_named(job: Job) -> str | None:
    """The id of the chat request that a job is an attempt of; None for jobs of other kinds."""
    is_attempt = job.kind in {Kind.CHAT, Kind.ESCALATION}
    return request_id_of(job.root_id) if is_attempt else None


def check_name(option: str, name: str) -> None:
    """End with a usage error unless `name` can be the name of an org or a user."""
    if not NAME_PATTERN.fullmatch(name):
        raise click.UsageError(f"{option} must be 1 to 32 letters, digits, '_', '.' or '-'.")


def _refuse_missing(runtime: Runtime, job_id: str) -> NoReturn:
    remains = Dossiers(runtime.redis).remains(job_id)
    if remains is None:
        _refuse(f"There is no job {shown(job_id)}; see genqueue list-jobs.")
    _refuse(
        f"Job {job_id} of org {remains.org_id} was archived;"
        f" it had ended {remains.state} at {rfc3339(remains.finished_at_ms)}."
    )


def _refuse(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(1)
