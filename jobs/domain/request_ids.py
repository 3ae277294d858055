"""How is the id of a chat request spelled? `req_` and the hex digits of its first job's UUID."""

from __future__ import annotations

import re
import uuid
from typing import Final

_SPELLING: Final = re.compile(r"req_([0-9a-f]{32})")


def request_id_of(job_id: str) -> str:
    """The id that callers see of the request whose first job is `job_id`."""
    return f"req_{uuid.UUID(job_id).hex}"


def job_id_of(request_id: str) -> str | None:
    """The first job's id, or None for what is no request id."""
    found = _SPELLING.fullmatch(request_id)
    return str(uuid.UUID(found[1])) if found else None
