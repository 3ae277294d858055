"""How soon do a hundred clients hear of a move, and does one that drops out lose any?"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships none

from jobs.runtime import Runtime
from jobs.store import keys
from tests.bench.figures import Figure, at_most, noted, percentile
from tests.bench.fleet import runtime_for
from tests.bench.open_loop import Post, at_rate
from tests.bench.stage import Stage, Started, pss_bytes
from tests.bench.web_server import serve
from tests.support.factories import claim_one, new_job, response_for
from tests.support.sse_client import EventStream, Parser

CLIENTS = 100
ORGS = ("org-a", "org-b", "org-c", "org-d")
PER_S = 50.0
RECONNECTS = 200
P99_MS = 200.0
SUBMITS_PER_S = 10.0
EVENTS = "/v1/mission/events"


@dataclass
class Client:
    """One open stream; `chunks` are what came, each with its moment by the wall clock."""

    org_id: str
    socket: socket.socket
    chunks: list[tuple[float, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Server:
    """gunicorn as the stack runs it, and a key of each organisation."""

    port: int
    started: Started
    key_by_org: dict[str, str]

    def web_pids(self) -> list[int]:
        """The processes that answer."""
        return [child.pid for child in psutil.Process(self.started.pid).children()]


def run(stage: Stage) -> list[Figure]:
    """Latency with 100 clients beside submits, then one client that reconnects all the time."""
    server = stage.redis()
    runtime = runtime_for(server)
    web = _serve(stage, runtime)
    return [*_latency(stage, runtime, web), *_reconnects(stage, runtime, web)]


def _latency(stage: Stage, runtime: Runtime, web: Server) -> Iterator[Figure]:
    for_s = stage.amount(15, 4)
    post = Post(
        web.port,
        "/v1/prompt",
        b'{"prompt": "Hello.", "priority": 100}',
        {"Content-Type": "application/json", "Authorization": f"Bearer {web.key_by_org['org-a']}"},
    )
    # Through all threads once, so that what the streams cost is not the first use of a process.
    at_rate(post, per_s=50, for_s=1)
    before = sum(pss_bytes(pid) for pid in web.web_pids())
    clients = [_connect(web, ORGS[number % len(ORGS)]) for number in range(CLIENTS)]
    first = runtime.events.last_seq()
    stage.say(
        f"{CLIENTS} clients, {PER_S:.0f} moves/s for {for_s} s, {SUBMITS_PER_S:.0f} submits/s"
    )
    with _reading(clients), _moving(runtime):
        load = at_rate(post, per_s=SUBMITS_PER_S, for_s=for_s)
    grown = sum(pss_bytes(pid) for pid in web.web_pids()) - before
    told = {org: [seq for seq in _told(runtime, org) if seq > first] for org in ORGS}
    late_ms: list[float] = []
    wrong = 0
    for client in clients:
        heard = list(_messages(client))
        late_ms += [late for _, late in heard]
        wrong += [seq for seq, _ in heard] != told[client.org_id]
        client.socket.close()
    note = f"{len(late_ms):,} events told, Redis clock to client"
    yield noted("event to client, p50", percentile(late_ms, 50), "ms", note)
    yield at_most(f"event to client, p99, {CLIENTS} clients", percentile(late_ms, 99), "ms", P99_MS)
    yield at_most("clients that lost, doubled or swapped an event", wrong, "", 0)
    p99_ms = percentile(load.latencies_s, 99) * 1000
    statuses = ", ".join(f"{n} x {status}" for status, n in load.statuses.items())
    yield at_most("POST /v1/prompt beside them, p99", p99_ms, "ms", 100, statuses)
    yield noted("memory of a stream", grown / CLIENTS / 1024, "KB", "Pss of all web processes")


def _reconnects(stage: Stage, runtime: Runtime, web: Server) -> Iterator[Figure]:
    wanted = stage.amount(RECONNECTS, 30)
    org, last_id = "org-a", str(runtime.events.last_seq())
    first, heard, count = int(last_id), list[int](), 0
    stage.say(f"one client with {wanted} forced reconnects under {PER_S:.0f} moves/s")
    headers = {"Authorization": f"Bearer {web.key_by_org[org]}"}
    with _moving(runtime, orgs=(org,)):
        while count < wanted:
            with EventStream(web.port, EVENTS, {**headers, "Last-Event-ID": last_id}) as stream:
                # Now and then it breaks off at once, or in the middle of what it missed.
                messages = stream.messages((0.0, 0.01, 0.05, 0.1)[count % 4])
            heard += [message.json["seq"] for message in messages]
            last_id = messages[-1].last_id if messages else last_id
            count += 1
    with EventStream(web.port, EVENTS, {**headers, "Last-Event-ID": last_id}) as stream:
        heard += [message.json["seq"] for message in stream.messages(2)]
    told = [seq for seq in _told(runtime, org) if seq > first]
    wrong = len(set(told) ^ set(heard)) + len(heard) - len(set(heard))
    note = f"{len(heard):,} events over {count} reconnects"
    yield at_most("events lost or doubled over reconnects", wrong, "", 0, note)


def _serve(stage: Stage, runtime: Runtime) -> Server:
    web = serve(stage, {"REDIS_URL": runtime.settings.redis_url})
    made = {org: runtime.credentials.create(org, "ada")[1] for org in ORGS}
    return Server(web.port, web.started, made)


def _connect(web: Server, org_id: str) -> Client:
    connection = socket.create_connection(("127.0.0.1", web.port))
    # HTTP/1.0: the body comes as it is, without chunks.
    request = f"GET {EVENTS} HTTP/1.0\r\nAuthorization: Bearer {web.key_by_org[org_id]}\r\n\r\n"
    connection.sendall(request.encode())
    head = b""
    while b": connected\n\n" not in head:
        data = connection.recv(4096)
        if not data:
            raise RuntimeError(f"a stream was refused: {head[:300]!r}")
        head += data
    return Client(org_id, connection)


@contextmanager
def _reading(clients: list[Client]) -> Iterator[None]:
    """Note what comes and when; a second longer than the block."""
    stop = threading.Event()

    def read() -> None:
        with selectors.DefaultSelector() as ready:
            for client in clients:
                ready.register(client.socket, selectors.EVENT_READ, client)
            while not stop.is_set():
                for key, _ in ready.select(0.1):
                    key.data.chunks.append((time.time(), key.data.socket.recv(1 << 16)))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
        time.sleep(1)
    finally:
        stop.set()
        thread.join()


@contextmanager
def _moving(runtime: Runtime, orgs: tuple[str, ...] = ORGS) -> Iterator[None]:
    """Jobs that are submitted, claimed and ended at PER_S moves a second in all."""
    stop = threading.Event()

    def move() -> None:
        due_s, number = time.monotonic(), 0
        while not stop.is_set():
            runtime.queue.submit(new_job(org_id=orgs[number % len(orgs)], priority=0))
            attempt = claim_one(runtime.queue)
            runtime.queue.succeed(attempt.job.id, attempt.token, response_for(attempt))
            number, due_s = number + 1, due_s + 3 / PER_S
            time.sleep(max(0.0, due_s - time.monotonic()))

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _messages(client: Client) -> Iterator[tuple[int, float]]:
    """Number and lateness in ms of every event that the client heard."""
    parser = Parser()
    for moment_s, data in client.chunks:
        for message in parser.feed(data):
            row: dict[str, Any] = message.json
            if message.name == "gap":
                raise RuntimeError(f"a gap was told: {row}")
            at_s = datetime.fromisoformat(row["at"]).timestamp()
            yield row["seq"], (moment_s - at_s) * 1000


def _told(runtime: Runtime, org_id: str) -> list[int]:
    rows: Any = runtime.redis.xrange(keys.EVENTS(org_id))
    return [int(entry.partition("-")[0]) for entry, _ in rows]
