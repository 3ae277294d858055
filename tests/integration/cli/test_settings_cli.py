"""Does an operator see what is set, who answers chat turns, and what is lacking? (C4)"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.domain.errors import SettingsInvalidError
from jobs.settings import SHIPPED_FORMATION_FILE
from service.cli.main import genqueue
from tests.support.chains import formation_text
from tests.support.models_file import models_text

KEYS = "fmc_0123456789abcdef,fmc_fedcba9876543210"
Told = Callable[..., str]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """What is printed where a formation with agents `writer` and `second` is set."""

    def run(*, agents: int = 2, **variables: str) -> str:
        models, formation = tmp_path / "models.toml", tmp_path / "formation.yaml"
        text = models_text("http://127.0.0.1:1", "writer", "second", "planner")
        with_key = 'type = "openai"\napi_key_env = "A_API_KEY"'
        models.write_text(text.replace('type = "openai"', with_key))
        formation.write_text(formation_text(agents=agents))
        environment = {
            "COLUMNS": "200",
            "GENQUEUE_MODELS_FILE": str(models),
            "GENQUEUE_FORMATION_FILE": str(formation),
        }
        done = CliRunner(env={**environment, **variables}).invoke(genqueue, ["settings"])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


def test_a_default_that_is_none_is_called_so() -> None:
    rows = json.loads(CliRunner().invoke(genqueue, ["settings", "--json"]).stdout)
    defaults = {row["variable"]: row["default"] for row in rows}
    none = {"GENQUEUE_FORMATION_KEYS", "PROMETHEUS_MULTIPROC_DIR", "GENQUEUE_URL"}
    assert {name for name in none if defaults[name] is None} == none
    assert defaults["GENQUEUE_TICKET_CAP"] == "16"
    table = CliRunner(env={"COLUMNS": "250"}).invoke(genqueue, ["settings"]).stdout
    lines = {line.split()[0]: line.split()[1] for line in table.splitlines() if line.split()[1:]}
    assert {lines[name] for name in none} == {"none"}


@pytest.mark.req("C4")
def test_the_settings_say_who_answers_chat_turns(told: Told) -> None:
    shown = told(GENQUEUE_FORMATION_KEYS=KEYS, A_API_KEY="k" * 20)
    fields = shown.partition("\nChat turns in this environment\n")[2]
    for line in ("agent writer    writer", "agent second    second", "planner         planner"):
        assert line in fields
    assert "formation.yaml" in fields
    assert "client keys     2 set" in fields
    assert "What chat turns lack" not in shown
    assert not any(key in shown for key in KEYS.split(","))


@pytest.mark.req("C4", "C21")
def test_the_settings_say_what_chat_turns_lack(told: Told) -> None:
    lacking = told(A_API_KEY="", GENQUEUE_FORMATION_KEYS="").partition("What chat turns lack")[2]
    for model in ("writer", "second", "planner"):
        assert f"model {model} needs the key of provider" in lacking
    assert lacking.count("set A_API_KEY") == 3
    assert "set GENQUEUE_FORMATION_KEYS" in lacking


@pytest.mark.req("C4")
def test_a_formation_file_that_is_wrong_is_told_with_every_problem(
    told: Told, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("agents: []\nspeed: 1\n")
    with pytest.raises(SettingsInvalidError) as caught:
        told(GENQUEUE_FORMATION_FILE=str(bad))
    assert len(caught.value.problems) == 2
    assert str(bad) in caught.value.problems[0]


def test_the_shipped_formation_is_told_where_none_is_set() -> None:
    shown = CliRunner(env={"COLUMNS": "250"}).invoke(genqueue, ["settings"]).stdout
    assert str(SHIPPED_FORMATION_FILE) in shown.partition("Chat turns in this environment")[2]
