"""Is the client of a long answer still there? Asked of its socket, where the server gives it.

gunicorn does (`gunicorn.socket`); elsewhere, and under TLS, a client that left is noticed when
an answer to it fails.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

SILENT_PEER_S: Final = 60
"""A peer that acknowledges nothing for so long is gone: its network is."""


class ClientSocket:
    """The connection of one request; every method bears a connection that is gone."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        found = environ.get("gunicorn.socket")
        self._socket = found if isinstance(found, socket.socket) else None

    def prepare(self) -> None:
        """Have the kernel give up on a peer that went away without a word."""
        if self._socket is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with suppress(OSError):
                self._socket.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_PEER_S * 1000
                )

    def is_gone(self) -> bool:
        """Whether the client closed its side; what it may have sent on is not read."""
        if self._socket is None:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except ValueError:  # TLS has no look ahead
            return False
        except OSError:
            return True

    def shut(self) -> None:
        """End the connection, also for a thread that hangs in a send on it."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
