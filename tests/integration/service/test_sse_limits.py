"""Do streams live as long as their clients want, and cost the others nothing?"""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from redis import Redis

from jobs.runtime import Runtime
from jobs.store import keys
from jobs.store.queue import Queue
from tests.integration.service.streams import StreamServer, numbers, stream_server
from tests.support.factories import new_job
from tests.support.waiting import wait_until


@pytest.fixture
def key(runtime: Runtime) -> str:
    return runtime.credentials.create("acme", "ada")[1]


@pytest.mark.req("A21")
@pytest.mark.case("SSE-01")
@pytest.mark.timeout(60)
def test_a_quiet_stream_outlives_gunicorns_timeout_and_sends_a_comment(
    tmp_path: Path, redis_url: str, key: str, queue: Queue
) -> None:
    with (
        stream_server(tmp_path, redis_url, "--timeout", "3") as server,
        server.opened(key) as stream,
    ):
        began_s = time.monotonic()
        stream.messages(20, lambda _found: stream.parser.comments > 1)
        assert stream.parser.comments == 2
        assert 14 <= time.monotonic() - began_s <= 17
        queue.submit(new_job())
        assert stream.next(1)
        assert "WORKER TIMEOUT" not in server.process.output()


@pytest.mark.req("A21")
@pytest.mark.case("SSE-03")
def test_streams_beyond_the_limits_are_503_and_requests_go_on(
    tmp_path: Path, redis_url: str, runtime: Runtime, key: str
) -> None:
    others = [runtime.credentials.create(f"org-{n}", "ada")[1] for n in range(3)]
    limits = {"web_threads": 12, "stream_limit": 4, "stream_limit_per_org": 2}
    with stream_server(tmp_path, redis_url, **limits) as server, ExitStack() as ends:

        def refused(one: str) -> str:
            with server.stream(one) as stream:
                assert stream.status == 503
                assert stream.headers["Content-Type"] == "application/problem+json"
                assert int(stream.headers["Retry-After"]) >= 1
                problem = json.loads(stream.response.read())
                assert problem["type"].endswith("too-many-streams")
                return str(problem["detail"])

        ours = [ends.enter_context(server.opened(key)) for _ in range(2)]
        assert "organisation" in refused(key)
        for other in others[:2]:
            ends.enter_context(server.opened(other))
        assert "process" in refused(others[2])
        headers = {"Authorization": f"Bearer {key}"}
        times_s = []
        for _ in range(50):
            began_s = time.monotonic()
            answer = requests.post(
                f"{server.url}/v1/prompt", json={"prompt": "hello"}, headers=headers, timeout=5
            )
            times_s.append(time.monotonic() - began_s)
            assert answer.status_code == 202
        assert sorted(times_s)[-2] < 0.5
        ours[0].drop()
        wait_until(lambda: server.stream(others[2]).status == 200, 5, "the place is free again")


def footprint(server: StreamServer, redis: Redis) -> tuple[int, int, int]:
    """Threads and open files of the web process, connections at Redis."""
    process = server.web_process
    return process.num_threads(), process.num_fds(), len(redis.client_list())


@pytest.mark.req("A21")
def test_a_thousand_connects_and_drops_leave_nothing_behind(
    tmp_path: Path, redis_url: str, key: str, redis: Redis, queue: Queue
) -> None:
    limits = {"web_threads": 64, "stream_limit": 50, "stream_limit_per_org": 50}
    with stream_server(tmp_path, redis_url, **limits) as server:

        def connect_and_drop(_: int) -> None:
            def attempt() -> bool:
                with server.stream(key) as stream:
                    if stream.status == 200:
                        stream.wait_open()
                    return stream.status == 200

            wait_until(attempt, 30, "a place")

        def all_are_gone() -> bool:
            page = requests.get(f"{server.url}/metrics", timeout=5).text
            return "\ngenqueue_stream_clients 0.0\n" in page

        with ThreadPoolExecutor(40) as pool:
            list(pool.map(connect_and_drop, range(100)))
            wait_until(all_are_gone, 10, "the first hundred are gone")
            before = footprint(server, redis)
            list(pool.map(connect_and_drop, range(1000)))
            wait_until(all_are_gone, 10, "all are gone")
            # What stays open is bounded by the 40 at once, not by the thousand.
            wait_until(lambda: footprint(server, redis)[1] <= before[1] + 40, 20, "files close")
        threads, _, connections = footprint(server, redis)
        assert threads <= 64 + 3, "those of requests, the reader and gunicorn's own"
        assert connections <= before[2] + 40
        with ExitStack() as ends:
            streams = [ends.enter_context(server.opened(key)) for _ in range(50)]
            queue.submit(new_job())
            assert all(stream.next(1) for stream in streams), "all places are free and work"


@pytest.mark.req("A21")
@pytest.mark.case("SSE-07")
def test_a_slow_reader_is_dropped_and_the_others_get_everything(
    tmp_path: Path, redis_url: str, key: str, redis: Redis, queue: Queue
) -> None:
    with stream_server(tmp_path, redis_url) as server:
        headers = (
            f"GET /v1/mission/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        )
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(headers.encode())
        assert b"200 OK" in slow.recv(4096)
        with server.opened(key) as stream:
            first = int(redis.get(keys.SEQ()) or 0) + 1
            heard: list[int] = []
            last = first - 1
            while "slow event streams" not in server.process.output():
                pipe = redis.pipeline(transaction=False)
                for number in range(last + 1, last + 501):
                    fields = {"job_id": "x" * 36, "state": "queued", "reason": "y" * 900}
                    pipe.xadd(keys.EVENTS("acme"), fields, id=f"{number}-0")
                last += 500
                pipe.set(keys.SEQ(), last)
                pipe.pexpire(keys.EVENTS("acme"), keys.EVENTS_TTL_MS)
                pipe.execute()
                heard += numbers(stream.next(500))
                assert last < 30_000
            assert heard == list(range(first, last + 1))
            metrics = requests.get(f"{server.url}/metrics", timeout=5).text
            assert re.search(r"^genqueue_stream_clients_dropped_total 1\.0$", metrics, re.MULTILINE)
        slow.settimeout(5)
        with pytest.raises(ConnectionError):  # noqa: PT012  # reads until the end
            while slow.recv(65536):
                pass
            raise ConnectionError("ended in order")
        slow.close()


@pytest.mark.req("A21")
def test_a_process_that_is_told_to_end_lets_its_streams_go_at_once(
    tmp_path: Path, redis_url: str, key: str
) -> None:
    with stream_server(tmp_path, redis_url, "--graceful-timeout", "30") as server:
        with server.opened(key) as stream:
            began_s = time.monotonic()
            server.process.signal(signal.SIGTERM)
            assert stream.messages(10) == []
            assert stream.is_over
            assert time.monotonic() - began_s < 5
        server.process.wait(10)
