"""How does RQ learn that there is work? By tickets: invitations to claim (decision 2)."""

from __future__ import annotations

from typing import Any, Final

from redis import Redis
from rq import Queue as RqQueue
from rq.serializers import JSONSerializer

from jobs.store.connection import CONNECT_TIMEOUT_S, store_errors

TAKE_WORK: Final = "jobs.entrypoints.take_work"
JOB_CLASS: Final = "jobs.worker.ticket_job.TicketJob"
FAILURE_TTL_S: Final = 60
RQ_SOCKET_TIMEOUT_S: Final = 30.0


def connect_rq(url: str) -> Redis:
    """A client for RQ: bytes out, as RQ wants them; waits longer than RQ's longest block."""
    return Redis.from_url(
        url,
        socket_timeout=RQ_SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_keepalive=True,
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
