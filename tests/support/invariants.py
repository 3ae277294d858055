"""What must be true of Redis at every instant between two scripts? Checked from outside."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache

from redis import Redis

from jobs.domain.states import MOVES, State
from jobs.store import keys

OWNED = {key.name for key in keys.ALL if key.end != "never"}
"""Families whose end is a rule (see keys.py) rather than a TTL."""

ENDS_BY_ITSELF = (
    *(keys.CLAIM, keys.EVENTS, keys.GENERATION, keys.WAKES),
    *(keys.SLOTS, keys.TEAM_SLOTS, keys.COOLDOWNS, keys.SUBMITS),
)
"""Families that promise a TTL from their first moment."""

_RQ_PREFIX = "rq:"


def _pattern(key: keys.Key) -> re.Pattern[str]:
    return re.compile(re.escape(keys.PREFIX + key.spelling).replace("%s", ".+"), re.DOTALL)


_FAMILIES = [(key, _pattern(key)) for key in keys.ALL]


@cache
def family_of(name: str) -> keys.Key | None:
    """The family that a key belongs to; the longest spelling wins."""
    found = [key for key, pattern in _FAMILIES if pattern.fullmatch(name)]
    return max(found, key=lambda key: len(key.spelling), default=None)


def keys_without_end(redis: Redis) -> set[str]:
    """Keys of ours that no family of keys.py names, or whose family promises a TTL that the
    key does not have. RQ's own keys are RQ's."""
    leaked = set()
    for name in redis.scan_iter(count=1000):
        if name.startswith(_RQ_PREFIX):
            continue
        family = family_of(name)
        if family is None or (family in ENDS_BY_ITSELF and redis.ttl(name) < 0):
            leaked.add(name)
    return leaked


def problems_of(redis: Redis) -> list[str]:
    """Every broken invariant, one a line; an empty list is a healthy store."""
    names = [
        name
        for name in set(redis.scan_iter(match=keys.JOB("*"), count=1000))
        if family_of(name) is keys.JOB
    ]
    with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(name)
        ids = [name.removeprefix(keys.JOB("")) for name in names]
        records = dict(zip(ids, pipe.execute(), strict=True))
    problems: list[str] = []
    problems += _membership_problems(redis, records)
    problems += _lane_problems(redis)
    problems += _history_problems(redis, records)
    problems += _count_problems(redis, records)
    return problems


def _members(redis: Redis, family: keys.Key) -> Iterable[tuple[str, str]]:
    for name in redis.scan_iter(match=family("*"), count=1000):
        if family_of(name) is family:
            for member in redis.zrange(name, 0, -1):
                yield name, member


def _membership_problems(redis: Redis, records: dict[str, dict[str, str]]) -> list[str]:
    """A live job is in exactly one set, the one its state says; a terminal one in none."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, member in _members(redis, keys.READY):
        places[member].append(name)
    for family in (keys.SCHEDULED, keys.BLOCKED, keys.RUNNING):
        for member in redis.zrange(family(), 0, -1):
            places[member].append(family())
    problems = []
    for job_id, record in records.items():
        where = places.pop(job_id, [])
        running = where == [keys.RUNNING()]
        match record["state"]:
            case State.RUNNING:
                fine = running
            case State.QUEUED:
                fine = len(where) == 1 and not running
            case _:
                fine = not where
        if not fine:
            problems.append(f"{record['state']} job {job_id} is in {where}")
        lane = keys.READY(_lane_of(record))
        if where and where[0].startswith(keys.READY("")) and where[0] != lane:
            problems.append(f"job {job_id} waits in {where[0]} and not in {lane}")
    problems += [f"{where} holds {job_id}, which is no job" for job_id, where in places.items()]
    return problems


def _lane_of(record: dict[str, str]) -> str:
    return keys.lane(
        record["org_id"],
        record["kind"],
        record["target"],
        record.get("team_id"),
        record.get("second_target"),
    )


def _lane_problems(redis: Redis) -> list[str]:
    """A non-empty lane is open or behind one gate, under its head's priority; others leave
    no key."""
    problems = []
    placed: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for lane, score in redis.zrange(keys.TURNS(), 0, -1, withscores=True):
        placed[lane].append((keys.TURNS(), score))
    for name in redis.scan_iter(match=keys.SHUT("*"), count=1000):
        for lane, score in redis.zrange(name, 0, -1, withscores=True):
            placed[lane].append((name, score))
            if redis.hget(keys.SHUT_BY(), lane) != name.removeprefix(keys.SHUT("")):
                problems.append(f"lane {lane} is behind {name}, shut_by does not say so")
    lanes = {name.removeprefix(keys.READY("")) for name in redis.scan_iter(match=keys.READY("*"))}
    for lane in lanes | placed.keys():
        head = redis.zrange(keys.READY(lane), 0, 0, withscores=True)
        where = placed.get(lane, [])
        if not head or len(where) != 1:
            problems.append(f"lane {lane} with head {head} is placed {where}")
        elif head[0][1] // keys.SCORE_SLOT != where[0][1] // keys.SCORE_SLOT:
            problems.append(f"lane {lane} is placed at another priority than its head's")
        if head and not redis.sismember(keys.TEAM_LANES(lane.split("|")[0]), lane):
            problems.append(f"lane {lane} is not among its team's lanes")
    return problems


def _chain_problems(job_id: str, stored: str, rows: list[list[str]]) -> list[str]:
    """Each move begins where the one before ended, and the last one ends in the stored state."""
    allowed = {(move.source, move.target, move.verb) for move in MOVES}
    problems = []
    state = ""
    for _, _, verb, source, target, _, _ in rows:
        if source != state:
            problems.append(f"job {job_id}: {verb} from {source!r}, but it was {state!r}")
        if verb != "submit" and (source, target, verb) not in allowed:
            problems.append(f"job {job_id}: {source} -> {target} by {verb} is no move")
        state = target
    if state != stored:
        problems.append(f"job {job_id} is {stored}, its history ends {state!r}")
    return problems


def _history_problems(redis: Redis, records: dict[str, dict[str, str]]) -> list[str]:
    """History and stream tell the same moves, each of them allowed, in one chain."""
    streamed: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for name in redis.scan_iter(match=keys.EVENTS("*")):
        for event_id, event in redis.xrange(name):
            if "type" in event:  # not of a move
                continue
            row = (event_id.split("-")[0], event["verb"], event["state"])
            streamed[event["job_id"]].append(row)
    problems = []
    with redis.pipeline(transaction=False) as pipe:
        for job_id in records:
            pipe.lrange(keys.HISTORY(job_id), 0, -1)
        histories = pipe.execute()
    for (job_id, record), history in zip(records.items(), histories, strict=True):
        rows = [[record["seq"], record["created_at"], "submit", "", "queued", "1", ""]]
        rows += [row.split("|", 6) for row in history]
        problems += _chain_problems(job_id, record["state"], rows)
        if streamed[job_id] != [(row[0], row[2], row[4]) for row in rows]:
            problems.append(f"job {job_id}: stream and history differ")
        counted = 1 + sum(
            row[2] == "retry" or (row[2] == "reclaim" and row[4] == "queued") for row in rows
        )
        if record["kind"] not in {"chat", "escalation"} and int(record["attempt"]) != counted:
            problems.append(f"job {job_id}: attempt {record['attempt']}, history says {counted}")
    return problems


def _count_problems(redis: Redis, records: dict[str, dict[str, str]]) -> list[str]:
    """The count of running jobs by org is what the records say."""
    running = Counter(r["org_id"] for r in records.values() if r["state"] == State.RUNNING)
    stored = {org: int(n) for org, n in redis.hgetall(keys.RUNNING_BY_ORG()).items()}
    return [] if stored == dict(running) else [f"running_by_org {stored}, records {dict(running)}"]
