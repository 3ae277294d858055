"""What does an ordinary generation look like in a test, and an organisation that may have one?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from redis import Redis

from jobs.domain.billing import Bill, BilledCall
from jobs.domain.entities import Usage
from jobs.domain.job import Job, NewGeneration
from jobs.store import keys
from jobs.store.bills import bill_text
from jobs.store.credits import Credits
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.generations import Generations
from jobs.store.scripts import Scripts
from tests.support.factories import new_id

CAP_USD_MICROS = 1_000_000
RESERVED_USD_MICROS = 1_000
ENVELOPE = '{"text":"Hello.","fields":{}}'


def open_to(redis: Redis, *orgs: str, cap_usd_micros: int = CAP_USD_MICROS) -> None:
    """Give each of `orgs` the flag and credits."""
    for org in orgs:
        Flags(redis).enable(WORKFLOWS_LLM_ACTION, org)
        credits_of(redis).set_cap(org, cap_usd_micros)


def credits_of(redis: Redis) -> Credits:
    """The credits behind `redis`."""
    return Credits(redis, Scripts(redis, queue_name="genqueue"))


def generations_of(redis: Redis, *, per_minute: int = 60) -> Generations:
    """The generations behind `redis`."""
    scripts = Scripts(redis, queue_name="genqueue")
    return Generations(
        redis, scripts, ticket_cap=16, per_minute=per_minute, flag=WORKFLOWS_LLM_ACTION
    )


def new_generation(**changes: Any) -> NewGeneration:
    """A generation of team `1` of org `acme`, unlike any other unless `digest` is given."""
    generation_id = changes.pop("id", new_id())
    options: Mapping[str, Any] = {"invocation_id": "run-1", "output_fields": {}}
    values: dict[str, Any] = {
        "id": generation_id,
        "prompt_id": new_id(),
        "team_id": "1",
        "org_id": "acme",
        "prompt_text": "Say hello.",
        "target": "mock:mock-1",
        "second_target": None,
        "options": options,
        "digest": hashlib.sha256(generation_id.encode()).hexdigest(),
        "reserve_usd_micros": RESERVED_USD_MICROS,
    }
    return NewGeneration(**{**values, **changes})


def call_of(cost_usd_micros: int | None = 7, **changes: Any) -> BilledCall:
    """A call of pass 1."""
    values: dict[str, Any] = {
        "pass_number": 1,
        "model": "mock-1",
        "provider": "mock",
        "provider_request_id": f"req-{new_id()}",
        "usage": Usage(3, 2),
        "cost_usd_micros": cost_usd_micros,
        "held_usd_micros": 500,
        "latency_ms": 12,
    }
    return BilledCall(**{**values, **changes})


def billed(job: Job, *calls: BilledCall, is_captured: bool = False) -> str:
    """The bill of these calls, as scripts take it."""
    return bill_text(job, Bill(calls), is_captured=is_captured)


def wakes(redis: Redis) -> list[tuple[str, str]]:
    """Generation and token of every wake so far."""
    return [(e["generation_id"], e["wake_token"]) for _, e in redis.xrange(keys.WAKES())]


def figures(redis: Redis) -> dict[str, int]:
    """The counts of all generations so far, without the histograms."""
    counts = redis.hgetall(keys.GENERATION_STATS())
    return {n: int(v) for n, v in counts.items() if not n.startswith(("wait", "duration"))}


def ledger(redis: Redis, team_id: str = "1") -> list[Mapping[str, Any]]:
    """The events in a team's ledger, newest first."""
    rows = redis.lrange(keys.CREDITS_LEDGER(team_id), 0, -1)
    return [json.loads(row.partition("|")[2]) for row in rows]
