"""Does every command explain itself, and end as it should when Redis is away?"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from service.cli.main import genqueue
from tests.integration.cli.conftest import Shell

COMMANDS = {
    "list-jobs": (),
    "job-details": ("0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11",),
    "cancel-job": ("0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11",),
    "retry-job": ("0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11",),
    "queue-metrics": (),
    "reclaim-stuck-jobs": (),
    "archive-old-jobs": ("--dry-run",),
    "quota": (),
    "submit": ("Hello.",),
    "watch": (),
    "proof": ("retry",),
}


@pytest.mark.req("A22", "A26")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    done = CliRunner().invoke(genqueue, [name, "--help"], prog_name="genqueue")
    assert done.exit_code == 0
    assert f"Example: genqueue {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_redis_away_is_one_clear_line_and_status_3(name: str, shell: Shell) -> None:
    done = shell(name, *COMMANDS[name], variables={"REDIS_URL": "redis://127.0.0.1:1/0"})
    assert done.returncode == 3
    lines = done.stderr.strip().splitlines()
    assert lines == ["genqueue: Redis is away: ConnectionError; see REDIS_URL"]
    assert done.stdout == ""
