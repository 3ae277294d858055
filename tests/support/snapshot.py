"""What is in Redis, to the last value? For tests that say: nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis import Redis

SWEEP_STAMPS = ("{gq}:swept_at", "{gq}:claimed_at")
"""Written by every sweep and claim, whatever they found."""


def snapshot(redis: Redis, *, ignore: Iterable[str] = ()) -> dict[str, Any]:
    """Every key with its type and whole value. Ends are left out: they shrink by themselves."""
    readers: dict[str, Any] = {
        "string": redis.get,
        "hash": redis.hgetall,
        "list": lambda name: redis.lrange(name, 0, -1),
        "set": redis.smembers,
        "zset": lambda name: redis.zrange(name, 0, -1, withscores=True),
        "stream": redis.xrange,
    }
    left_out = set(ignore)
    values = {}
    for name in redis.scan_iter(count=1000):
        if name not in left_out:
            kind = redis.type(name)
            values[name] = (kind, readers[kind](name))
    return values
