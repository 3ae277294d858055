"""How does the stack run its own Redis? A real server on loopback, safe settings, data kept."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.stack import leash
from service.stack.errors import RedisStartFailedError
from service.stack.folder_lock import FolderLock
from service.stack.free_port import HIGHEST_PORT, free_port, is_free
from service.stack.redis_binary import RedisBinary, find_redis_binary

HOST = "127.0.0.1"
LOG_NAME = "redis.log"
PORT_NAME = "port"
POLL_PAUSE_S = 0.005
PORT_TRIES = 5


class RedisServer:
    """One server process on a data folder of its own; may be stopped, killed and started again.

    The port stays the same over restarts; a new server on the folder takes it again where it is
    free, so that an address that was copied once goes on to work. Call `start` from the main
    thread: where the thread that started the server ends, Linux ends the server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        aof: bool = True,
        extra: Sequence[str] = (),
        port: int | None = None,
        binary: RedisBinary | None = None,
    ) -> None:
        """Prepare a server; starts nothing.

        `folder` takes the data, the lock and the log. `aof` keeps what was written (synced once a
        second); without it nothing outlives the process. `extra` is appended to the command line,
        for example `("--enable-debug-command", "local")`.
        """
        self._folder = folder.absolute()
        self._aof = aof
        self._extra = tuple(extra)
        self._wanted_port = port
        self._port = port
        self._binary = binary
        self._lock = FolderLock(self._folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The TCP port on loopback; known from the first start on."""
        if self._port is None:
            raise RedisStartFailedError("it was not started yet")
        return self._port

    @property
    def url(self) -> str:
        """The address for REDIS_URL."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The process id of the running server, else None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        """The file that the server's own messages go to."""
        return self._folder / LOG_NAME

    def start(self, within_s: float = 30.0) -> None:
        """Start the server and wait until it answers and has loaded its data; no-op when it runs.

        `within_s` bounds the silence before its first answer; loading takes what it takes.

        Raises RedisBinaryMissingError, DataFolderLockedError or RedisStartFailedError.
        """
        if self.pid is not None:
            return
        binary = self._binary or find_redis_binary()
        descriptor = self._lock.acquire()
        for tries_left in reversed(range(PORT_TRIES)):
            self._port = self._port or self._port_of_before() or free_port()
            self._launch(binary, descriptor)
            try:
                self._wait_until_loaded(within_s)
            except RedisStartFailedError as error:
                self.kill()
                if tries_left and self._wanted_port is None and "in use" in str(error).lower():
                    self._port = free_port()
                    continue
                self._lock.release()
                raise
            break
        (self._folder / PORT_NAME).write_text(f"{self.port}\n", encoding="ascii")

    def stop(self, within_s: float = 30.0) -> None:
        """Ask the server to end and wait for it, killed after `within_s`; frees the data folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        self._lock.release()

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL) and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _port_of_before(self) -> int | None:
        """The port of the last server on this folder, where it is kept and free."""
        path = self._folder / PORT_NAME
        kept = path.read_text(encoding="ascii", errors="replace").strip() if path.exists() else ""
        is_port = kept.isascii() and kept.isdecimal() and 0 < int(kept) <= HIGHEST_PORT
        return int(kept) if is_port and is_free(int(kept)) else None

    def _launch(self, binary: RedisBinary, descriptor: int) -> None:
        with self.log_path.open("ab") as log:
            self._process = self._spawn(binary, descriptor, log)
        self._lock.name_holder(self._process.pid)

    def _spawn(
        self, binary: RedisBinary, descriptor: int, log: BinaryIO
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*leash.command(), str(binary.path), *self._settings(), *self._extra],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(descriptor,),
        )

    def _settings(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes" if self._aof else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            # Many small streams, one per org: 741 B each instead of 4.4 kB.
            "stream-node-max-bytes": "512",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _wait_until_loaded(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        with self._probe() as client:
            while time.monotonic() < deadline:
                process = self._process
                if process is None or process.poll() is not None:
                    raise RedisStartFailedError("it ended at once", self._last_log_line())
                try:
                    info = client.info("server") if client.ping() else {}
                except redis.BusyLoadingError:
                    deadline = time.monotonic() + within_s
                except redis.RedisError:
                    pass
                else:
                    if info.get("process_id") == process.pid:
                        return
                    raise RedisStartFailedError(f"port {self.port} is in use by another server")
                time.sleep(POLL_PAUSE_S)
        raise RedisStartFailedError(f"no answer within {within_s:.0f} s", self._last_log_line())

    def _probe(self) -> redis.Redis:
        return redis.Redis(
            host=HOST,
            port=self.port,
            socket_timeout=2.0,
            socket_connect_timeout=2.0,
            retry=Retry(NoBackoff(), 0),
        )

    def _last_log_line(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        telling = [line for line in lines if " # " in line] or lines
        return telling[-1].rpartition(" # ")[2].strip() if telling else ""
