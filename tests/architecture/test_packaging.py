"""Are the lock files complete, bound by hashes, and free of any one machine's index?"""

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("jobs", "service", "scheduler")
LOCKS = ("requirements.lock", "requirements-test.lock")
pytestmark = pytest.mark.req("X2")


def entries(lock: str) -> dict[str, str]:
    """Each pinned package with its version, markers and hashes."""
    joined = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]
    return {line.partition("==")[0]: line.partition("==")[2] for line in lines}


def declared(section: str, option: str) -> dict[str, str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = [line for line in config[section][option].splitlines() if line[:1] not in {"", "#"}]
    parts = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", line) for line in lines]
    return {part[1]: part[2] for part in parts if part is not None}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("    --hash=", ""), re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_is_bound_by_hashes(lock: str) -> None:
    assert [name for name, rest in entries(lock).items() if "--hash=sha256:" not in rest] == []


def test_the_locks_hold_what_the_package_declares_and_agree() -> None:
    runtime, everything = entries("requirements.lock"), entries("requirements-test.lock")
    assert declared("options", "install_requires").keys() <= runtime.keys()
    assert declared("options.extras_require", "test").keys() <= everything.keys()
    versions = {name: rest.split()[0] for name, rest in runtime.items()}
    assert {name: everything[name].split()[0] for name in runtime} == versions


def test_the_packages_whose_insides_are_used_are_pinned_exactly() -> None:
    pins = declared("options", "install_requires")
    for name in ("rq", "redis", "rq-scheduler", "rq-dashboard"):
        assert pins[name].startswith("==")
        assert entries("requirements.lock")[name].split()[0] == pins[name][2:]


def top_packages(source: str) -> Iterator[str]:
    """The packages that a module imports, and those whose files it reads."""
    yield from re.findall(r"""resources\.files\("(\w+)"\)""", source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_every_package_that_the_product_imports_is_declared() -> None:
    sources = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    imported = {name for path in sources for name in top_packages(path.read_text())}
    foreign = imported - sys.stdlib_module_names - set(PRODUCT)
    carriers = packages_distributions()
    wanted = {carriers[name][0].lower().replace("_", "-") for name in foreign}
    assert wanted - declared("options", "install_requires").keys() == set()


def stub_python(folder: Path, name: str, code: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.req("X1")
def test_a_machine_without_a_usable_python_gets_one_clear_line(tmp_path: Path) -> None:
    shim = stub_python(tmp_path, "python3.13", "echo 'command not found' >&2; exit 127")
    old = stub_python(
        tmp_path, "python3.9", 'case "$2" in *platform*) echo 3.9.2;; *) exit 1; esac'
    )
    made = subprocess.run(
        ["make", "run", f"VENV={tmp_path / 'venv'}", f"PYTHONS={shim} {old}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode != 0
    said = [line for line in made.stderr.splitlines() if not line.startswith("make")]
    assert said == [f"genqueue needs Python 3.11 or newer with its venv module; found: {old}=3.9.2"]


def test_make_alone_explains_every_command() -> None:
    told = subprocess.run(
        ["make"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for command in ("run", "test", "check", "bench", "lock", "clean"):
        assert re.search(rf"^  make {command} +[A-Z]", told, re.MULTILINE)
