"""Does the embedded server keep what it was given, with the settings that the store relies on?"""

import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from service.stack.errors import DataFolderLockedError, RedisStartFailedError
from service.stack.redis_server import RedisServer
from tests.support.redis_server import redis_server, start_redis
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("X1")

STARTS_A_SERVER = """
    import pathlib, sys, time
    from service.stack.redis_server import RedisServer
    server = RedisServer(pathlib.Path(sys.argv[1]))
    server.start()
    print(server.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", aof=True) as running:
        yield running


def connect(server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_it_never_drops_keys_and_writes_an_append_only_file_each_second(
    server: RedisServer,
) -> None:
    settings = connect(server).config_get("*")
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["save"] == ""
    assert settings["stream-node-max-bytes"] == "512"
    assert settings["hash-max-listpack-value"] == "64"
    assert settings["bind"] == "127.0.0.1"


@pytest.mark.req("X13")
def test_what_was_written_is_there_after_a_kill_and_a_start_on_the_same_port(
    server: RedisServer,
) -> None:
    address = server.url
    connect(server).mset({f"key:{number}": number for number in range(3_000)})
    server.kill()
    assert server.pid is None
    server.start()
    assert server.url == address
    assert connect(server).dbsize() == 3_000


def test_it_ends_by_sigterm_and_gives_the_folder_free(tmp_path: Path) -> None:
    server = start_redis(tmp_path, aof=True)
    connect(server).set("kept", "yes")
    pid = server.pid
    server.stop()
    assert not psutil.pid_exists(pid or 0)
    assert "Received SIGTERM" in server.log_path.read_text()
    with redis_server(tmp_path, aof=True) as second:
        assert connect(second).get("kept") == "yes"


def test_two_servers_never_share_a_folder(server: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(DataFolderLockedError, match=f"process {server.pid}"):
        start_redis(tmp_path / "redis")


def test_a_bad_setting_ends_in_one_line_with_the_reason_and_a_free_folder(tmp_path: Path) -> None:
    with pytest.raises(RedisStartFailedError) as caught:
        start_redis(tmp_path, extra=("--no-such-setting", "1"))
    assert "\n" not in str(caught.value)
    with redis_server(tmp_path) as second:
        assert connect(second).ping()


def test_a_port_that_another_server_took_is_not_mistaken_for_ours(
    server: RedisServer, tmp_path: Path
) -> None:
    with pytest.raises(RedisStartFailedError):
        RedisServer(tmp_path / "other", port=server.port).start()


def test_a_new_server_on_a_folder_takes_the_port_of_the_last_one_where_it_is_free(
    tmp_path: Path,
) -> None:
    with redis_server(tmp_path / "data") as first:
        address, port = first.url, first.port
    with redis_server(tmp_path / "data") as second:
        assert second.url == address
    with socket.create_server(("127.0.0.1", port)), redis_server(tmp_path / "data") as third:
        assert third.port != port
        moved = third.port
    with redis_server(tmp_path / "data") as fourth:
        assert fourth.port == moved


def test_a_kept_port_that_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("99999\n")
    with redis_server(tmp_path) as server:
        assert connect(server).ping()


def test_extra_settings_win(tmp_path: Path) -> None:
    with redis_server(tmp_path, extra=("--maxmemory", "5mb")) as server:
        assert connect(server).config_get("maxmemory") == {"maxmemory": "5242880"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux only")
def test_no_server_is_left_behind_when_its_starter_is_killed(tmp_path: Path) -> None:
    code = textwrap.dedent(STARTS_A_SERVER)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    try:
        wait_until(lambda: not server.is_running(), 10, "the server ended after its starter")
    finally:
        if server.is_running():
            server.kill()
