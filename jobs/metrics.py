"""What does a process count, and how is it read? Prometheus figures of what happens here (X10).

What is stored is not counted here: a scrape reads it from Redis. Under gunicorn the web
processes share files in a folder (`settings.share_metrics_in`), so that a scrape of any one of
them adds up all, dead ones included.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

REGISTRY: Final = CollectorRegistry()

_REQUEST_BUCKETS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_ATTEMPT_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 180.0)

REQUESTS: Final = Histogram(
    "genqueue_http_request_duration_seconds",
    "Requests by route template, until their answer begins",
    ("method", "route", "status"),
    buckets=_REQUEST_BUCKETS_S,
    registry=REGISTRY,
)
STREAM_CLIENTS: Final = Gauge(
    "genqueue_stream_clients",
    "Open event streams",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
STREAM_DROPPED: Final = Counter(
    "genqueue_stream_clients_dropped",
    "Event streams that were closed because their client read too slowly",
    registry=REGISTRY,
)
ATTEMPTS: Final = Counter(
    "genqueue_attempts",
    "Attempts that ended, by how; error_kind is empty where there was no error",
    ("kind", "outcome", "error_kind"),
    registry=REGISTRY,
)
ATTEMPT_SECONDS: Final = Histogram(
    "genqueue_attempt_duration_seconds",
    "What attempts took, until their outcome was known",
    ("kind", "outcome"),
    buckets=_ATTEMPT_BUCKETS_S,
    registry=REGISTRY,
)
ESCALATED: Final = Counter(
    "genqueue_turns_escalated",
    "Chat turns that failed and go on in the background",
    registry=REGISTRY,
)
CHAINS_ENDED: Final = Counter(
    "genqueue_chains_ended",
    "Chains of background attempts that ended, by their end state",
    ("state",),
    registry=REGISTRY,
)
ATTEMPTS_RUNNING: Final = Gauge(
    "genqueue_attempts_running",
    "Attempts that run in this process",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)


class _SharedFiles(Collector):
    """The figures of all processes that share `folder`, living and dead.

    A file whose process was killed before it wrote the first byte is left out: it would break
    the whole page.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> list[Metric]:
        """Every figure, added up."""
        return list(MultiProcessCollector.merge(list(self._begun())))

    def _begun(self) -> Iterator[str]:
        for path in self._folder.glob("*.db"):
            # A gauge's file goes when its process is forgotten, at any moment.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size:
                    yield str(path)


def page(
    accept: str, *, shared_folder: Path | None = None, beside: Collector | None = None
) -> tuple[bytes, str]:
    """The figures of this process, or of all that share `shared_folder`, in the format that
    the Accept header asks for; with it its content type. `beside` adds further figures."""
    registry = CollectorRegistry()
    registry.register(REGISTRY if shared_folder is None else _SharedFiles(shared_folder))
    if beside is not None:
        registry.register(beside)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def forget_process(pid: int) -> None:
    """A process that shared its figures is gone: what it counted stays, what it held goes."""
    mark_process_dead(pid)
