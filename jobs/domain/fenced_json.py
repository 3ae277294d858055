"""What of a model's answer is its JSON, where the answer came in a fence? (LLM-13)"""

from __future__ import annotations

import re
from typing import Final

# One fence around all of it, and nothing but an object inside: anything else is ambiguous.
_FENCED: Final = re.compile(r"```[A-Za-z0-9]*\s*(\{.*\})\s*```", re.DOTALL)


def unwrapped(answer: str) -> str:
    """`answer` without a byte order mark, white space around it, and one fence around all of it."""
    text = answer.removeprefix("\ufeff").strip()
    fenced = _FENCED.fullmatch(text)
    return fenced.group(1) if fenced else text
