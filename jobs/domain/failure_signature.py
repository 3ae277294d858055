"""What of a failure stays the same when it occurs again? (C12)

Pure. Numbers, ids, addresses and quoted parts differ from call to call where the wall is the same.
"""

from __future__ import annotations

import re
from typing import Final

from jobs.domain.errors import ErrorKind


def _alone(pattern: str) -> re.Pattern[str]:
    """`pattern` where no letter or digit touches it; an underscore may, as in `req_1f3a9c`."""
    return re.compile(rf"(?<![0-9a-z])(?:{pattern})(?![0-9a-z])")


# In this order: what may hold another one comes first. Each is linear in the length of a hostile
# text. Numbers and ids share a sign, as a hex id may happen to have digits alone.
_PLACEHOLDERS: Final = (
    (re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s\"'`<>]+"), "<url>"),
    (re.compile(r'"[^"]*"|`[^`]*`|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|「[^「」]*」'), "<quoted>"),
    (re.compile(r"(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*+'(?!\w)"), "<quoted>"),
    (re.compile(r"(?<!\w)‘(?:[^‘’]|(?<=\w)’(?=\w))*+’(?!\w)"), "<quoted>"),
    (_alone(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), "#"),
    (_alone(r"0x[0-9a-f]++"), "#"),
    (_alone(r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{6,}+"), "#"),
    (_alone(r"(?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-z]{16,}+"), "#"),
    # A status says which wall it is.
    (re.compile(r"(?<!\d)(?<!answered )(?<!status )(?<!http )\d+(?:[.,:]\d+)*"), "#"),
)


def signature(kind: ErrorKind, reason: str) -> str:
    """The kind and the normalised reason: case folded, each run of white space one space, and a
    placeholder for each URL, quoted part, UUID, hex id of 6 digits or more, mixed id of 16
    characters or more, and number but an HTTP status."""
    text = reason.casefold()
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return f"{kind}: {' '.join(text.split())}"
