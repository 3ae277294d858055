"""Do chains come through, whatever of their deployment is killed? Submits, kills, and checks."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openai import InvalidWebhookSignatureError, OpenAI
from redis import Redis

from jobs.domain.delivery import DeliveryState
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState, Delivery
from jobs.domain.request_ids import request_id_of
from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.turns import NewTurn, RequestView
from tests.support.delivery_times import lease_ends
from tests.support.ended_chains import CLIENT, KEY, USER
from tests.support.factories import new_id
from tests.support.invariants import problems_of
from tests.support.webhook_receiver import Received

Kill = Callable[[], None]
Start = Callable[[], Kill]
"""Starts something; what it answers ends that with SIGKILL and waits until it is gone."""

LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Sent:
    """A chain that was submitted, and the state that it has to end in: `achieved` on attempt 2,
    or `budget_exhausted` after attempt 3."""

    id: str
    prompt_id: str
    message: str
    state: ChainState

    @property
    def attempts(self) -> int:
        """All of its attempts, the synchronous one included."""
        return 2 if self.state is ChainState.ACHIEVED else 3

    @property
    def failed(self) -> list[int]:
        """The numbers of those that fail."""
        return [1] if self.state is ChainState.ACHIEVED else [1, 2, 3]


class Victims:
    """What is killed at random and started again at once, by name. Call it from the main thread:
    Linux ends what a thread started when that thread ends."""

    def __init__(self, starts: Sequence[tuple[str, Start]], seed: int) -> None:
        self._starts = list(starts)
        self._random = random.Random(seed)
        self._kills = [start() for _, start in self._starts]
        self.killed: Counter[str] = Counter()

    def strike(self, name: str | None = None) -> None:
        """Kill one and start it again: any, or the first of that name."""
        names = [each for each, _ in self._starts]
        place = self._random.randrange(len(names)) if name is None else names.index(name)
        self._kills[place]()
        self._kills[place] = self._starts[place][1]()
        self.killed[names[place]] += 1

    def strike_until(self, is_over: Callable[[], bool], every_s: float, for_s: float) -> bool:
        """Kill one every `every_s` seconds until `is_over`, for `for_s` seconds at most; answers
        whether it is over."""
        until_s = time.monotonic() + for_s
        strike_at_s = time.monotonic() + every_s
        while not is_over() and time.monotonic() < until_s:
            if time.monotonic() >= strike_at_s:
                self.strike()
                strike_at_s += every_s
            time.sleep(LOOK_EVERY_S)
        return is_over()


def submit_chains(runtime: Runtime, count: int, url: str, delay_s: float) -> list[Sent]:
    """Submit turns as the API does, whose calls take `delay_s` each and whose outcomes go to
    `url`; every second one is achieved."""
    sent = []
    for number in range(count):
        state = ChainState.BUDGET_EXHAUSTED if number % 2 else ChainState.ACHIEVED
        chain = Sent(new_id(), new_id(), _message(number, state, delay_s), state)
        new = NewTurn(
            id=chain.id,
            prompt_id=chain.prompt_id,
            client_id=CLIENT,
            user_id=USER,
            org_id=runtime.formation.id,
            message=chain.message,
            delivery=Delivery.WEBHOOK,
            target_url=url,
        )
        if runtime.turns.submit(new).ticket_wanted:
            runtime.tickets.issue()
        sent.append(chain)
    return sent


def _message(number: int, state: ChainState, delay_s: float) -> str:
    """What has the mock fail the turn: alone, or with every plan that it makes."""
    if state is ChainState.BUDGET_EXHAUSTED:
        return f"Chart {number} [[mock sticky error=provider_4xx delay={delay_s:g}]]"
    # A later word wins: the turn fails after a while, the task of the plan takes as long.
    return (
        f"Chart {number} [[mock sticky delay={delay_s:g}]] [[mock planning delay={delay_s:g}]]"
        " [[mock error=provider_4xx]]"
    )


def have_ended(redis: Redis, sent: Sequence[Sent]) -> bool:
    """Whether nothing more happens to any of their requests."""
    return all(_fields(redis, sent, keys.REQUEST, "ended_at"))


def are_delivered(redis: Redis, sent: Sequence[Sent]) -> bool:
    """Whether every outcome was taken by its receiver."""
    return set(_fields(redis, sent, keys.DELIVERY, "state")) == {DeliveryState.DELIVERED}


def end_leases_of_deliveries(redis: Redis) -> None:
    """Let the leases of those who were killed while they posted end now, not within 30 s."""
    for name in redis.scan_iter(match=keys.POSTING("*")):
        taken: Any = redis.zrange(name, 0, -1)
        for delivery_id in taken:
            lease_ends(redis, delivery_id)


def broken_promises(
    runtime: Runtime, sent: Sequence[Sent], received: Sequence[Received]
) -> list[str]:
    """All that is wrong with chains that have ended and are delivered, one a line: their states,
    their attempts, their reports, what was posted of them, and the store as a whole."""
    problems: list[str] = []
    told = _terminal_events(runtime)
    posted = defaultdict(list)
    for got in received:
        posted[got.headers.get("webhook-id", "")].append(got)
    for chain in sent:
        found = [*_wrong_with_record(runtime, chain), *_wrong_with_delivery(runtime, chain)]
        found += _wrong_with_posts(chain, posted.pop(chain.id, []))
        if told[chain.id] != 1:
            found.append(f"its end was told {told[chain.id]} times")
        problems += [f"{chain.state} chain {chain.id}: {problem}" for problem in found]
    problems += [f"{webhook_id!r} was posted, which is no chain" for webhook_id in posted]
    return problems + problems_of(runtime.redis)


def _fields(
    redis: Redis, sent: Sequence[Sent], family: keys.Key, field: str
) -> Sequence[str | None]:
    pipe = redis.pipeline(transaction=False)
    for chain in sent:
        pipe.hget(family(chain.id), field)
    values: list[str | None] = pipe.execute()
    return values


def _terminal_events(runtime: Runtime) -> Counter[str]:
    """How often the end of each chain was told."""
    rows: Any = runtime.redis.xrange(keys.EVENTS(runtime.formation.id))
    terminal = "response.retry.terminal"
    return Counter(event["request"] for _, event in rows if event.get("type") == terminal)


def _wrong_with_record(runtime: Runtime, chain: Sent) -> Iterator[str]:
    view = runtime.turns.read(chain.id)
    prompt = runtime.records.prompt(chain.prompt_id)
    if view is None or prompt is None:
        yield "is lost"
        return
    if view.state is not chain.state:
        yield f"ended {view.state}: {view.detail}"
    if (view.attempts, [entry.number for entry in view.entries]) != (chain.attempts, chain.failed):
        yield f"{view.attempts} attempts, of which {[e.number for e in view.entries]} failed"
    kinds = {entry.failure.kind for entry in view.entries}
    if kinds - {ErrorKind.PROVIDER_4XX}:
        yield f"an attempt is on record that was only interrupted: {sorted(kinds)}"
    if len(prompt.jobs) != chain.attempts:
        yield f"{len(prompt.jobs)} jobs for {chain.attempts} attempts"
    answers = [edge for edge in prompt.edges if edge.type == "flows-to"]
    if len(answers) != (chain.state is ChainState.ACHIEVED):
        yield f"{len(answers)} answers are stored"
    yield from _wrong_with_log(runtime, chain, view)


def _wrong_with_log(runtime: Runtime, chain: Sent, view: RequestView) -> Iterator[str]:
    """A chain that gave up has one line in the captain's log, another one has none (C14)."""
    day = (view.ended_at_ms or 0) // 86_400_000
    log: Any = runtime.redis.lrange(keys.CAPTAINS_LOG(f"{CLIENT}:{day}:{USER}"), 0, -1)
    lines = sum(line.split("|")[1] == chain.id for line in log)
    if lines != (chain.state is not ChainState.ACHIEVED):
        yield f"{lines} lines in the captain's log"


def _wrong_with_delivery(runtime: Runtime, chain: Sent) -> Iterator[str]:
    found = runtime.deliveries.list(CLIENT, USER, ref=chain.id)
    if [(one.id, one.state) for one in found] != [(chain.id, DeliveryState.DELIVERED)]:
        yield f"its deliveries are {[(one.id, one.state.value) for one in found]}"


def _wrong_with_posts(chain: Sent, posts: Sequence[Received]) -> Iterator[str]:
    """A receiver that keeps one post of each id has what happened, and only that."""
    bodies = {got.body for got in posts}
    if len(bodies) != 1:
        yield f"{len(bodies)} different bodies in {len(posts)} posts"
        return
    for got in posts:
        if not is_signed(got):
            yield "a signature does not verify"
    body = json.loads(bodies.pop())
    is_achieved = chain.state is ChainState.ACHIEVED
    wanted = {
        "request_id": request_id_of(chain.id),
        "state": chain.state.value,
        "attempts": chain.attempts,
    }
    if {name: body.get(name) for name in wanted} != wanted:
        yield f"the body says {body}"
    if set(body) != {*wanted, "timestamp", "result" if is_achieved else "report"}:
        yield f"the body has {sorted(body)}"
    if not is_achieved:
        yield from _wrong_with_report(chain, body.get("report", {}))


def _wrong_with_report(chain: Sent, report: dict[str, Any]) -> Iterator[str]:
    attempts = report.get("attempts", [])
    numbers = [(attempt["attempt"], attempt["kind"]) for attempt in attempts]
    if numbers != [(1, "sync"), (2, "async"), (3, "async")]:
        yield f"the report tells of the attempts {numbers}"
    if report.get("original_message") != chain.message:
        yield "the report is of another message"
    reasons = dict.fromkeys(attempt["failure_reason"] for attempt in attempts)
    if report.get("what_would_unblock", "").split(": ", 1)[-1] != "; ".join(reasons):
        yield "what would unblock it is not what failed"


def is_signed(got: Received) -> bool:
    """Whether both of its signatures verify, by HMAC over its bytes and by the SDK's verifier."""
    headers = got.headers
    sent_at = headers.get("x-muxi-timestamp", "")
    digest = hmac.digest(KEY.encode(), sent_at.encode() + b"." + got.body, hashlib.sha256).hex()
    try:
        _VERIFIER.webhooks.verify_signature(got.body, headers, secret=KEY, tolerance=3_600)
    except InvalidWebhookSignatureError:
        return False
    return headers.get("x-muxi-signature") == f"t={sent_at},v1={digest}"


_VERIFIER = OpenAI(api_key="unused")
