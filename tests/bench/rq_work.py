"""What do plain RQ workers run in the comparisons? The same work, as a user would write it."""

from __future__ import annotations


def noop(text: str) -> int:
    """Take the text and do nothing."""
    return len(text)
