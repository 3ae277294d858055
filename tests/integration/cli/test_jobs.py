"""Does an operator find, understand and steer every job? (A22, A25)"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.records import Records
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.factories import claim_one, new_id, new_job, response_for
from tests.support.stored_generations import (
    billed,
    call_of,
    generations_of,
    new_generation,
    open_to,
)

ReadJson = Callable[..., Any]


def ids(listed: list[dict[str, Any]]) -> list[str]:
    return [job["id"] for job in listed]


@pytest.mark.req("A22")
def test_jobs_of_all_organisations_are_listed_the_last_moved_first(
    invoke_json: ReadJson, invoke: Invoke, shell: Shell, submit: Submit, runtime: Runtime
) -> None:
    first, second = submit(), submit(org_id="umbrella")
    third = submit(priority=7)
    runtime.queue.cancel(first, "acme")

    listed = invoke_json("list-jobs")
    assert set(ids(listed)) == {first, second, third}
    assert ids(listed)[0] == first
    assert ids(invoke_json("list-jobs", "--org", "umbrella")) == [second]
    assert ids(invoke_json("list-jobs", "--state", "cancelled")) == [first]
    assert set(ids(invoke_json("list-jobs", "--state", "cancelled", "--state", "queued"))) == {
        first,
        second,
        third,
    }
    assert ids(invoke_json("list-jobs", "--limit", "1")) == [first]
    assert invoke_json("list-jobs", "--org", "nobody") == []
    table = invoke("list-jobs").stdout
    assert all(job_id in table for job_id in (first, second, third))
    narrow = shell("list-jobs", variables={"COLUMNS": "80"})
    assert narrow.returncode == 0, narrow.stderr
    assert all(job_id in narrow.stdout for job_id in (first, second, third))


@pytest.mark.req("A22")
def test_since_leaves_out_what_did_not_move_since(
    invoke_json: ReadJson, submit: Submit, redis: Redis
) -> None:
    old, new = submit(), submit()
    hour_ago_ms = int(redis.time()[0] * 1000) - 3_600_000
    # As if the old job had been submitted, and so moved, an hour ago.
    redis.hset(keys.JOB(old), mapping={"created_at": hour_ago_ms, "updated_at": hour_ago_ms})

    assert ids(invoke_json("list-jobs", "--since", "15m")) == [new]
    assert set(ids(invoke_json("list-jobs", "--since", "2h"))) == {old, new}
    assert invoke_json("list-jobs", "--since", "2999-01-01T00:00:00Z") == []


def test_a_filter_that_fits_few_of_many_jobs_finds_them_behind_several_pages(
    invoke_json: ReadJson, queue: Queue
) -> None:
    wanted = [queue.submit(new_job()).job_id for _ in range(3)]
    for job_id in wanted:
        queue.cancel(job_id, "acme")
    for _ in range(2100):
        queue.submit(new_job())

    assert set(ids(invoke_json("list-jobs", "--state", "cancelled"))) == set(wanted)


@pytest.mark.parametrize(
    "words", [("--state", "lost"), ("--since", "yesterday"), ("--limit", "0"), ("--limit", "x")]
)
def test_a_wrong_filter_is_a_usage_error(invoke: Invoke, words: tuple[str, str]) -> None:
    done = invoke("list-jobs", *words)
    assert done.exit_code == 2
    assert words[0] in done.stderr


@pytest.mark.req("A22", "A25")
def test_the_details_of_a_job_tell_its_whole_story(
    invoke_json: ReadJson, shell: Shell, queue: Queue, submit: Submit
) -> None:
    job_id = submit("Why is the sky blue?")
    attempt = claim_one(queue)
    queue.retry(job_id, attempt.token, ErrorKind.TIMEOUT, "no answer in 180 s", 0)
    attempt = claim_one(queue)
    response = response_for(attempt, text="Rayleigh scattering.")
    queue.succeed(job_id, attempt.token, response)
    new = new_id()
    queue.supersede(job_id, new, "acme", "ann")

    told = invoke_json("job-details", job_id)
    assert told["job"]["state"] == "superseded"
    assert told["job"]["outcome"] == "succeeded"
    assert told["job"]["superseded_by"] == new
    verbs = [move["verb"] for move in told["job"]["history"]]
    assert verbs == ["submit", "claim", "retry", "claim", "succeed", "supersede"]
    assert ids(told["prompt"]["jobs"]) == [job_id, new]
    assert told["prompt"]["text"] == "Why is the sky blue?"
    assert told["prompt"]["response"]["text"] == "Rayleigh scattering."
    assert told["ledger"][0]["usage"]["cost_usd_micros"] == 7
    assert told["audit"]
    assert told["audit"][-1]["job_id"] == job_id

    done = shell("job-details", job_id)
    assert done.returncode == 0, done.stderr
    for part in (job_id, new, "Why is the sky blue?", "Rayleigh", "timeout", "supersede", "ann"):
        assert part in done.stdout


@pytest.mark.req("B6", "B17", "A22")
def test_a_failed_generation_shows_its_code_and_its_passes(
    invoke: Invoke, redis: Redis, queue: Queue, submit: Submit
) -> None:
    open_to(redis, "acme")
    generation_id = generations_of(redis).submit(new_generation()).view.id
    attempt = claim_one(queue)
    queue.fail(
        generation_id,
        attempt.token,
        ErrorKind.PROVIDER_4XX,
        "declined",
        code=GenerationCode.MODEL_REFUSED,
        bill=billed(attempt.job, call_of(), call_of(pass_number=2)),
    )
    details = invoke("job-details", generation_id).stdout
    assert "provider_4xx (model_refused): declined" in details
    assert re.findall(r"attempt|pass|model", _columns(details)) == ["attempt", "pass", "model"]
    assert "provider_4xx (model_refused)" in invoke("list-jobs").stdout

    redis.delete(keys.GENERATION(generation_id))
    assert "provider_4xx: declined" in invoke("job-details", generation_id).stdout
    assert "model_refused" not in invoke("list-jobs").stdout


def test_a_ledger_without_passes_has_no_column_for_them(
    invoke: Invoke, queue: Queue, submit: Submit
) -> None:
    job_id = submit()
    attempt = claim_one(queue)
    queue.succeed(job_id, attempt.token, response_for(attempt))
    assert "pass" not in _columns(invoke("job-details", job_id).stdout)


def _columns(details: str) -> str:
    """The names of the columns of the ledger."""
    return details.partition("\nLedger\n")[2].splitlines()[0]


@pytest.mark.req("B10")
def test_a_prompt_whose_text_is_over_is_said_to_be_no_longer_kept(
    invoke: Invoke, redis: Redis, queue: Queue
) -> None:
    open_to(redis, "acme")
    new = new_generation(prompt_text="Say hello to Ada.")
    generations_of(redis).submit(new)
    assert "Prompt\nSay hello to Ada." in invoke("job-details", new.id).stdout
    redis.delete(keys.TEXT(new.prompt_id))
    details = invoke("job-details", new.id).stdout
    assert details.endswith("\nPrompt: no longer kept\n")


@pytest.mark.req("B9")
def test_a_generation_is_not_retried_but_submitted_again(
    invoke: Invoke, redis: Redis, queue: Queue
) -> None:
    open_to(redis, "acme")
    generation_id = generations_of(redis).submit(new_generation()).view.id
    queue.cancel(generation_id, "acme")
    done = invoke("retry-job", generation_id)
    assert done.exit_code == 1
    assert "submit it again with a new invocation_id, or after its record has ended" in done.stderr


@pytest.mark.req("X14")
def test_the_details_of_a_waiting_job_say_what_it_waits_on(
    invoke: Invoke, invoke_json: ReadJson, submit: Submit, redis: Redis
) -> None:
    submit()
    behind = submit()
    assert invoke_json("job-details", behind)["job"]["waiting_on"]["reason"] == "queue"
    assert "queue, 1 ahead in its lane" in invoke("job-details", behind).stdout
    later_ms = redis.time()[0] * 1000 + 60_000
    scheduled = submit(scheduled_for_ms=later_ms)
    assert "schedule, until" in invoke("job-details", scheduled).stdout


def test_an_id_in_upper_case_is_the_same_id(invoke: Invoke, submit: Submit) -> None:
    assert invoke("job-details", submit().upper()).exit_code == 0


def test_hostile_text_is_shown_and_not_obeyed(invoke: Invoke, queue: Queue, submit: Submit) -> None:
    job_id = submit("[bold]evil[/bold] \x1b[2J\x1b]0;pwned\x07 \u202e\nnext line")
    attempt = claim_one(queue)
    queue.fail(job_id, attempt.token, ErrorKind.PARSE, "bad \x1b[31manswer\r\n[red]x")

    for words in (("job-details", job_id), ("list-jobs",)):
        for option in ((), ("--json",)):
            printed = invoke(*words, *option).stdout
            assert printed.replace("\n", "").isprintable()
    printed = invoke("job-details", job_id).stdout
    assert r"[bold]evil[/bold] \x1b[2J\x1b]0;pwned\x07 \u202e" in printed
    assert "\nnext line" in printed
    assert r"bad \x1b[31manswer\r\n[red]x" in printed


@pytest.mark.parametrize("command", ["job-details", "cancel-job", "retry-job"])
@pytest.mark.parametrize("job_id", ["0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11", "x\x1b[31m", "{gq}:"])
def test_an_unknown_id_is_status_1_and_says_so(invoke: Invoke, command: str, job_id: str) -> None:
    done = invoke(command, job_id)
    assert done.exit_code == 1
    assert done.stderr.startswith("There is no job ")
    assert done.stderr.strip().isprintable()
    assert done.stdout == ""


@pytest.mark.case("API-03")
def test_an_archived_job_is_told_from_one_that_never_was(
    invoke: Invoke, runtime: Runtime, submit: Submit
) -> None:
    job_id = submit()
    runtime.queue.cancel(job_id, "acme")
    runtime.upkeep.archive([job_id])

    done = invoke("job-details", job_id)
    assert done.exit_code == 1
    assert f"Job {job_id} of org acme was archived; it had ended cancelled at 20" in done.stderr


@pytest.mark.req("A17", "A22")
def test_a_queued_job_is_cancelled_and_the_reason_kept(
    shell: Shell, submit: Submit, records: Records
) -> None:
    job_id = submit()
    done = shell("cancel-job", job_id, "--reason", "wrong model | twice")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Cancelled job {job_id}, which was queued.\n"
    view = records.job(job_id)
    assert view is not None
    assert view.job.state is State.CANCELLED
    assert view.history[-1].reason == "wrong model | twice"


@pytest.mark.req("A17")
@pytest.mark.case("RQ-09")
def test_a_running_job_is_cancelled_and_its_late_answer_dropped(
    invoke_json: ReadJson, submit: Submit, queue: Queue, records: Records
) -> None:
    job_id = submit()
    attempt = claim_one(queue)
    assert invoke_json("cancel-job", job_id)["cancelled_now"] is True
    assert queue.succeed(job_id, attempt.token, response_for(attempt)).answer != "OK"
    view = records.job(job_id)
    assert view is not None
    assert (view.job.state, view.job.error_kind) == (State.CANCELLED, None)


@pytest.mark.req("A17")
def test_cancel_of_an_ended_job_changes_nothing_and_is_no_error(
    invoke: Invoke, submit: Submit, queue: Queue, records: Records
) -> None:
    job_id = submit()
    attempt = claim_one(queue)
    queue.succeed(job_id, attempt.token, response_for(attempt))
    before = records.job(job_id)
    done = invoke("cancel-job", job_id)
    assert done.exit_code == 0
    assert f"Job {job_id} had ended already: it is succeeded." in done.stdout
    assert records.job(job_id) == before
    again = invoke("cancel-job", submit())
    assert again.exit_code == 0


def test_a_reason_with_a_line_feed_is_a_usage_error(invoke: Invoke, submit: Submit) -> None:
    assert invoke("cancel-job", submit(), "--reason", "a\nb").exit_code == 2


@pytest.mark.req("A16", "A22")
@pytest.mark.case("LEASE-19")
def test_a_retry_prints_the_new_job_which_starts_over_and_says_who_did_it(
    shell: Shell, submit: Submit, queue: Queue, records: Records
) -> None:
    job_id = submit(max_attempts=1)
    attempt = claim_one(queue)
    queue.fail(job_id, attempt.token, ErrorKind.STUCK, "the last attempt stopped")

    done = shell("retry-job", job_id, "--user", "ops.ann")
    assert done.returncode == 0, done.stderr
    new = records.job(done.stdout.strip())
    assert new is not None
    assert (new.job.state, new.job.attempt, new.job.created_by) == (State.QUEUED, 1, "ops.ann")
    assert new.job.supersedes == job_id
    old = records.job(job_id)
    assert old is not None
    assert (old.job.state, old.job.outcome) == (State.SUPERSEDED, State.FAILED)


@pytest.mark.req("A16")
def test_a_retry_of_a_superseded_or_live_job_is_refused_with_the_way_on(
    invoke: Invoke, invoke_json: ReadJson, submit: Submit, runtime: Runtime
) -> None:
    job_id = submit()
    live = invoke("retry-job", job_id)
    assert live.exit_code == 1
    assert "has not ended: it is queued" in live.stderr
    runtime.queue.cancel(job_id, "acme")
    made = invoke_json("retry-job", job_id)
    assert made["created_by"] == "operator"
    again = invoke("retry-job", job_id)
    assert again.exit_code == 1
    assert f"superseded by {made['job_id']}" in again.stderr
    assert again.stdout == ""


def test_a_retry_wakes_a_worker(
    invoke: Invoke, submit: Submit, runtime: Runtime, redis: Redis
) -> None:
    job_id = submit()
    runtime.queue.cancel(job_id, "acme")
    redis.delete("rq:queue:genqueue")
    invoke("retry-job", job_id)
    assert redis.llen("rq:queue:genqueue") == 1


def test_a_user_that_can_be_none_is_a_usage_error(invoke: Invoke, submit: Submit) -> None:
    assert invoke("retry-job", submit(), "--user", "a|b").exit_code == 2


@pytest.mark.req("A22")
def test_run_worker_once_from_the_shell_runs_a_batch_and_says_how_many(
    shell: Shell, submit: Submit, records: Records
) -> None:
    job_ids = [submit(priority=n) for n in (10, 20, 90)]
    done = shell("run-worker", "--once", "--batch-size", "5", "--priority-ceiling", "40", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"attempts": 2}
    found = [view.job.state for view in map(records.job, job_ids) if view]
    assert found == [State.SUCCEEDED, State.SUCCEEDED, State.QUEUED]
