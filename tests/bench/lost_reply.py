"""Does a verb change the world once when its answer gets lost and the client sends it again?

The proxy drops the answer after Redis has done the work; the client of the store sends the
same bytes again. Each verb is compared with itself on a connection that loses nothing: the
same answer, as many keys of each family with as many members, and no contradictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from redis import Redis

from jobs.domain.errors import ErrorKind
from jobs.domain.states import State
from jobs.store import keys
from jobs.store.answers import ClaimRequest, Settled
from jobs.store.connection import connect
from jobs.store.queue import Queue
from jobs.store.scripts import Scripts
from tests.bench.figures import Figure
from tests.bench.stage import Stage
from tests.support.factories import new_id, new_job
from tests.support.invariants import family_of, problems_of
from tests.support.job_states import Reached, reach, some_response
from tests.support.lossy_proxy import lossy_proxy

WINDOW_MS = 60_000
INTERVAL_MS = 15_000
SEND = "EVALSHA"


@dataclass(frozen=True)
class Verb:
    """A verb, the state that it needs, and how to send it. A sweep that is repeated has nothing
    left to do: its second answer counts nothing."""

    name: str
    state: State
    send: Callable[[Queue, Reached], Any]
    counts_only_once: bool = False
    prepare: Callable[[Redis], None] = lambda redis: None


@dataclass(frozen=True)
class Effect:
    """What a verb did: its answer, the moves it made, what the store looks like after it, and
    what is wrong with that."""

    answer: Any
    moves: int
    shape: Counter[tuple[str, int]]
    problems: list[str]


def run(stage: Stage) -> list[Figure]:
    """One row a verb."""
    return list(_rows(stage))


def _rows(stage: Stage) -> Iterator[Figure]:
    server = stage.redis()
    direct = connect(server.url)
    with lossy_proxy(server.port) as proxy:
        lossy = connect(proxy.url)
        for verb in VERBS:
            once = _effect(direct, direct, verb, lambda: None)
            twice = _effect(direct, lossy, verb, lambda: proxy.lose_reply_to(SEND))
            yield _figure(verb, once, twice, proxy.count_of(SEND))


def _effect(direct: Redis, used: Redis, verb: Verb, before_send: Callable[[], None]) -> Effect:
    direct.flushall()
    reached = reach(_queue(direct), verb.state, window_ms=WINDOW_MS)
    verb.prepare(direct)
    queue = _queue(used)
    before = _last_seq(direct)
    before_send()
    answer = verb.send(queue, reached)
    return Effect(answer, _last_seq(direct) - before, _shape(direct), problems_of(direct))


def _figure(verb: Verb, once: Effect, twice: Effect, sends: int) -> Figure:
    problems = [*once.problems, *twice.problems]
    if sends != 2:
        problems.append(f"sent {sends} times, not twice")
    if once.moves != twice.moves:
        problems.append(f"{twice.moves} moves, {once.moves} without a loss")
    if once.shape != twice.shape:
        problems.append(f"left {twice.shape - once.shape}, and not {once.shape - twice.shape}")
    if once.answer != twice.answer and not verb.counts_only_once:
        problems.append(f"answered {_told(twice.answer)}, but {_told(once.answer)} without a loss")
    measured = "not as once" if problems else "as once"
    note = problems[0] if problems else f"moves: {twice.moves}"
    return Figure(f"{verb.name}, sent twice", measured, "", "as once", not problems, note)


def _told(answer: Any) -> str:
    """An answer in few words."""
    if isinstance(answer, Settled):
        return f"{answer.answer} and {'a' if answer.ticket_wanted else 'no'} ticket wanted"
    return str(answer)


def _last_seq(redis: Redis) -> int:
    """The number of the last move."""
    return int(redis.get(keys.SEQ()) or 0)


def _shape(redis: Redis) -> Counter[tuple[str, int]]:
    """Of each family of keys: how many there are of which size."""
    sizes: dict[str, Callable[[str], Any]] = {
        "string": lambda name: 1,
        "hash": redis.hlen,
        "list": redis.llen,
        "set": redis.scard,
        "zset": redis.zcard,
        "stream": redis.xlen,
    }
    shape: Counter[tuple[str, int]] = Counter()
    for name in redis.scan_iter(count=1000):
        family = family_of(name)
        shape[family.name if family else name, int(sizes[str(redis.type(name))](name))] += 1
    return shape


def _queue(redis: Redis) -> Queue:
    return Queue(Scripts(redis, queue_name="genqueue"), ticket_cap=16)


def _submit(queue: Queue, reached: Reached) -> Any:
    del reached
    submitted = queue.submit(new_job())
    return submitted.replayed, submitted.ticket_wanted


def _claim(queue: Queue, reached: Reached) -> Any:
    claimed = queue.claim(ClaimRequest(token=new_id(), count=1, window_ms=WINDOW_MS))
    return [attempt.job.id == reached.job_id for attempt in claimed.attempts]


def _supersede(queue: Queue, reached: Reached) -> Any:
    done = queue.supersede(reached.job_id, new_id(), "acme", "ada")
    return done.answer, done.ticket_wanted


def _retry(queue: Queue, reached: Reached) -> Any:
    return queue.retry(reached.job_id, reached.token, ErrorKind.TIMEOUT, "too slow", 0)


def _fail(queue: Queue, reached: Reached) -> Any:
    return queue.fail(reached.job_id, reached.token, ErrorKind.AUTH, "no key")


def _reclaim(queue: Queue, reached: Reached) -> Any:
    del reached
    return queue.reclaim(window_ms=WINDOW_MS, interval_ms=INTERVAL_MS, ceiling_ms=900_000)


def _lease_over(redis: Redis) -> None:
    """As it is when a worker has been silent for its window, and the sweeps went on."""
    seconds, micros = redis.time()
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    redis.set(keys.SWEPT_AT(), now_ms - INTERVAL_MS)
    for job_id in redis.zrange(keys.RUNNING(), 0, -1):
        redis.zadd(keys.RUNNING(), {str(job_id): now_ms - 1})


VERBS = (
    Verb("submit", State.QUEUED, _submit),
    Verb("claim", State.QUEUED, _claim),
    Verb(
        "renew",
        State.RUNNING,
        lambda queue, job: queue.renew({job.job_id: job.token}, window_ms=WINDOW_MS),
    ),
    Verb(
        "succeed",
        State.RUNNING,
        lambda queue, job: queue.succeed(job.job_id, job.token, some_response("response-1")),
    ),
    Verb("retry", State.RUNNING, _retry),
    Verb(
        "snooze",
        State.RUNNING,
        lambda queue, job: queue.snooze(job.job_id, job.token, "busy", 0),
    ),
    Verb("fail", State.RUNNING, _fail),
    Verb(
        "expire",
        State.QUEUED,
        lambda queue, job: queue.expire(job.job_id, ErrorKind.BLOCKED, "never"),
    ),
    Verb(
        "cancel of a queued job", State.QUEUED, lambda queue, job: queue.cancel(job.job_id, "acme")
    ),
    Verb(
        "cancel of a running job",
        State.RUNNING,
        lambda queue, job: queue.cancel(job.job_id, "acme"),
    ),
    Verb("supersede", State.FAILED, _supersede),
    Verb("promote", State.QUEUED, lambda queue, job: queue.promote()),
    Verb("reclaim", State.RUNNING, _reclaim, counts_only_once=True, prepare=_lease_over),
)
