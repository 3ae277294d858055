"""How do the parts that post fit together? Builds a pool for a process."""

from __future__ import annotations

from jobs.delivery.attempt import DeliveryAttempt
from jobs.delivery.pool import THREADS_MAX, DeliveryPool
from jobs.delivery.poster import Poster
from jobs.settings import Settings
from jobs.store.deliveries import Deliveries
from jobs.store.turns import Turns


def assemble_pool(
    settings: Settings,
    deliveries: Deliveries,
    turns: Turns,
    *,
    poster: Poster | None = None,
    threads_max: int = THREADS_MAX,
) -> DeliveryPool:
    """A pool for this process; `poster` is by default one for the networks of the settings."""
    attempt = DeliveryAttempt(
        deliveries, turns, poster or Poster(settings.webhook_networks), settings.formation_keys
    )
    return DeliveryPool(deliveries, attempt.run, threads_max)
