"""How does a receiver know that a delivery is ours? By two signatures over the bytes sent (C16).

`X-Muxi-Signature` is HMAC-SHA256 over `{t}.{body}` with the client key; beside it stand the
headers of Standard Webhooks, over `{id}.{t}.{body}`. docs/webhooks.md holds test vectors.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

PREFIX: Final = "whsec_"


def unsigned_headers(webhook_id: str, sent_at_s: int) -> dict[str, str]:
    """What every delivery carries: its id, the same at each try, and when this one was sent."""
    return {"webhook-id": webhook_id, "webhook-timestamp": str(sent_at_s)}


def signed_headers(key: str, webhook_id: str, sent_at_s: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery that is signed with the client key `key` at `sent_at_s`, in Unix
    seconds, over exactly these bytes."""
    muxi = hmac.new(key.encode(), b"%d.%s" % (sent_at_s, body), hashlib.sha256).hexdigest()
    signed = b"%s.%d.%s" % (webhook_id.encode(), sent_at_s, body)
    standard = hmac.new(standard_secret(key), signed, hashlib.sha256).digest()
    return {
        "X-Muxi-Signature": f"t={sent_at_s},v1={muxi}",
        "X-Muxi-Timestamp": str(sent_at_s),
        **unsigned_headers(webhook_id, sent_at_s),
        "webhook-signature": f"v1,{base64.b64encode(standard).decode()}",
    }


def standard_secret(key: str) -> bytes:
    """The secret of Standard Webhooks: what stands in base64 behind `whsec_`, else the key's own
    bytes, which its libraries are given as `whsec_` and their base64."""
    if key.startswith(PREFIX):
        try:
            return base64.b64decode(key.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            return key.encode()
    return key.encode()
