"""Do twenty teams share the slots in turns, without losing any time? (B18)"""

from __future__ import annotations

from collections import Counter

from jobs.runtime import Runtime
from tests.bench.figures import Figure, at_least, at_most, noted
from tests.bench.fleet import run_from_opening, runtime_for, start_workers, wait_registered
from tests.bench.stage import Stage
from tests.support.models_file import models_text
from tests.support.openai_server import OpenAIServer, Reply, Request, openai_server
from tests.support.stored_generations import new_generation, open_to

TEAMS = 20
EACH = 15
DELAY_S = 0.5
SLOTS = 30
SLOTS_PER_TEAM = 5
PROCESSES = 2
THREADS = 32
TIMES_IDEAL = 1.3
ORG = "acme"
CAP_USD_MICROS = 10**9


def run(stage: Stage) -> list[Figure]:
    """Generations of one pass each, counted where they arrive."""
    each = stage.amount(EACH, 4)
    ideal_s = TEAMS * each / SLOTS * DELAY_S
    with openai_server(Reply(delay_s=DELAY_S)) as server:
        server.group_of = _team_of
        runtime = _start(stage, server)
        _run_all(runtime, 3)
        _forget(server)
        stage.say(f"{TEAMS} teams with {each} generations of {DELAY_S} s")
        took_s = _run_all(runtime, each)
        order = [_team_of(request) for request in server.requests]
        half = Counter(order[: len(order) // 2])
        note = f"{TEAMS} teams x {each}, provider {DELAY_S} s, {ideal_s:g} s is ideal"
        return [
            noted("all generations", took_s, "s", note),
            at_most("over the ideal", took_s / ideal_s, "times", TIMES_IDEAL),
            at_most("most at the provider at once", server.concurrent_max, "calls", SLOTS),
            at_most("most of one team", max(server.group_max.values()), "calls", SLOTS_PER_TEAM),
            at_least(
                "fewest calls of a team in the first half",
                min(half[f"team-{n}"] for n in range(TEAMS)),
                "calls",
                each // 2 - 2,
            ),
        ]


def _team_of(request: Request) -> str:
    team: str = request.json["messages"][-1]["content"]
    return team


def _forget(server: OpenAIServer) -> None:
    server.requests.clear()
    server.group_max.clear()
    server.concurrent_max = 0


def _start(stage: Stage, provider: OpenAIServer) -> Runtime:
    models = stage.path("models.toml")
    models.write_text(models_text(provider.base_url, "writer"))
    redis_server = stage.redis()
    runtime = runtime_for(redis_server, models)
    open_to(runtime.redis, ORG, cap_usd_micros=CAP_USD_MICROS)
    start_workers(stage, redis_server, PROCESSES, THREADS, models)
    wait_registered(runtime.redis, PROCESSES)
    return runtime


def _run_all(runtime: Runtime, each: int) -> float:
    """Seconds from the opening of a queue of `each` generations a team to the last end."""

    def submit() -> list[str]:
        ids = []
        for _ in range(each):
            for number in range(TEAMS):
                team = f"team-{number}"
                new = new_generation(team_id=team, prompt_text=team, target="local:writer")
                runtime.generations.submit(new)
                ids.append(new.id)
        return ids

    return run_from_opening(runtime, ORG, submit)
