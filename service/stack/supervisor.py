"""How do the processes of the stack live together? Start, watch, start again, stop in order."""

import contextlib
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from honcho.colour import get_colours
from honcho.printer import Message, Printer

from service.stack.child import Child, ChildSpec
from service.stack.errors import ChildDiedError, StackError
from service.stack.redis_server import RedisServer
from service.stack.stop_request import StopRequest

WATCH_PAUSE_S = 0.2
API_GRACE_S = 10


def process_table(port: int) -> tuple[ChildSpec, ...]:
    """The processes of the stack, in the order in which they stop: what takes work in goes
    first, what writes results goes last."""
    api = (
        *(sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"),
        *("--bind", f"127.0.0.1:{port}", "--workers", "2"),
        "--no-control-socket",
        *("--graceful-timeout", str(API_GRACE_S)),
    )
    return (
        ChildSpec("api", api, stop_within_s=API_GRACE_S + 5),
        ChildSpec("scheduler", (sys.executable, "-m", "scheduler"), stop_within_s=10),
        ChildSpec("worker", (sys.executable, "-m", "service.cli", "worker"), stop_within_s=60),
    )


class Supervisor:
    """Keeps the children and the embedded Redis, if there is one, running until told to stop."""

    def __init__(
        self,
        table: tuple[ChildSpec, ...],
        environment: Mapping[str, str],
        log_folder: Path,
        redis: RedisServer | None,
        request: StopRequest,
    ) -> None:
        log_folder.mkdir(parents=True, exist_ok=True)
        self._children = [Child(spec, environment, log_folder) for spec in table]
        self._redis = redis
        self._request = request
        self._due_at_s: dict[str, float] = {}
        self._redis_due_at_s = 0.0
        self._colours = dict(zip((spec.name for spec in table), get_colours(), strict=False))
        self._printer = Printer(sys.stderr, width=max(len(spec.name) for spec in table))

    def start(self) -> None:
        """Start every child, the last of the table first: workers are there before work is."""
        for child in reversed(self._children):
            child.start()

    def check_none_ended(self) -> None:
        """Raises ChildDiedError for a child that ended, with its last lines printed before."""
        for child in self._children:
            how = child.how_it_ended()
            if how is not None:
                lines = child.last_lines()
                self._say(child.name, lines)
                raise ChildDiedError(child.name, how, child.log_path, lines)

    def serve(self) -> None:
        """Watch until a stop is asked for; a dead process is started again after a pause."""
        while not self._request.wait(WATCH_PAUSE_S):
            self._revive_redis()
            for child in self._children:
                self._revive(child)

    def stop(self) -> None:
        """Stop the children one after another in the order of the table; Redis is not touched."""
        for child in self._children:
            child.stop(self._request)

    def _revive(self, child: Child) -> None:
        how, now_s = child.how_it_ended(), time.monotonic()
        if how is None:
            return
        if child.name not in self._due_at_s:
            child.end_group()
            pause_s = child.next_pause_s()
            self._due_at_s[child.name] = now_s + pause_s
            self._say(child.name, child.last_lines(3))
            self._say(child.name, f"ended ({how}), starts again in {pause_s:.0f} s")
        elif now_s >= self._due_at_s[child.name]:
            del self._due_at_s[child.name]
            child.start()

    def _revive_redis(self) -> None:
        if self._redis is None or self._redis.pid is not None:
            return
        if time.monotonic() < self._redis_due_at_s:
            return
        self._say("redis", "ended, is started again")
        try:
            self._redis.start()
        except StackError as error:
            self._redis_due_at_s = time.monotonic() + 5
            self._say("redis", str(error))

    def _say(self, name: str, text: str) -> None:
        now = datetime.now().astimezone()
        # A closed terminal must not end the watch.
        with contextlib.suppress(OSError):
            self._printer.write(Message("line", text, now, name, self._colours.get(name)))
