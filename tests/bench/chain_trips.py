"""How many round trips to Redis do a chat turn, the end of an attempt and a delivery take?"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from jobs.delivery.assembly import assemble_pool
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, ChainPolicy, Delivery, Failure, NextAttempt
from jobs.domain.job import Attempt
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Plan, Task
from jobs.runtime import Runtime, build
from jobs.settings import Settings
from jobs.store.turns import NewTurn
from service.stack.redis_server import RedisServer
from tests.bench.counting_proxy import CountingProxy, proxied
from tests.bench.figures import Figure, at_most, noted
from tests.support.ended_chains import CLIENT, KEY, USER, end_chain
from tests.support.factories import claim_one, new_id, response_for
from tests.support.webhook_receiver import webhook_receiver

DELIVERIES = 20
POLICY = ChainPolicy(max_attempts=2, idle_timeout_s=900, deadline_s=None)


def round_trips(server: RedisServer) -> list[Figure]:
    """By a counting proxy; the first call of each script, which loads it, is not counted."""
    with proxied(server.port) as proxy:
        settings = Settings(
            redis_url=proxy.url,
            formation_keys=(KEY,),
            webhook_networks=(ipaddress.ip_network("127.0.0.0/8"),),
        )
        runtime = build(settings)
        _turn(runtime, proxy)
        submit, fail, succeed = _turn(runtime, proxy)
        alone, each, again = _deliveries(runtime, proxy)
    return [
        at_most("round trips of submitting a turn", submit, "", 1),
        at_most("round trips of a failed attempt's end", fail, "", 1, "the next one is made by it"),
        at_most("round trips of an achieved attempt's end", succeed, "", 1),
        at_most("round trips of a delivery alone", alone, "", 3, "look, outcome, end"),
        noted("round trips of a delivery among many", each, "", "with looks that find nothing yet"),
        noted("round trips of one that is replayed", again, "", "its body is kept"),
    ]


def _turn(runtime: Runtime, proxy: CountingProxy) -> tuple[int, int, int]:
    """Of a submit, of the end of the turn, which fails, and of the background attempt's."""
    turns, queue = runtime.turns, runtime.queue

    def counted(act: Callable[[], object]) -> int:
        proxy.reset()
        act()
        return proxy.round_trips

    new = NewTurn(
        new_id(), new_id(), CLIENT, USER, runtime.formation.id, "Hello.", Delivery.POLLING
    )
    submit = counted(lambda: turns.submit(new))
    failure = Failure(ErrorKind.PROVIDER_4XX, "in vain")
    entry = AttemptEntry(1, Plan((Task("assistant", "Try"),)), failure)
    left = TurnLeft(entry=entry, next=NextAttempt(0), policy=POLICY)
    turn = claim_one(queue)
    fail = counted(
        lambda: queue.fail(turn.job.id, turn.token, failure.kind, failure.reason, turn=left)
    )
    attempt = claim_one(queue)
    return submit, fail, counted(lambda: _succeed(runtime, attempt))


def _succeed(runtime: Runtime, attempt: Attempt) -> None:
    response = response_for(attempt, text="Done.")
    runtime.queue.succeed(attempt.job.id, attempt.token, response, turn=TurnLeft())


def _deliveries(runtime: Runtime, proxy: CountingProxy) -> tuple[float, float, float]:
    """Of a delivery that is due alone, of each of many for one receiver, and of those when they
    are replayed."""
    pool = assemble_pool(runtime.settings, runtime.deliveries, runtime.turns)
    with webhook_receiver() as receiver:

        def add(count: int) -> list[str]:
            turns, queue = runtime.turns, runtime.queue
            return [end_chain(turns, queue, receiver.url()) for _ in range(count)]

        def counted(count: int) -> float:
            proxy.reset()
            tried = pool.drain()
            if tried != count:
                raise RuntimeError(f"{tried} of {count} deliveries were tried")
            return proxy.round_trips / count

        # Loads the scripts, and opens the connections that several threads need.
        add(DELIVERIES)
        pool.drain()
        add(1)
        alone = counted(1)
        ids = add(DELIVERIES)
        each = counted(DELIVERIES)
        for delivery_id in ids:
            runtime.deliveries.replay(delivery_id, CLIENT, USER)
        return alone, each, counted(DELIVERIES)
