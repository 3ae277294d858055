"""Which functions may a ticket name? Those of jobs.entrypoints on the allow-list (decision 11).

A queue that workers read is a place where whoever can write to Redis could have any importable
function run; RQ's JSON serializer does not change that. This job class refuses all others, and
all that RQ would call or fetch on a job's behalf.
"""

from __future__ import annotations

from typing import Any, Final

from rq.job import Job
from rq.serializers import JSONSerializer

from jobs.domain.errors import GenqueueError

ALLOWED: Final = frozenset({"jobs.entrypoints.take_work"})


class EntryPointForbiddenError(GenqueueError):
    """A ticket names a function that is not on the allow-list; nothing was imported or run."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not an entry point of genqueue")


class TicketJob(Job):  # type: ignore[misc]  # rq is untyped
    """An RQ job that can only be a ticket."""

    def __init__(self, id: str, connection: Any, serializer: Any = None) -> None:  # noqa: A002
        super().__init__(id, connection, serializer or JSONSerializer)

    @property
    def func(self) -> Any:
        """The entry point. Raises EntryPointForbiddenError for any other function."""
        name = self.func_name
        if name not in ALLOWED or self.instance is not None:
            raise EntryPointForbiddenError(str(name))
        return super().func

    @property
    def success_callback(self) -> None:
        """None: tickets have no callbacks, whatever is stored."""
        return None

    @property
    def failure_callback(self) -> None:
        """None, as above."""
        return None

    @property
    def stopped_callback(self) -> None:
        """None, as above."""
        return None

    def send_webhooks(self, *args: Any, **kwargs: Any) -> None:
        """RQ's own webhooks are unsigned, follow redirects and are never retried: not used."""
