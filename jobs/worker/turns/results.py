"""How much of what earlier tasks answered does a later task get to read? (C1)

Without a bound a plan of many tasks would ask for more than any model reads, and pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RESULT_MAX_CHARS: Final = 100_000
"""Of one answer, in characters."""

RESULTS_MAX_CHARS: Final = 200_000
"""Of all answers together, in characters. The longest are cut first, to the same length."""

CUT_NOTE: Final = "\n[the rest, {} characters, is left out]"
"""Stands at the end of what was cut, beyond the bounds."""


def handed_on(texts: Sequence[str]) -> tuple[str, ...]:
    """`texts` in their order, each as much of its beginning as fits."""
    left = RESULTS_MAX_CHARS
    shown = list(texts)
    shortest_first = sorted(range(len(texts)), key=lambda position: len(texts[position]))
    for rank, position in enumerate(shortest_first):
        share = min(RESULT_MAX_CHARS, left // (len(texts) - rank))
        shown[position] = _cut(texts[position], share)
        left -= min(len(texts[position]), share)
    return tuple(shown)


def _cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return text[:max_chars] + CUT_NOTE.format(len(text) - max_chars)
