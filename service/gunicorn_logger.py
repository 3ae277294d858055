"""Where do gunicorn's own lines go? To the one handler that all lines go to (X10)."""

from __future__ import annotations

from typing import Any

from gunicorn.glogging import Logger


class OneHandlerLogger(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """gunicorn's logger without handlers of its own; requests are logged by the app."""

    def setup(self, cfg: Any) -> None:
        """Take the level of gunicorn's settings, and nothing else of them."""
        super().setup(cfg)
        for log in (self.error_log, self.access_log):
            log.handlers.clear()
            log.propagate = True
