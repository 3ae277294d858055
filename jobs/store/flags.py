"""Which organisations have a feature that is not everybody's? (B21)

Off where nobody switched it on. The submit of a generation looks inside its script, never here.
"""

from __future__ import annotations

import re
from typing import Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.credentials import NAME_PATTERN

WORKFLOWS_LLM_ACTION: Final = "workflows-llm-action"
FLAG_PATTERN: Final = re.compile(r"[a-z0-9-]{1,64}")


class Flags:
    """The flags by organisation. All methods raise StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def enable(self, flag: str, org_id: str) -> None:
        """Give an organisation the feature, from its next submit on.

        Raises ValueError unless `flag` is 1 to 64 of lower-case letters, digits and `-`, and
        the organisation 1 to 32 of letters, digits, `_`, `.`, `-`.
        """
        _check(flag, org_id)
        with store_errors():
            self._redis.sadd(keys.FLAG(flag), org_id)

    def disable(self, flag: str, org_id: str) -> None:
        """Take it away: nothing new is accepted, what was goes on (B36). Raises as `enable`."""
        _check(flag, org_id)
        with store_errors():
            self._redis.srem(keys.FLAG(flag), org_id)

    def is_on(self, flag: str, org_id: str) -> bool:
        """Whether an organisation has the feature."""
        with store_errors():
            return bool(self._redis.sismember(keys.FLAG(flag), org_id))

    def orgs(self, flag: str) -> list[str]:
        """Every organisation that has the feature, by name."""
        with store_errors():
            return sorted(cast("set[str]", self._redis.smembers(keys.FLAG(flag))))


def _check(flag: str, org_id: str) -> None:
    if not FLAG_PATTERN.fullmatch(flag):
        raise ValueError("flag must be 1 to 64 lower-case letters, digits or '-'")
    if not NAME_PATTERN.fullmatch(org_id):
        raise ValueError("org must be 1 to 32 letters, digits, '_', '.' or '-'")
