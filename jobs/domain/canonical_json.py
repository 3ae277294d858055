"""How is a JSON value spelled in one way only, so that its hash stands for it? (X4, B9)"""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """One spelling of a JSON value: sorted names, no spaces, UTF-8. Recursive: bound the depth."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")
