"""Which port can a server of ours listen on? Checked by binding, below the ephemeral range."""

import random
import socket

LOWEST_PORT = 20_000
# A client that retries a dead port of the ephemeral range can connect to itself and so take it.
HIGHEST_PORT = 32_000
TRIES = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of this machine's loopback that nothing listens on at this moment.

    Raises OSError when none of 200 random ports is free.
    """
    for _ in range(TRIES):
        port = random.randint(LOWEST_PORT, HIGHEST_PORT)
        if is_free(port):
            return port
    raise OSError(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT}")
