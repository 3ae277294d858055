"""Does a watch show every move, of one organisation or of all? (A21, A22)"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from tests.integration.cli.conftest import Submit
from tests.support.processes import ROOT, Fleet, Process
from tests.support.redis_server import redis_server
from tests.support.waiting import wait_until

WATCH = (sys.executable, "-m", "service.cli", "watch")


def moves(process: Process) -> list[dict[str, object]]:
    return [json.loads(line) for line in process.output().splitlines() if line.startswith("{")]


@pytest.fixture
def ready(submit: Submit) -> object:
    """Waits until a watch tells the moves that are made now."""

    def wait(process: Process) -> None:
        def heard() -> bool:
            submit("knock", org_id="acme")
            return "acme" in process.output() or bool(process.output())

        wait_until(heard, 20, "the watch hears something")

    return wait


@pytest.mark.req("A21", "A22")
def test_a_program_gets_every_move_as_a_line_of_json(
    ships: Fleet, submit: Submit, runtime: Runtime, ready: object
) -> None:
    watch = ships.start((*WATCH, "--json"))
    ready(watch)  # type: ignore[operator]
    job_ids = [submit(org_id="acme") for _ in range(20)]
    for job_id in job_ids:
        runtime.queue.cancel(job_id, "acme", "enough")
    # An organisation that nobody had heard of when the watch began.
    stranger = submit(org_id="umbrella")
    wait_until(lambda: stranger in watch.output(), 10, "the new organisation is heard")
    wait_until(lambda: watch.output().count("enough") == 20, 10, "all cancels are heard")

    told = [move for move in moves(watch) if move["job_id"] in job_ids]
    assert [move["verb"] for move in told] == ["submit"] * 20 + ["cancel"] * 20
    assert told[-1]["from"] == "queued"
    assert told[-1]["state"] == "cancelled"
    watch.signal(signal.SIGINT)
    assert watch.wait(10) == 0


@pytest.mark.req("A21")
def test_one_organisation_is_watched_alone(ships: Fleet, submit: Submit, ready: object) -> None:
    watch = ships.start((*WATCH, "--org", "acme"))
    ready(watch)  # type: ignore[operator]
    other, mine = submit(org_id="umbrella"), submit(org_id="acme")
    wait_until(lambda: mine in watch.output(), 10, "the move is told")
    assert other not in watch.output()
    assert "- -> queued  by submit, attempt 1" in watch.output()


def test_a_watch_ends_by_itself_after_its_time(ships: Fleet, submit: Submit) -> None:
    submit()
    assert ships.start((*WATCH, "--for", "1")).wait(20) == 0


def test_a_terminal_shows_a_table_of_what_lives_and_moves(
    redis_url: str, submit: Submit, runtime: Runtime
) -> None:
    live = submit("Hello.")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*WATCH, "--for", "30"],
        env={
            **os.environ,
            "REDIS_URL": redis_url,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
            "LINES": "40",
            "TERM": "xterm",
        },
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    screen = bytearray()

    def shows(text: bytes) -> bool:
        # Nothing yet, or nothing any more.
        with contextlib.suppress(OSError):
            screen.extend(os.read(ours, 65536))
        return text in screen

    try:
        wait_until(lambda: shows(live.encode()), 20, "the job that lives is in the table")
        runtime.queue.cancel(live, "acme", "\x1b]0;pwned\x07")
        wait_until(lambda: shows(b"1 cancel"), 20, "the move is counted")
        assert b"\x1b]0;" not in screen
        process.send_signal(signal.SIGINT)
        wait_until(lambda: shows(b"") and process.poll() is not None, 10, "the watch ends")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_an_outage_of_redis_is_told_and_waited_out(tmp_path: Path, make_runtime: object) -> None:
    with redis_server(tmp_path / "own", aof=True) as server:
        runtime = make_runtime(redis_url=server.url)  # type: ignore[operator]
        ships = Fleet(server.url, tmp_path)
        try:
            submit_to(runtime)
            watch = ships.start((*WATCH, "--json"))
            wait_until(lambda: submit_to(runtime) and watch.output(), 20, "the watch hears")
            server.kill()
            wait_until(lambda: "trying again" in watch.output(), 20, "the outage is told")
            server.start()
            wait_until(lambda: Redis.from_url(server.url).ping(), 10, "Redis is back")
            last = submit_to(runtime)
            wait_until(lambda: last in watch.output(), 20, "the watch hears again")
            assert watch.is_running
        finally:
            ships.end()


def submit_to(runtime: Runtime) -> str:
    from tests.support.factories import new_job

    job = new_job()
    runtime.queue.submit(job)
    return job.id
