"""How is a JSON value spelled: as short as can be, or in one way only? (B14, X4, B9)"""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """One spelling of a JSON value: sorted names, no spaces, UTF-8. Recursive: bound the depth."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def compact_json(value: Any) -> str:
    """`value` as JSON without spaces, in characters, not escapes, its names in their order (B14).
    Neither a tab nor a line break stands in it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
