"""How does text go into a prompt as data, so that nothing inside can end it? (B16, SEC-07)

Between two lines that carry a code which nobody can foresee and which the text does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from jobs.domain.storable_text import storable

NONCES_TRIED_MAX: Final = 8

NewNonce = Callable[[], str]
"""Answers 8 to 64 hex digits that nobody can foresee, others each time."""

_NONCE: Final = re.compile(r"[0-9a-f]{8,64}")


def fresh_nonce(new_nonce: NewNonce, *texts: str) -> str:
    """A code that occurs in none of `texts`. Raises ValueError where `new_nonce` answers none
    that can be used."""
    folded = [text.casefold() for text in texts]
    for _ in range(NONCES_TRIED_MAX):
        nonce = new_nonce()
        if _NONCE.fullmatch(nonce) and not any(nonce in text for text in folded):
            return nonce
    raise ValueError("no marker that is not in the text")


def marked(name: str, nonce: str, text: str) -> str:
    """`text` in its lines between the marker lines `<<<name nonce` and `name nonce>>>`."""
    return f"<<<{name} {nonce}\n{storable(text)}\n{name} {nonce}>>>"
