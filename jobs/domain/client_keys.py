"""Which client is it that a key names? The key itself is kept nowhere (C16, C21)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

CLIENT_ID_CHARS: Final = 16


def client_id_of(key: str) -> str:
    """The client whose key this is: the beginning of the key's SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()[:CLIENT_ID_CHARS]


def key_presented(presented: str, keys: Iterable[str]) -> str | None:
    """The one of `keys` that was presented, or None; all of them are compared, each in constant
    time."""
    found = None
    for key in keys:
        if hmac.compare_digest(presented.encode("utf-8", "replace"), key.encode()):
            found = key
    return found


def key_of(client_id: str, keys: Iterable[str]) -> str | None:
    """The key of a client, or None where it is not set any more."""
    return next((key for key in keys if client_id_of(key) == client_id), None)
