"""Where do tests get a real Redis server? From the stack's own launcher, one folder each."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.stack.errors import RedisBinaryMissingError
from service.stack.redis_binary import find_redis_binary
from service.stack.redis_server import RedisServer

__all__ = ["RedisServer", "redis_server", "start_redis"]


def start_redis(tmp_dir: Path, *, aof: bool = False, extra: Sequence[str] = ()) -> RedisServer:
    """A running server with its data in `tmp_dir`; the caller stops it.

    `kill()` then `start()` is a crash and a restart on the same port and folder; with `aof` the
    data comes back. Settings of `extra` come last and win, for example
    `("--enable-debug-command", "local")`. Call it from the main thread.

    A machine without a server program skips the test, but where `CI` is `true` the test fails: a
    run that proved nothing must not be green.
    """
    try:
        binary = find_redis_binary()
    except RedisBinaryMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    server = RedisServer(tmp_dir, aof=aof, extra=extra, binary=binary)
    server.start()
    return server


@contextmanager
def redis_server(
    tmp_dir: Path, *, aof: bool = False, extra: Sequence[str] = ()
) -> Iterator[RedisServer]:
    """As `start_redis`, and stopped at the end of the block."""
    server = start_redis(tmp_dir, aof=aof, extra=extra)
    try:
        yield server
    finally:
        server.stop()
