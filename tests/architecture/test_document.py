"""Does ARCHITECTURE.md say what the code says?"""

from __future__ import annotations

import re

from tests.architecture.document import PAGE, written_anew

ROOT = PAGE.parent


def test_the_generated_parts_of_the_page_are_fresh() -> None:
    text = PAGE.read_text("utf-8")

    assert text == written_anew(text), "run: make docs"


def test_every_file_that_the_page_names_exists() -> None:
    text = PAGE.read_text("utf-8")
    where = text.split("## Where do I change")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z_./]+\.(?:py|lua|toml|cfg))`", where)

    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_no_answer_needs_more_than_three_files() -> None:
    text = PAGE.read_text("utf-8")
    where = text.split("## Where do I change")[1].split("\n## ")[0]
    rows = [line for line in where.splitlines() if line.startswith("| ")][2:]

    assert rows
    assert [row for row in rows if len(re.findall(r"`[^`]+`", row.split("|")[2])) > 3] == []
