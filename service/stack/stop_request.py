"""Was the stack asked to stop? Ctrl-C, SIGTERM or a closed terminal, as something to wait for."""

import os
import select
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Counts the requests to stop; waits without missing one that arrives just before the wait."""

    def __init__(self) -> None:
        self._count = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def listen(self) -> None:
        """Take the signals over, for the rest of this process; call it from the main thread."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._count_one)

    def ask(self) -> None:
        """Request a stop, as a signal does; wakes a wait, also from another thread."""
        self._count += 1
        os.write(self._writer, b"\0")

    @property
    def count(self) -> int:
        """How often it was asked: once means in order, more than once means at once."""
        return self._count

    def wait(self, seconds: float) -> bool:
        """Pause for that long, or until a request comes; answers whether there was one ever."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready:
            os.read(self._reader, 4096)
        return self._count > 0

    def _count_one(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
