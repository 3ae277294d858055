"""Is nothing removed that was not written? (A24)"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.archive_file import ArchiveFile, ArchiveFileError, archive
from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.dossiers import Dossiers
from jobs.store.queue import Queue
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.archive_lines import lines_of, texts_stored, texts_written
from tests.support.factories import claim_one, new_id, response_for
from tests.support.invariants import problems_of
from tests.support.processes import ROOT

ReadJson = Callable[..., Any]
DAY_MS = 86_400_000

KILLED_BEFORE_REMOVAL = """
import os, signal, sys
from pathlib import Path
from jobs.archive_file import ArchiveFile, archive
from jobs.runtime import build
from jobs.store.dossiers import Dossiers

class Killed:
    def archive(self, job_ids):
        os.kill(os.getpid(), signal.SIGKILL)

runtime = build()
with ArchiveFile(Path(sys.argv[1])) as file:
    archive(file, runtime.records, Dossiers(runtime.redis), Killed(), before_ms=2**50)
"""


@pytest.fixture
def ended(submit: Submit, queue: Queue) -> Callable[..., str]:
    """A job that has ended well, and how its prompt and response read."""

    def end(text: str = "Why is the sky blue?", answer: str = "Scattering.", **more: Any) -> str:
        job_id = submit(text, **more)
        attempt = claim_one(queue)
        queue.succeed(job_id, attempt.token, response_for(attempt, text=answer))
        return job_id

    return end


def age(redis: Redis, job_id: str, days: int) -> None:
    """As if the job had ended so long ago."""
    redis.zadd(keys.ENDED(), {job_id: int(redis.time()[0]) * 1000 - days * DAY_MS})


@pytest.mark.req("A24")
def test_all_that_is_removed_stands_in_the_file(
    shell: Shell,
    ended: Callable[..., str],
    queue: Queue,
    submit: Submit,
    redis: Redis,
    tmp_path: Path,
) -> None:
    options = {"model": "mock-1", "temperature": 0.5, "system": "Be brief."}
    first = ended(
        "Line one\nline two \u2028 “quoted” \x1b[31m 💥",
        "Grüße",
        execution_options=options,
        metadata={"order": {"id": 4711, "tags": ["a", "b"]}},
        idempotency_key="once",
        payload_hash="0" * 64,
    )
    retried = new_id()
    queue.supersede(first, retried, "acme", "ann")
    attempt = claim_one(queue)
    queue.retry(retried, attempt.token, ErrorKind.RATE_LIMIT, "slow | down", 0)
    attempt = claim_one(queue)
    queue.succeed(retried, attempt.token, response_for(attempt, text="Again."))
    failed = submit()
    queue.fail(failed, claim_one(queue).token, ErrorKind.PARSE, "no JSON")
    cancelled = submit(org_id="umbrella")
    queue.cancel(cancelled, "umbrella", "a reason")
    live = submit()
    before = texts_stored(redis)

    file = tmp_path / "archive.jsonl"
    done = shell("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert "Archived 4 jobs that ended before 20" in done.stdout

    written = lines_of(file)
    assert {line["job_id"] for line in written} == {first, retried, failed, cancelled}
    assert file.stat().st_mode & 0o777 == 0o600
    kept = texts_stored(redis)
    lost = before - kept - set.union(*map(texts_written, written))
    assert lost == set()
    assert redis.hget(keys.JOB(live), "state") == State.QUEUED
    assert [redis.exists(keys.JOB(job_id)) for job_id in (first, retried, failed)] == [0, 0, 0]
    line = next(line for line in written if line["job_id"] == retried)
    assert line["prompt"]["text"].startswith("Line one\nline two")
    assert [one["text"] for one in line["responses"]] == ["Grüße", "Again."]
    assert [row["verb"] for row in line["history"]] == ["claim", "retry", "claim", "succeed"]
    assert line["job"]["execution_options"] == options
    assert line["job"]["priority"] == 50
    assert line["ledger"][0]["usage"]["cost_usd_micros"] == 7
    assert problems_of(redis) == []


@pytest.mark.req("A24")
def test_only_what_ended_more_than_30_days_ago_goes_by_default(
    invoke: Invoke,
    invoke_json: ReadJson,
    ended: Callable[..., str],
    redis: Redis,
    tmp_path: Path,
) -> None:
    old, young = ended(), ended()
    age(redis, old, 31)
    age(redis, young, 29)
    file = tmp_path / "archive.jsonl"

    dry = invoke("archive-old-jobs", "--file", str(file), "--dry-run")
    assert "Would archive 1 jobs" in dry.stdout
    assert not file.exists()
    assert redis.exists(keys.JOB(old))
    assert invoke_json("archive-old-jobs", "--file", str(file))["removed"] == 1
    assert [line["job_id"] for line in lines_of(file)] == [old]
    assert redis.exists(keys.JOB(young))


@pytest.mark.req("A24")
def test_many_batches_go_in_one_run_and_a_second_run_appends(
    invoke_json: ReadJson, queue: Queue, submit: Submit, redis: Redis, tmp_path: Path
) -> None:
    def cancelled(count: int) -> set[str]:
        job_ids = {submit() for _ in range(count)}
        for job_id in job_ids:
            queue.cancel(job_id, "acme")
        return job_ids

    file = tmp_path / "archive.jsonl"
    words = ("archive-old-jobs", "--before", "0s", "--file", str(file))
    first = cancelled(250)
    assert invoke_json(*words)["removed"] == 250
    second = cancelled(3)
    assert invoke_json(*words)["removed"] == 3
    assert [invoke_json(*words)[name] for name in ("removed", "repeated", "left")] == [0, 0, 0]
    written = [line["job_id"] for line in lines_of(file)]
    assert len(written) == 253
    assert set(written) == first | second
    assert redis.zcard(keys.ENDED()) == 0


@pytest.mark.req("A24")
def test_kill_9_between_writing_and_removing_loses_nothing_and_the_next_run_says_so(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    job_ids = {ended() for _ in range(3)}
    file = tmp_path / "archive.jsonl"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_REMOVAL, str(file)],
        env={**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    assert {line["job_id"] for line in lines_of(file)} == job_ids
    assert all(redis.exists(keys.JOB(job_id)) for job_id in job_ids)

    done = invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.exit_code == 0
    assert "Archived 3 jobs" in done.stdout
    assert "3 of them stand in it twice" in done.stdout
    assert len(lines_of(file)) == 6
    assert not any(redis.exists(keys.JOB(job_id)) for job_id in job_ids)


@pytest.mark.req("A24")
def test_a_line_that_a_killed_run_did_not_finish_is_cut_off(
    invoke: Invoke, ended: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "archive.jsonl"
    first = ended()
    invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:100])
    second = ended()
    done = invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.exit_code == 0
    assert "Cut off 100 bytes of a line that was never finished." in done.stdout
    assert [line["job_id"] for line in lines_of(file)] == [first, second]


@pytest.mark.req("A24")
def test_a_full_disk_removes_nothing_that_is_not_in_the_file(
    shell: Shell, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    job_ids = [ended("x" * 400) for _ in range(150)]
    file = tmp_path / "archive.jsonl"
    most_bytes = 320_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    done = shell("archive-old-jobs", "--before", "0s", "--file", str(file), preexec_fn=limit)
    assert done.returncode == 1
    assert "nothing was removed that is not in the file" in done.stderr
    written = {line["job_id"] for line in lines_of(file)}
    stored = {job_id for job_id in job_ids if redis.exists(keys.JOB(job_id))}
    assert len(written) == 100
    assert written | stored == set(job_ids)
    assert written & stored == set()
    again = shell("archive-old-jobs", "--before", "0s", "--file", str(file), "--json")
    assert json.loads(again.stdout)["removed"] == 50
    assert {line["job_id"] for line in lines_of(file)} == set(job_ids)


@pytest.mark.req("A24")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/dev/full", "is no regular file"),
        ("/dev/null", "is no regular file"),
        ("/no/such/folder/archive.jsonl", "no such file or directory"),
        ("/proc/version", ""),
    ],
)
def test_a_file_that_can_not_keep_jobs_is_refused_before_anything_is_removed(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, path: str, reason: str
) -> None:
    job_id = ended()
    done = invoke("archive-old-jobs", "--before", "0s", "--file", path)
    assert done.exit_code in (1, 2)
    assert reason in done.stderr
    assert redis.exists(keys.JOB(job_id))


def test_a_pipe_is_refused_and_not_waited_for(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    job_id = ended()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = invoke("archive-old-jobs", "--before", "0s", "--file", str(pipe))
    assert done.exit_code == 1
    assert "is no regular file" in done.stderr
    assert redis.exists(keys.JOB(job_id))


def test_a_file_of_somebody_else_is_not_appended_to(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    job_id = ended()
    file = tmp_path / "notes.txt"
    file.write_text("buy milk")
    done = invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.exit_code == 1
    assert "is not an archive of genqueue" in done.stderr
    assert file.read_text() == "buy milk"
    assert redis.exists(keys.JOB(job_id))


def test_two_runs_do_not_write_to_one_file_at_once(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    job_id = ended()
    file = tmp_path / "archive.jsonl"
    with ArchiveFile(file):
        done = invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.exit_code == 1
    assert "another run writes to it" in done.stderr
    assert redis.exists(keys.JOB(job_id))


def test_the_folder_of_a_file_may_be_named_or_not(
    shell: Shell, ended: Callable[..., str], tmp_path: Path
) -> None:
    ended()
    variables = {"PYTHONPATH": str(ROOT)}
    done = shell("archive-old-jobs", "--before", "0s", cwd=tmp_path, variables=variables)
    assert done.returncode == 0, done.stderr
    assert len(lines_of(tmp_path / "genqueue-archive.jsonl")) == 1


class RetriedMeanwhile(Dossiers):
    """A store in which a job is retried after it was read and before it is removed."""

    def __init__(self, redis: Redis, queue: Queue, job_id: str) -> None:
        super().__init__(redis)
        self.new_id = new_id()
        self._queue = queue
        self._job_id = job_id

    def unchanged(self, dossiers: Any) -> list[str]:
        self._queue.supersede(self._job_id, self.new_id, "acme", "ann")
        return super().unchanged(dossiers)


@pytest.mark.req("A24")
def test_a_job_that_moves_while_it_is_archived_is_written_again_before_it_goes(
    runtime: Runtime, ended: Callable[..., str], queue: Queue, redis: Redis, tmp_path: Path
) -> None:
    job_id = ended()
    dossiers = RetriedMeanwhile(redis, queue, job_id)
    path = tmp_path / "archive.jsonl"
    with ArchiveFile(path) as file:
        done = archive(file, runtime.records, dossiers, runtime.upkeep, before_ms=2**50)
    assert (done.removed, done.left) == (1, 0)
    states = [(line["job_id"], line["job"]["state"]) for line in lines_of(path)]
    assert states == [(job_id, "succeeded"), (job_id, "superseded")]
    assert lines_of(path)[-1]["job"]["superseded_by"] == dossiers.new_id
    assert redis.hget(keys.JOB(dossiers.new_id), "state") == State.QUEUED
    assert redis.exists(keys.PROMPT(redis.hget(keys.JOB(dossiers.new_id), "prompt_id")))


@pytest.mark.case("RQ-03")
def test_an_id_that_names_no_job_does_not_hold_up_the_others(
    invoke_json: ReadJson, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    gone, other = ended(), ended()
    redis.delete(keys.JOB(gone))
    told = invoke_json(
        "archive-old-jobs", "--before", "0s", "--file", str(tmp_path / "archive.jsonl")
    )
    assert (told["removed"], told["left"]) == (1, 1)
    assert not redis.exists(keys.JOB(other))


@pytest.mark.req("A33")
def test_fields_of_a_newer_release_are_kept_in_the_line(
    invoke: Invoke, ended: Callable[..., str], redis: Redis, tmp_path: Path
) -> None:
    job_id = ended()
    redis.hset(keys.JOB(job_id), "a_field_of_tomorrow", "its value")
    file = tmp_path / "archive.jsonl"
    invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert lines_of(file)[0]["job"]["a_field_of_tomorrow"] == "its value"


def test_an_error_while_the_file_is_opened_lets_go_of_it(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("buy milk")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(ArchiveFileError):
            ArchiveFile(file)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
