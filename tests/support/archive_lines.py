"""What stands in an archive file, and what of Redis has to?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from redis import Redis

from jobs.store import keys
from tests.support.invariants import family_of


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, each a job."""
    return [json.loads(line) for line in path.read_bytes().decode().split("\n") if line]


def texts_stored(redis: Redis) -> set[str]:
    """Every value of every key that an archive has to remove."""
    found: set[str] = set()
    for name in redis.scan_iter(count=1000):
        family = family_of(name)
        if family is None or family.end != "archive" or family in (keys.CHANGED, keys.ENDED):
            continue
        match redis.type(name):
            case "hash":
                found.update(redis.hgetall(name).values())
            case "string":
                found.add(redis.get(name))
            case "list":
                found.update(redis.lrange(name, 0, -1))
            case "set":
                found.update(redis.smembers(name))
    return found


def texts_written(value: Any) -> set[str]:
    """Every leaf of a line, and every row and object as Redis spells it."""
    if isinstance(value, dict):
        spelled = {json.dumps(value, separators=(",", ":"), ensure_ascii=False)}
        row = [texts_written(part) for part in value.values()]
        flat = [str(part) for part in value.values() if not isinstance(part, dict | list)]
        usage = value.get("usage")
        if usage is not None:
            flat.append(json.dumps(usage, separators=(",", ":"), ensure_ascii=False))
        return set.union(spelled, {"|".join(flat)}, *row) if row else spelled
    if isinstance(value, list):
        spelled = {json.dumps(value, separators=(",", ":"), ensure_ascii=False)}
        return set.union(spelled, *map(texts_written, value)) if value else spelled
    return set() if value is None else {str(value)}
