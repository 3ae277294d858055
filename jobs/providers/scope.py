"""Which bound has a call that nobody bounded? (A11)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from jobs.domain.abort import AbortScope, current, entered

UNSCOPED_BUDGET_S: Final = 180.0


@contextmanager
def scoped() -> Iterator[AbortScope]:
    """The current scope; where there is none, one of 180 s for the block."""
    scope = current()
    if scope is not None:
        scope.check()
        yield scope
        return
    with entered(AbortScope(UNSCOPED_BUDGET_S)) as own:
        yield own
