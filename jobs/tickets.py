"""How does RQ learn that there is work? By tickets: invitations to claim (decision 2).

A queue that workers read is a place where whoever can write to Redis could have any importable
function run; RQ's JSON serializer does not change that. `TicketJob` runs only the functions of
jobs.entrypoints that are on the allow-list, and nothing that RQ would call or fetch on a job's
behalf (decision 11).
"""

from __future__ import annotations

from typing import Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue as RqQueue
from rq.job import Job
from rq.serializers import JSONSerializer

from jobs.domain.errors import GenqueueError
from jobs.store.connection import CONNECT_TIMEOUT_S, store_errors

TAKE_WORK: Final = "jobs.entrypoints.take_work"
ALLOWED: Final = frozenset({TAKE_WORK})
FAILURE_TTL_S: Final = 60
RQ_SOCKET_TIMEOUT_S: Final = 30.0
ISSUE_SOCKET_TIMEOUT_S: Final = 2.0
"""A request waits no longer than this for its ticket, which is only a signal."""


class EntryPointForbiddenError(GenqueueError):
    """A ticket names a function that is not on the allow-list; nothing was imported or run."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not an entry point of genqueue")


class TicketJob(Job):
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


def connect_rq(url: str, *, socket_timeout_s: float = RQ_SOCKET_TIMEOUT_S) -> Redis:
    """A client for RQ: bytes out, as RQ wants them, and by default with more patience than RQ's
    longest block. A command is sent again once: a second ticket does no harm."""
    return Redis.from_url(
        url,
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 1),
    )


class Tickets:
    """Issues tickets on the plain RQ list `queue_name`."""

    def __init__(self, redis: Redis, queue_name: str) -> None:
        self._queue = RqQueue(queue_name, connection=redis, serializer=JSONSerializer)

    def issue(self) -> None:
        """Put one ticket on the list. Raises StoreUnavailableError; a lost ticket is made up
        for by the tick and by every idle worker's poll."""
        options: dict[str, Any] = {
            "timeout": -1,
            "result_ttl": 0,
            "failure_ttl": FAILURE_TTL_S,
            "description": "looking for work",
        }
        with store_errors():
            self._queue.enqueue_call(TAKE_WORK, **options)
