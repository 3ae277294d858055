"""How does RQ learn that there is work? By tickets: invitations to claim (decision 2).

A queue that workers read is a place where whoever can write to Redis could have any importable
function run; RQ's JSON serializer does not change that. `TicketJob` runs only the functions of
jobs.entrypoints that are on the allow-list, and nothing that RQ would call or fetch on a job's
behalf (decision 11).
"""

from __future__ import annotations

import re
from typing import Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue as RqQueue
from rq import worker_registration
from rq.exceptions import InvalidJobOperationError, NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from jobs.domain.errors import GenqueueError
from jobs.store.connection import CONNECT_TIMEOUT_S, store_errors

TAKE_WORK: Final = "jobs.entrypoints.take_work"
RETRY_JOB: Final = "jobs.entrypoints.retry_job"
DELIVER: Final = "jobs.entrypoints.deliver"
ALLOWED: Final = frozenset({TAKE_WORK, RETRY_JOB, DELIVER})
TICK_ENTRY_POINT: Final = re.compile(r"jobs\.entrypoints\.tick_[a-z_]+")
FAILURE_TTL_S: Final = 60
RQ_SOCKET_TIMEOUT_S: Final = 30.0
ISSUE_SOCKET_TIMEOUT_S: Final = 2.0
"""A request waits no longer than this for its ticket, which is only a signal."""


class EntryPointForbiddenError(GenqueueError):
    """A ticket names a function that is not on the allow-list; nothing was imported or run."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not an entry point of genqueue")


class TicketMissingError(NoSuchJobError, InvalidJobOperationError):
    """RQ has no job under this id. `rq requeue --all` passes over what is the second of these
    errors, and ends at the first; everything else in RQ looks for the first."""


class TicketJob(Job):
    """An RQ job that can only be a ticket, and is JSON whatever serializer is asked for: RQ's
    command line and rq-dashboard ask for pickle unless they are told otherwise."""

    def __init__(
        self,
        id: str | None = None,  # noqa: A002  # RQ calls it so
        connection: Any = None,
        serializer: Any = None,  # noqa: ARG002  # see above
    ) -> None:
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(
        cls,
        id: str,  # noqa: A002  # RQ calls it so
        connection: Any = None,
        serializer: Any = None,
    ) -> Job:
        """The RQ job of this id. Raises TicketMissingError."""
        try:
            return super().fetch(id, connection, serializer)
        except NoSuchJobError as error:
            raise TicketMissingError(str(error)) from error

    @property
    def func(self) -> Any:
        """The entry point. Raises EntryPointForbiddenError for any other function."""
        name = str(self.func_name)
        if self.instance is not None or not self.is_entry_point(name):
            raise EntryPointForbiddenError(name)
        return super().func

    @staticmethod
    def is_entry_point(name: str) -> bool:
        """Whether `name` is on the allow-list of this class."""
        return name in ALLOWED

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


class TickJob(TicketJob):
    """An RQ job that can only be a tick: those run on the queue of ticks and nowhere else."""

    @staticmethod
    def is_entry_point(name: str) -> bool:
        """Whether `name` is a tick of jobs.entrypoints."""
        return TICK_ENTRY_POINT.fullmatch(name) is not None


class TicketQueue(RqQueue):
    """The queue of tickets for RQ's command line, as its `--queue-class`: the clean-up that
    `rq info` does meets TicketJobs, and neither unpickles nor calls back."""

    job_class = TicketJob

    def __init__(self, name: str = "default", connection: Any = None, **options: Any) -> None:
        wanted = {**options, "job_class": TicketJob, "serializer": JSONSerializer}
        super().__init__(name, connection, **wanted)


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
    """Issues tickets on the plain RQ list `queue_name`: invitations to run `entry_point`. While
    `waiting_max` of them wait there is no need for more; None leaves that to who asks for them."""

    def __init__(
        self,
        redis: Redis,
        queue_name: str,
        entry_point: str = TAKE_WORK,
        waiting_max: int | None = None,
    ) -> None:
        self._queue = RqQueue(queue_name, connection=redis, serializer=JSONSerializer)
        self._entry_point = entry_point
        self._waiting_max = waiting_max

    def issue(self) -> None:
        """Put a ticket on the list. Raises StoreUnavailableError; a lost ticket is made up
        for by the tick and by every idle worker's poll."""
        options: dict[str, Any] = {
            "timeout": -1,
            "result_ttl": 0,
            "failure_ttl": FAILURE_TTL_S,
            "description": "looking for work",
        }
        with store_errors():
            if self._waiting_max is not None and self._queue.count >= self._waiting_max:
                return
            self._queue.enqueue_call(self._entry_point, **options)

    def count_workers(self) -> int:
        """How many RQ workers are up for these tickets; one that died without a word counts
        until its key at RQ ends."""
        with store_errors():
            names = worker_registration.get_keys(queue=self._queue)
            return int(self._queue.connection.exists(*names)) if names else 0
