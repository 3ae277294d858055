"""Where do attempts run? In daemon threads that are reused, behind a count of free slots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

logger = logging.getLogger(__name__)

Work = Callable[[], None]


class Slots:
    """How many attempts may start now. `take` hands out slots, `give` returns them."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._changed = threading.Condition()

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self._free

    def take(self, wait_s: float) -> int:
        """All free slots, waiting up to `wait_s` for the first; 0 where none came free."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0, wait_s)
            taken, self._free = self._free, 0
            return taken

    def give(self, count: int) -> None:
        """Return slots."""
        if count:
            with self._changed:
                self._free += count
                self._changed.notify_all()

    def wait_all_free(self, wait_s: float) -> bool:
        """Wait until nothing runs; False where something still does after `wait_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._free == self.total, wait_s)


class DaemonThreads:
    """Up to `most` reusable daemon threads, started when first needed.

    Daemon threads do not hold up the end of the process: a call that ignores its abort must
    not keep a worker alive that was told to leave.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._idle = 0
        self._started = 0
        self._lock = threading.Lock()

    def run(self, work: Work) -> None:
        """Run `work` in a thread, soon."""
        with self._lock:
            self._work.put(work)
            if self._idle > 0:
                self._idle -= 1
                return
            if self._started == self._most:
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception:
                logger.exception("work in %s raised", threading.current_thread().name)
            with self._lock:
                self._idle += 1
