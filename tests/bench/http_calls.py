"""What does the queue add to calls of a quarter second, and a busy slot to memory?"""

from __future__ import annotations

import statistics

from jobs.runtime import Runtime
from jobs.store import keys
from tests.bench.figures import Figure, at_least, at_most, noted
from tests.bench.fleet import (
    is_drained,
    plain_jobs,
    run_from_opening,
    runtime_for,
    start_workers,
    submit_all,
    wait_registered,
)
from tests.bench.rq_pool import drain_by_pool, enqueue_all
from tests.bench.stage import Stage, Started, pss_bytes, wait_for

DELAY_S = 0.25
PROCESSES = 2
THREADS = 50
RQ_WORKERS = 16
ROUNDS = 3
TIMES_LOOP = 1.3
TIMES_RQ = 5.0
PSS_PER_SLOT_MB = 0.7
MEMORY_DELAY_S = 4
ORG = "acme"
MODELS = """\
default_model = "quick"

[providers.local]
type = "openai"
base_url = "{base_url}"

[[models]]
id = "quick"
provider = "local"
provider_model = "delay-{delay_s}"
input_usd_micros_per_mtok = 0
output_usd_micros_per_mtok = 0

[[models]]
id = "slow"
provider = "local"
provider_model = "delay-{slow_s}"
input_usd_micros_per_mtok = 0
output_usd_micros_per_mtok = 0
"""


def run(stage: Stage) -> list[Figure]:
    """Ours and a bare loop of the SDK in turns, then plain RQ, all on one provider."""
    calls = stage.amount(400, 100)
    base_url = _provider(stage)
    ours_s, loop_s, slot_mb, import_mb = _ours_and_loop(stage, base_url, calls)
    ideal_s = calls / (PROCESSES * THREADS) * DELAY_S
    note = f"{calls} calls of {DELAY_S} s, 2 x 50 threads; {ideal_s:g} s is ideal"
    rq_calls = stage.amount(32, 16)
    rq_s = _plain_rq(stage, base_url, rq_calls, preload="") * calls / rq_calls
    warm_calls = stage.amount(100, 32)
    warm_s = _plain_rq(stage, base_url, warm_calls, preload="openai") * calls / warm_calls
    return [
        noted("bare loop of the SDK", loop_s, "s", f"median of {ROUNDS}; {note}"),
        noted(
            "two workers of genqueue",
            ours_s,
            "s",
            f"median of {ROUNDS}, from the opening of the queue on",
        ),
        at_most("genqueue over the bare loop", ours_s / loop_s, "times", TIMES_LOOP),
        noted("rq worker-pool -n 16", rq_s, "s", f"scaled up from {rq_calls} jobs"),
        at_least("genqueue, times as fast as rq", rq_s / ours_s, "times", TIMES_RQ),
        noted("rq, SDK imported before the fork", warm_s, "s", f"scaled up from {warm_calls} jobs"),
        at_least("genqueue, times as fast as that", warm_s / ours_s, "times", TIMES_RQ),
        noted("Pss of a process that imported openai", import_mb, "MB"),
        at_most("Pss of a busy slot beyond that", slot_mb, "MB", PSS_PER_SLOT_MB, "50 slots busy"),
    ]


def _provider(stage: Stage) -> str:
    """A local OpenAI-compatible server in a process of its own; answers its base URL."""
    server = stage.python("provider", ("-m", "tests.support.openai_server", "--port", "0"))
    wait_for(lambda: server.log.read_text().endswith("\n"), 20, "the provider to serve")
    return server.log.read_text().strip()


def _bare_loop(stage: Stage, base_url: str, calls: int, number: int) -> float:
    """Seconds from the first call to the last answer."""
    model = f"delay-{DELAY_S}"
    each = str(calls // PROCESSES)
    words = ("-m", "tests.bench.sdk_loop", base_url, model, str(THREADS), each)
    begin = stage.path(f"begin-{number}")
    loops = [stage.python("sdk-loop", (*words, str(begin))) for _ in range(PROCESSES)]
    wait_for(lambda: all("ready" in loop.log.read_text() for loop in loops), 60, "both loops")
    begin.touch()
    wait_for(lambda: all(loop.process.poll() is not None for loop in loops), 60, "both loops' end")
    spans = [loop.log.read_text().split("\n")[1].split() for loop in loops]
    return max(float(span[1]) for span in spans) - min(float(span[0]) for span in spans)


def _ours_and_loop(stage: Stage, base_url: str, calls: int) -> tuple[float, float, float, float]:
    """Median seconds for all jobs and for the bare loop; MB a busy slot, MB of the import."""
    models = stage.path("models.toml")
    models.write_text(MODELS.format(base_url=base_url, delay_s=DELAY_S, slow_s=MEMORY_DELAY_S))
    server = stage.redis()
    runtime = runtime_for(server, models)
    workers = start_workers(stage, server, PROCESSES, THREADS, models)
    wait_registered(runtime.redis, PROCESSES)
    _run_all(runtime, PROCESSES * THREADS)
    ours, loops = [], []
    for number in range(ROUNDS):
        stage.say(f"{calls} calls of {DELAY_S} s, 2 x 50 threads, round {number + 1} of {ROUNDS}")
        loops.append(_bare_loop(stage, base_url, calls, number))
        ours.append(_run_all(runtime, calls))
    slot_mb, import_mb = _memory(stage, runtime, workers)
    for worker in workers:
        worker.stop()
    return statistics.median(ours), statistics.median(loops), slot_mb, import_mb


def _run_all(runtime: Runtime, calls: int) -> float:
    """Seconds from the opening of a queue of `calls` jobs to the last end."""
    jobs = plain_jobs(calls, target=runtime.models.target_of("quick"))
    return run_from_opening(runtime, ORG, lambda: submit_all(runtime, jobs))


def _memory(stage: Stage, runtime: Runtime, workers: list[Started]) -> tuple[float, float]:
    """MB that a busy slot costs beyond importing the SDK, and what that import costs."""
    slots = PROCESSES * THREADS
    imported = stage.python(
        "imported", ("-c", "import openai, signal; print('ready', flush=True); signal.pause()")
    )
    wait_for(lambda: "ready" in imported.log.read_text(), 30, "the import of openai")
    submit_all(runtime, plain_jobs(slots, target=runtime.models.target_of("slow")))
    wait_for(lambda: runtime.redis.zcard(keys.RUNNING()) == slots, 20, "all slots to be busy")
    busy = sum(pss_bytes(worker.pid) for worker in workers) / PROCESSES
    alone = pss_bytes(imported.pid)
    wait_for(lambda: is_drained(runtime.redis), 60, "the slow jobs to end")
    return (busy - alone) / THREADS / 1e6, alone / 1e6


def _plain_rq(stage: Stage, base_url: str, calls: int, *, preload: str) -> float:
    """Seconds from the first start to the last end."""
    stage.say(f"{calls} jobs of {DELAY_S} s by rq worker-pool -n 16, {preload or 'as it is'}")
    server = stage.redis()
    arguments = {"base_url": base_url, "model": f"delay-{DELAY_S}", "text": "Say hello."}
    ids = enqueue_all(server, "tests.bench.rq_call.ask", arguments, calls)
    return drain_by_pool(stage, server, ids, workers=RQ_WORKERS, preload=preload).elapsed_s
