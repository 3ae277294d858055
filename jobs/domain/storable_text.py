"""Can this text be stored and sent as it is? (LLM-11)

One policy for all that a model or a caller of a model says: what Redis and UTF-8 do not take
is replaced, never refused.
"""

from __future__ import annotations

import re
from typing import Final

# Redis and UTF-8 take no lone surrogate, and tools take no NUL: both become U+FFFD.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)
