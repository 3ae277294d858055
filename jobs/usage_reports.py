"""Who is told what generations used? The log always, an HTTP endpoint where one is set (B17).

The ledger in Redis is written by the script that settles; this is what is told beside it. An
event is told at least once: it leaves the outbox after the receiver took it. Where a process
dies in between, or two ticks run at once, the receiver gets it twice, and none is lost.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import requests

from jobs.store.billing import Outbox

logger = logging.getLogger(__name__)

POST_WITHIN_S: Final = 5.0
"""Wall clock of a post."""

BATCH: Final = 100
POST_THREAD: Final = "usage-post"

Event = Mapping[str, Any]


class UsageReporter(Protocol):
    """Takes events of `jobs.domain.billing.usage_event`; raises where it can't."""

    def report(self, events: Sequence[Event]) -> None:
        """Take all of them, or raise ReportError; may get the same again."""
        ...


class ReportError(Exception):
    """The receiver did not take the events; they are kept for the next time."""


class HttpCapture:
    """Posts `{"batch": [event, ...]}` as JSON to `url`, whose user and password, if any, are sent
    as Basic authorization. Neither a redirect nor a proxy of the environment is followed: what an
    event holds is for the receiver that was named, and for no other."""

    def __init__(self, url: str, *, within_s: float = POST_WITHIN_S) -> None:
        self._url = url
        self._within_s = within_s

    def report(self, events: Sequence[Event]) -> None:
        """Post them in one request; any 2xx is taken for received. Raises ReportError, whose text
        names neither address nor content."""
        if any(thread.name == POST_THREAD for thread in threading.enumerate()):
            raise ReportError("the post before has not ended")
        post = _Post(self._url, events, self._within_s)
        post.start()
        post.join(self._within_s)
        is_late = post.is_alive()
        if post.status is not None and 200 <= post.status < 300:
            return
        raise ReportError(f"no answer within {self._within_s:g} s" if is_late else post.failure)


class _Post(threading.Thread):
    """One post; a daemon, which is left behind where its receiver trickles: the timeouts of
    requests bound each operation alone."""

    def __init__(self, url: str, events: Sequence[Event], operation_within_s: float) -> None:
        super().__init__(name=POST_THREAD, daemon=True)
        self._url = url
        self._body = {"batch": list(events)}
        self._operation_within_s = operation_within_s
        self.status: int | None = None
        self.failure = "it broke"

    def run(self) -> None:
        """Post; how it ended is kept for whoever waits. The body of the answer is not read."""
        try:
            with requests.Session() as session:
                session.trust_env = False
                with session.post(
                    self._url,
                    json=self._body,
                    timeout=self._operation_within_s,
                    allow_redirects=False,
                    stream=True,
                ) as answer:
                    self.failure = f"it answered {answer.status_code}"
                    self.status = answer.status_code
        except requests.RequestException as error:
            self.failure = type(error).__name__


def log_usage(events: Sequence[Event]) -> None:
    """One structured log line a call; an event holds neither prompt nor answer."""
    for event in events:
        properties = event["properties"]
        fields = {name.lstrip("$"): value for name, value in properties.items()}
        logger.info(
            "generation usage: pass %s of %s",
            properties["pass"],
            properties["generation_id"],
            extra={"fields": fields},
        )


def report_waiting(outbox: Outbox, reporter: UsageReporter) -> int:
    """Hand over what waits, longest waiting first, up to a batch; answers how many events.
    What the reporter does not take stays, within the bound of the outbox. Raises
    StoreUnavailableError."""
    rows = outbox.waiting(BATCH)
    if not rows:
        return 0
    try:
        reporter.report([json.loads(row) for row in rows])
    except ReportError as error:
        logger.warning("usage of %d calls not reported yet: %s", len(rows), error)
        return 0
    outbox.done(rows)
    return len(rows)
