"""Where does the one TLS context of a process come from?"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable


class SharedTls:
    """One TLS context for all providers of a process, made when it is first needed: each
    costs a tenth of a second to load the trusted certificates."""

    def __init__(self, make: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """The context that everybody shares."""
        with self._lock:
            if self._context is None:
                self._context = self._make()
            return self._context
