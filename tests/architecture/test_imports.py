"""What may be imported and read where, beyond what import-linter can say?"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = sorted((ROOT / "jobs/domain").rglob("*.py"))
PRODUCT = sorted(
    path for folder in ("jobs", "service", "scheduler") for path in (ROOT / folder).rglob("*.py")
)
ENVIRONMENT = {"environ", "environb", "getenv"}
# The stack hands its own environment on to its children and reads where it shall run.
READERS_OF_THE_ENVIRONMENT = {"jobs/settings.py", "service/stack/environment.py"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("path", DOMAIN, ids=lambda path: path.name)
def test_the_domain_imports_the_standard_library_and_itself_only(path: Path) -> None:
    foreign = {
        name
        for name in imported(ast.parse(path.read_text()))
        if name.partition(".")[0] not in sys.stdlib_module_names
        and name != "jobs.domain"
        and not name.startswith("jobs.domain.")
    }
    assert foreign == set()


@pytest.mark.req("X12")
def test_nothing_imports_pickle() -> None:
    guilty = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        if {"pickle", "marshal", "shelve"} & set(imported(ast.parse(path.read_text())))
    }
    assert guilty == set()


def reads_the_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(a.name in ENVIRONMENT for a in node.names)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ENVIRONMENT
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


def test_one_module_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text()))
        if reads_the_environment(node)
    }
    assert readers <= READERS_OF_THE_ENVIRONMENT


def test_a_web_process_does_not_load_the_provider_sdk() -> None:
    code = "import sys, service.app; sys.exit('openai' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
