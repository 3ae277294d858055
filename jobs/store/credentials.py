"""Who may call? API keys and team tokens, hashed at rest, compared in constant time (X12, B2)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors

KEY_PREFIX: Final = "gq"
TEAM_PREFIX: Final = "gqt"
CACHE_S: Final = 5.0
"""A revoked key stops working within this time (it is the only delay of a revocation)."""

CACHE_MAX: Final = 10_000
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_KEY: Final = re.compile(r"(gqt?)_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Identity:
    """On whose behalf a call is made: a user's, or a team's, whose `user_id` is empty."""

    key_id: str
    org_id: str
    user_id: str
    team_id: str | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """A stored API key or team token, without its secret."""

    key_id: str
    org_id: str
    user_id: str
    created_at_ms: int
    team_id: str | None = None


class Credentials:
    """API keys of the form `gq_<id>_<secret>` and team tokens, `gqt_<id>_<secret>`; Redis holds
    the SHA-256 of the secret only.

    `clock` is monotonic seconds.
    """

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._cache: dict[str, tuple[float, Identity]] = {}
        self._lock = threading.Lock()

    def create(self, org_id: str, user_id: str) -> tuple[Credential, str]:
        """Make a key; the second value is the only sight of the secret there will be.

        Raises ValueError unless org and user are 1 to 32 of letters, digits, `_`, `.`, `-`.
        """
        for name, value in (("org", org_id), ("user", user_id)):
            if not NAME_PATTERN.fullmatch(value):
                raise ValueError(f"{name} must be 1 to 32 letters, digits, '_', '.' or '-'")
        return self._store(org_id, user_id, None)

    def create_for_team(self, team_id: str, org_id: str) -> tuple[Credential, str]:
        """Make a token of a team that is there (B2); the second value is the only sight of the
        secret there will be."""
        return self._store(org_id, "", team_id)

    def _store(self, org_id: str, user_id: str, team_id: str | None) -> tuple[Credential, str]:
        key_id = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(12))
        secret = secrets.token_urlsafe(32)
        with store_errors():
            seconds, micros = self._redis.time()
            created_at_ms = seconds * 1000 + micros // 1000
            pipe = self._redis.pipeline(transaction=True)
            fields: dict[Any, Any] = {
                "sha256": _digest(secret),
                "org_id": org_id,
                "user_id": user_id,
                "created_at": created_at_ms,
            }
            if team_id is not None:
                fields["team_id"] = team_id
            pipe.hset(keys.CREDENTIAL(key_id), mapping=fields)
            pipe.sadd(keys.CREDENTIALS(), key_id)
            pipe.execute()
        credential = Credential(key_id, org_id, user_id, created_at_ms, team_id)
        prefix = KEY_PREFIX if team_id is None else TEAM_PREFIX
        return credential, f"{prefix}_{key_id}_{secret}"

    def list(self) -> list[Credential]:
        """Every key and token, oldest first."""
        with store_errors():
            ids = sorted(cast("set[str]", self._redis.smembers(keys.CREDENTIALS())))
            pipe = self._redis.pipeline(transaction=False)
            for key_id in ids:
                pipe.hgetall(keys.CREDENTIAL(key_id))
            rows = pipe.execute()
        found = [
            Credential(
                key_id,
                row["org_id"],
                row["user_id"],
                int(row["created_at"]),
                row.get("team_id"),
            )
            for key_id, row in zip(ids, rows, strict=True)
            if row
        ]
        return sorted(found, key=lambda credential: credential.created_at_ms)

    def revoke(self, key_id: str) -> bool:
        """End a key or token; False where there is none. Web processes notice within `CACHE_S`."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.delete(keys.CREDENTIAL(key_id))
            pipe.srem(keys.CREDENTIALS(), key_id)
            return bool(pipe.execute()[0])

    def authenticate(self, presented: str) -> Identity | None:
        """Whose key this is, or None. One read, cached for at most `CACHE_S`; only keys that
        were right are cached, under the digest of the whole key."""
        parts = _KEY.fullmatch(presented)
        if parts is None:
            return None
        digest = _digest(presented)
        now_s = self._clock()
        cached = self._cache.get(digest)
        if cached and now_s - cached[0] < CACHE_S:
            return cached[1]
        prefix, key_id, secret = parts.groups()
        with store_errors():
            row = cast("dict[str, str]", self._redis.hgetall(keys.CREDENTIAL(key_id)))
        stored = row.get("sha256", "0" * 64)
        is_secret = hmac.compare_digest(stored.encode(), _digest(secret).encode())
        # A token is no key under another prefix.
        is_kind = (prefix == TEAM_PREFIX) == ("team_id" in row)
        if not (row and is_secret and is_kind):
            self._cache.pop(digest, None)
            return None
        identity = Identity(key_id, row["org_id"], row["user_id"], row.get("team_id"))
        with self._lock:
            if len(self._cache) >= CACHE_MAX:
                self._cache.clear()
            self._cache[digest] = (now_s, identity)
        return identity


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
