"""Is this data folder mine alone? An flock on a file in it, which also its server can hold."""

import fcntl
import os
from pathlib import Path

from service.stack.errors import DataFolderLockedError

LOCK_NAME = "lock"


class FolderLock:
    """An exclusive lock on a folder, gone with the last process that holds its descriptor.

    A server that inherits the descriptor keeps the folder locked for as long as it runs, also
    after the process that started it was killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> int:
        """Take the lock, once, and answer its descriptor; makes the folder where there is none.

        Raises DataFolderLockedError at once when another holder is alive, naming its process id.
        """
        if self._descriptor is not None:
            return self._descriptor
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / LOCK_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            holder = path.read_text(encoding="ascii", errors="replace").strip()
            raise DataFolderLockedError(self._folder, holder) from None
        self._descriptor = descriptor
        self.name_holder(os.getpid())
        return descriptor

    def name_holder(self, pid: int) -> None:
        """Write which process a second start should point at."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(pid).encode("ascii"), 0)

    def release(self) -> None:
        """Give the lock up; a process that inherited the descriptor goes on holding it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
