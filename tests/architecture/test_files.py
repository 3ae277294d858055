"""Does every file stay small enough to be read in one go?"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("jobs", "service", "scheduler", "tests")
SUFFIXES = {".py", ".lua", ".js"}
LONGEST_FILE_LINES = 400
LONGEST_FUNCTION_LINES = 50

FILES = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in SUFFIXES and "vendor" not in path.parts
)
PRODUCT = [path for path in FILES if path.suffix == ".py" and path.parts[0] != "tests"]


def test_there_are_files_to_look_at() -> None:
    assert len(PRODUCT) > 10


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= LONGEST_FILE_LINES


@pytest.mark.parametrize("path", PRODUCT, ids=str)
def test_every_function_is_shorter_than_50_lines(path: Path) -> None:
    long = {
        node.name: lines
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) >= LONGEST_FUNCTION_LINES
    }
    assert long == {}


@pytest.mark.parametrize("path", PRODUCT, ids=str)
def test_no_module_has_a_name_that_says_nothing(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
