"""What is in Redis, to the last value? For tests that say: nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis import Redis

SWEEP_STAMPS = ("{gq}:swept_at", "{gq}:claimed_at")
"""Written by every sweep and claim, whatever they found."""


def snapshot(redis: Redis, *, ignore: Iterable[str] = ()) -> dict[str, Any]:
    """Every key with its type and whole value. Ends are left out: they shrink by themselves."""
    pipe = redis.pipeline(transaction=False)
    readers: dict[str, Any] = {
        "string": pipe.get,
        "hash": pipe.hgetall,
        "list": lambda name: pipe.lrange(name, 0, -1),
        "set": pipe.smembers,
        "zset": lambda name: pipe.zrange(name, 0, -1, withscores=True),
        "stream": pipe.xrange,
    }
    names = sorted(set(redis.scan_iter(count=1000)) - set(ignore))
    for name in names:
        pipe.type(name)
    kinds = pipe.execute()
    for name, kind in zip(names, kinds, strict=True):
        readers[kind](name)
    return dict(zip(names, zip(kinds, pipe.execute(), strict=True), strict=True))
