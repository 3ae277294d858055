"""How does a child of the stack end when its parent was killed? It asks the kernel for SIGTERM.

Run as a script in front of the real command: `leash.py PARENT_PID COMMAND…`. It replaces itself
with the command, so the process id stays. Done after the fork and not in it, because code between
fork and exec is unsafe in a parent with threads. Elsewhere than on Linux it only starts the
command.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def command() -> list[str]:
    """The words to put in front of a child's own command line."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid())]


def main(argv: list[str]) -> None:
    """Tie this process to its parent, then become the command; never returns.

    The signal is sent when the thread that started this process ends, so start from the main one.
    """
    parent_pid, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent_pid:
            # The parent was gone before the request, and the signal will never come.
            raise SystemExit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
