"""How did generations fail, where their records are still there? For people who look at jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors


def codes_of(redis: Redis, generation_ids: Sequence[str]) -> dict[str, str]:
    """The codes (B6) of those that failed and are still kept (B10), by their ids, in one round
    trip. Raises StoreUnavailableError."""
    if not generation_ids:
        return {}
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        for generation_id in generation_ids:
            pipe.hget(keys.GENERATION(generation_id), "code")
        codes = cast("list[str | None]", pipe.execute())
    return {id_: code for id_, code in zip(generation_ids, codes, strict=True) if code}
