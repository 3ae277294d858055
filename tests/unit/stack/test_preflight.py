"""What refuses to start, and in which words?"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.stack.errors import PortBusyError, RedisPolicyWrongError, RedisUnreachableError
from service.stack.free_port import free_port
from service.stack.preflight import check_port, check_redis, shown_address
from tests.support.redis_server import RedisServer, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


def test_a_busy_port_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortBusyError, match=rf"^port {port} is in use: .*--port$"):
            check_port(port)


def test_a_free_port_passes() -> None:
    check_port(free_port())


def test_a_redis_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(RedisUnreachableError) as caught:
        check_redis(f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    line = str(caught.value)
    assert "127.0.0.1" in line
    assert "REDIS_URL" in line
    assert "hunter2" not in line
    assert "\n" not in line


def test_a_redis_url_that_is_none_is_refused_in_the_same_way() -> None:
    with pytest.raises(RedisUnreachableError):
        check_redis("http://example.invalid")


def test_a_redis_that_may_drop_keys_is_refused_with_its_policy(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path, extra=("--maxmemory-policy", "allkeys-lru")) as server,
        pytest.raises(RedisPolicyWrongError, match=r"allkeys-lru.*noeviction"),
    ):
        check_redis(server.url)


def test_a_usable_redis_is_described_by_name_and_version(server: RedisServer) -> None:
    assert check_redis(server.url).split()[0] in {"Redis", "Valkey"}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:secret@cache:6380/1", "cache:6380"),
        ("redis://cache", "cache"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, address: str) -> None:
    assert shown_address(url) == address
