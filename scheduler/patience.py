"""How does a part of the scheduler go on, whatever happens? By a loop around its step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from jobs.domain.errors import StoreUnavailableError

logger = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""Between a step that failed and the next: within this time of Redis's return all goes on."""


def keep_on(step: Callable[[], object], stop: threading.Event, name: str) -> None:
    """Call `step` again and again until `stop`; no error of it ends the loop."""
    is_away = False
    while not stop.is_set():
        try:
            step()
        except (RedisConnectionError, RedisTimeoutError, StoreUnavailableError) as error:
            if not is_away:
                logger.warning("%s: waits for Redis: %s", name, type(error).__name__)
            is_away = True
            stop.wait(PAUSE_S)
        except Exception:
            logger.exception("%s: goes on after an error", name)
            stop.wait(PAUSE_S)
        else:
            if is_away:
                logger.info("%s: Redis is back", name)
            is_away = False
