"""How do a million jobs get into Redis within a minute?

`load` sends the real submit without waiting for answers. `multiply` is for more than that can
carry: it looks at all that one real submit wrote, and writes the same for further ids.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from redis import Redis

from jobs.domain.job import NewJob
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.support.factories import new_job

FLUSH_BYTES = 1 << 18
FIRST_SEQ = 1_000_000
"""All numbers from here on have seven digits, so that a copy is as long as its original."""

Word = str | bytes | int


class _Pipe:
    """A connection that sends and only counts the answers."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname or "", where.port or 0))
        self._parts: list[bytes] = []
        self._size = 0
        self.failed = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, packed: bytes) -> None:
        """Send whole commands, soon."""
        self._parts.append(packed)
        self._size += len(packed)
        if self._size > FLUSH_BYTES:
            self._flush()

    def finish(self) -> None:
        """Wait until all was answered."""
        self._flush()
        self._socket.shutdown(socket.SHUT_WR)
        self._reader.join()
        self._socket.close()

    def _flush(self) -> None:
        self._socket.sendall(b"".join(self._parts))
        self._parts.clear()
        self._size = 0

    def _read(self) -> None:
        while data := self._socket.recv(1 << 16):
            self.failed += data.count(b"\r\n-") + data.startswith(b"-")


class _Sender(Redis):
    """A client whose scripts go down a pipe; `count` is how many."""

    def __init__(self, pipe: _Pipe) -> None:
        super().__init__()
        self._pipe = pipe
        self.count = 0

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        """Send, and answer as a submit that wants no ticket."""
        self._pipe.send(_packed("EVALSHA", sha, numkeys, *keys_and_args))
        self.count += 1
        return ["OK", 0]


def load(runtime: Runtime, jobs: Iterable[NewJob]) -> int:
    """Submit all `jobs` without their tickets; answers how many are stored.

    Raises RuntimeError where Redis did not take every one.
    """
    before = _last_seq(runtime)
    iterator = iter(jobs)
    # The first one the ordinary way: it loads the script.
    runtime.queue.submit(next(iterator))
    pipe = _Pipe(runtime.settings.redis_url)
    sender = _Sender(pipe)
    queue = Queue(
        Scripts(sender, queue_name=runtime.settings.queue_name),
        ticket_cap=runtime.settings.ticket_cap,
    )
    for job in iterator:
        queue.submit(job)
    pipe.finish()
    count = _last_seq(runtime) - before
    if pipe.failed or count != sender.count + 1:
        raise RuntimeError(f"{count} of {sender.count + 1} jobs stored, {pipe.failed} refused")
    return count


def multiply(runtime: Runtime, count: int) -> None:
    """Put `count` queued jobs of one lane into an empty store, all but the first as copies.

    The event stream gets none of the copies. Raises RuntimeError where a write was refused.
    """
    redis = runtime.redis
    redis.set(keys.SEQ(), FIRST_SEQ)
    job = new_job()
    runtime.queue.submit(job)
    template = b"".join(_packed(*words) for words in _writes_of(redis, job))
    copy = _with_places(template, job, _last_seq(runtime))
    pipe = _Pipe(runtime.settings.redis_url)
    for number, (job_id, prompt_id) in enumerate(_ids(count - 1), FIRST_SEQ + 2):
        score = job.priority * keys.SCORE_SLOT + number
        pipe.send(
            copy
            % {
                b"job": job_id,
                b"prompt": prompt_id,
                b"seq": b"%d" % number,
                b"score": b"%d" % score,
            }
        )
    pipe.finish()
    redis.set(keys.SEQ(), FIRST_SEQ + count)
    if pipe.failed:
        raise RuntimeError(f"{pipe.failed} writes were refused")


def _writes_of(redis: Any, job: NewJob) -> Iterator[tuple[Word, ...]]:
    """The commands that write what the submit of `job` left, its event but for."""
    for name in redis.scan_iter(count=1000):
        kind = redis.type(name)
        if kind == "zset" and (score := redis.zscore(name, job.id)) is not None:
            yield "ZADD", name, f"{score:.0f}", job.id
        if job.id not in name and job.prompt_id not in name:
            continue
        if kind == "hash":
            yield "HSET", name, *(word for pair in redis.hgetall(name).items() for word in pair)
        elif kind == "list":
            yield "RPUSH", name, *redis.lrange(name, 0, -1)
        elif kind == "string":
            yield "SET", name, redis.get(name)
        else:
            raise RuntimeError(f"{name} is a {kind}, which is not copied")


def _with_places(template: bytes, job: NewJob, seq: int) -> bytes:
    """The template with a place for each id, number and score."""
    score = job.priority * keys.SCORE_SLOT + seq
    template = template.replace(b"%", b"%%")
    for name, value in (("job", job.id), ("prompt", job.prompt_id), ("score", score), ("seq", seq)):
        place = b"%%(%s)b" % name.encode()
        template = re.sub(rb"(?<!\d)%b(?!\d)" % str(value).encode(), place, template)
    return template


def _ids(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of ids of a UUID's length."""
    for _ in range(count):
        text = os.urandom(32).hex().encode()
        yield _spelled(text[:32]), _spelled(text[32:])


def _spelled(text: bytes) -> bytes:
    return b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _packed(*words: Word) -> bytes:
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    parts = [b"*%d\r\n" % len(encoded)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"".join(parts)


def _last_seq(runtime: Runtime) -> int:
    """Every submit on an otherwise idle store takes one number."""
    return int(runtime.redis.get(keys.SEQ()) or 0)
