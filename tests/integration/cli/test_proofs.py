"""Do the proofs hold on a healthy system, turn red on a broken one, and leave nothing? (A26)"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.store import keys
from jobs.store.connection import connect
from jobs.store.scratch import Scratch
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.processes import ROOT, Fleet
from tests.support.redis_server import redis_server
from tests.support.waiting import wait_until

SCRATCH_PROOFS = ("priority-queue", "retry", "heartbeat", "concurrent-safety")
ALL = ("async-execution", *SCRATCH_PROOFS)
PROOF = (sys.executable, "-m", "service.cli", "proof")


def verdicts(printed: str) -> dict[str, str]:
    return {one["proof"]: one["verdict"] for one in json.loads(printed)}


def everything(redis_url: str) -> dict[bytes, bytes | None]:
    """All that Redis holds but for what ends by itself within two minutes."""
    raw = Redis.from_url(redis_url)
    held = {name: raw.dump(name) for name in raw.scan_iter(count=1000)}
    raw.close()
    return {name: value for name, value in held.items() if not name.startswith(b"{gq}:claim:")}


@pytest.fixture
def scratch(redis_url: str) -> Iterator[Redis]:
    """The database that a proof takes first."""
    client = connect(redis_url.rsplit("/", 1)[0] + "/15")
    yield client
    client.close()


def used_databases(redis: Redis) -> set[str]:
    return {name for name in redis.info("keyspace") if name != "db0"}


@pytest.mark.req("A26")
def test_on_a_live_system_all_proofs_hold_and_nothing_is_left_behind(
    shell: Shell, ships: Fleet, redis: Redis, redis_url: str
) -> None:
    ships.thread_worker(redis)
    before = set(everything(redis_url))
    done = shell("proof", "all", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(done.stdout) == dict.fromkeys(ALL, "proven")
    assert all(one["held"] for one in json.loads(done.stdout))
    assert used_databases(redis) == set()
    left = set(everything(redis_url)) - before
    # Numbers, and RQ's own; nothing of the proof's organisation.
    counters = {keys.SEQ(), keys.TURN(), keys.CLAIMED_AT(), keys.SWEPT_AT()}
    wait_until(
        lambda: (
            {
                name
                for name in set(everything(redis_url)) - before
                if name.decode() not in counters and not name.startswith(b"rq:")
            }
            == set()
        ),
        5,
        f"nothing is left of {left}",
    )
    assert "proof-" not in "".join(redis.zrange(keys.ORGS(), 0, -1))


@pytest.mark.req("A26")
@pytest.mark.parametrize("name", SCRATCH_PROOFS)
def test_a_proof_that_claims_does_not_touch_what_others_have_queued(
    invoke: Invoke, submit: Submit, redis: Redis, redis_url: str, name: str
) -> None:
    submit(priority=0)
    before = everything(redis_url)
    done = invoke("proof", name)
    assert done.exit_code == 0, done.output
    assert "✓ proven" in done.stdout
    assert everything(redis_url) == before
    assert used_databases(redis) == set()


@pytest.mark.req("A26")
def test_without_a_worker_the_live_proof_is_red_and_stores_nothing(
    invoke: Invoke, redis: Redis
) -> None:
    done = invoke("proof", "async-execution")
    assert done.exit_code == 1
    assert "✗ broken" in done.stdout
    assert "no worker is up" in done.stdout
    assert redis.dbsize() == 0


def test_a_worker_that_does_nothing_turns_the_live_proof_red_and_its_job_is_removed(
    invoke: Invoke, ships: Fleet, redis: Redis
) -> None:
    worker = ships.thread_worker(redis)
    worker.signal(signal.SIGSTOP)
    done = invoke("proof", "async-execution", "--within", "1", "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)
    assert found["reason"].startswith("not within 1 s: a worker that is up ends job")
    assert redis.zcard(keys.ORGS()) == 0
    assert not list(redis.scan_iter(match=keys.JOB("*")))


@pytest.mark.req("A26")
def test_ctrl_c_leaves_nothing_behind(
    ships: Fleet, redis: Redis, scratch: Redis, redis_url: str
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = ships.start((*PROOF, "heartbeat"))
        wait_until(lambda: scratch.zcard(keys.RUNNING()), 30, "the proof is under way")
        process.signal(number)
        assert process.wait(20) != 0
        assert used_databases(redis) == set()
        assert everything(redis_url) == {}


@pytest.mark.req("A26")
def test_what_a_killed_proof_left_is_removed_by_a_later_one(
    ships: Fleet, invoke: Invoke, redis: Redis, scratch: Redis
) -> None:
    process = ships.start((*PROOF, "heartbeat"))
    wait_until(lambda: scratch.zcard(keys.RUNNING()), 30, "the proof is under way")
    process.signal(signal.SIGKILL)
    process.wait(10)
    # One that was taken just now may still be used: the next proof goes elsewhere.
    assert invoke("proof", "priority-queue").exit_code == 0
    assert used_databases(redis) == {"db15"}
    scratch.set(keys.SCRATCH(), redis.time()[0] - 3600)
    assert invoke("proof", "priority-queue").exit_code == 0
    assert used_databases(redis) == set()


@pytest.mark.req("A26")
def test_where_every_database_is_used_the_proof_is_skipped_and_not_green(
    invoke: Invoke, redis_url: str, tmp_path: Path
) -> None:
    others = [connect(redis_url.rsplit("/", 1)[0] + f"/{n}") for n in range(1, 16)]
    for other in others:
        other.set("theirs", "1")
    try:
        done = invoke("proof", "retry", "--json")
        assert done.exit_code == 1
        assert verdicts(done.stdout) == {"retry": "skipped"}
        assert "--scratch-url" in json.loads(done.stdout)[0]["reason"]
        assert all(other.dbsize() == 1 for other in others)
        with redis_server(tmp_path / "other") as server:
            named = invoke("proof", "retry", "--scratch-url", server.url)
            assert named.exit_code == 0, named.output
            assert Redis.from_url(server.url).dbsize() == 0
    finally:
        for other in others:
            other.delete("theirs")
            other.close()


def test_a_redis_with_one_database_only_says_so(tmp_path: Path, shell: Shell) -> None:
    with redis_server(tmp_path / "one", extra=("--databases", "1")) as server:
        done = shell("proof", "retry", "--json", variables={"REDIS_URL": server.url})
    assert done.returncode == 1, done.stderr
    assert verdicts(done.stdout) == {"retry": "skipped"}
    assert "out of range" in json.loads(done.stdout)[0]["reason"]


def test_a_database_is_taken_once_and_only_our_keys_are_removed(scratch: Redis) -> None:
    ours, theirs = Scratch(scratch, rq_prefix="rq"), Scratch(scratch, rq_prefix="rq")
    assert ours.take()
    assert not theirs.take()
    scratch.set(keys.SEQ(), 1)
    scratch.set("rq:queues", 1)
    scratch.set("somebody:else", 1)
    ours.give_back()
    assert list(scratch.scan_iter()) == ["somebody:else"]
    assert not theirs.take()
    scratch.delete("somebody:else")


@pytest.mark.parametrize("words", [("everything",), ("retry", "--model", "no-such")])
def test_a_proof_that_there_is_not_is_a_usage_error(invoke: Invoke, words: tuple[str, ...]) -> None:
    assert invoke("proof", *words).exit_code == 2


LUA = "jobs/store/lua"
BREAKS = [
    (
        "priority-queue",
        f"{LUA}/prelude/lanes.lua",
        "int(job.priority * SLOT + job.seq)",
        "int(50 * SLOT + job.seq)",
    ),
    (
        "priority-queue",
        f"{LUA}/prelude/lanes.lua",
        "int(job.priority * SLOT + job.seq)",
        "int(job.priority * SLOT + 100000 - job.seq)",
    ),
    ("priority-queue", f"{LUA}/claim.lua", "> tonumber(ceiling)", "> 100"),
    ("retry", f"{LUA}/retry.lua", "now + tonumber(after_ms)", "now"),
    ("retry", "jobs/domain/errors.py", "in RETRYABLE", "in set(ErrorKind)"),
    ("heartbeat", f"{LUA}/renew.lua", "tonumber(window_ms)", "1"),
    ("heartbeat", f"{LUA}/reclaim.lua", "'-inf', int(now), 'LIMIT'", "'-inf', 0, 'LIMIT'"),
    (
        "concurrent-safety",
        f"{LUA}/claim.lua",
        "call('ZPOPMIN', K.ready(lane))",
        "call('ZRANGE', K.ready(lane), 0, 0)",
    ),
    ("concurrent-safety", f"{LUA}/prelude/moves.lua", "job.worker_claim ~= token", "false"),
    (
        "async-execution",
        f"{LUA}/succeed.lua",
        "job.prompt_id .. '|flows-to|' .. response_id",
        "response_id .. '|flows-to|' .. job.prompt_id",
    ),
]


@pytest.mark.req("A26")
@pytest.mark.parametrize(
    ("name", "file", "right", "wrong"), BREAKS, ids=lambda part: part.rsplit("/", 1)[-1]
)
def test_a_proof_turns_red_when_what_it_proves_is_broken(
    tmp_path: Path,
    redis: Redis,
    redis_url: str,
    name: str,
    file: str,
    right: str,
    wrong: str,
) -> None:
    tree = tmp_path / "tree"
    for folder in ("jobs", "service"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tree / file).read_text()
    assert right in text, f"{file} reads otherwise now: break it another way"
    (tree / file).write_text(text.replace(right, wrong))
    environment = {**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": str(tree)}
    options: dict[str, Any] = {"env": environment, "cwd": tree, "stdin": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:
        if name == "async-execution":
            command = [sys.executable, "-m", "service.cli", "worker"]
            worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, **options)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            wait_until(lambda: redis.scard("rq:workers"), 20, "the worker registers")
        done = subprocess.run(
            [*PROOF, name, "--json", "--within", "8"],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            **options,
        )
    assert done.returncode == 1, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)
    assert found["verdict"] == "broken"
    # By the fact that it is about, not by some accident.
    assert found["reason"].startswith(("not so: ", "not within 8 s: ")), found["reason"]
    assert used_databases(redis) == set()
