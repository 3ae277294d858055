"""What does `genqueue` print, and with which status does it end?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from jobs.runtime import Runtime
from jobs.settings import describe
from service.app import create_app
from service.cli.main import genqueue


def run(
    *words: str, redis_url: str = "redis://127.0.0.1:1/0", **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *words],
        env={**os.environ, "REDIS_URL": redis_url, "COLUMNS": "200", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def invoke(redis_url: str, *words: str) -> Result:
    """The same commands in this process; the table of a wide terminal."""
    return CliRunner(env={"REDIS_URL": redis_url, "COLUMNS": "200"}).invoke(genqueue, words)


@pytest.mark.req("X12")
def test_a_key_is_shown_once_works_is_listed_and_ends(
    redis_url: str, redis: Redis, runtime: Runtime
) -> None:
    made = run("keys", "create", "--org", "acme", "--user", "ann", "--json", redis_url=redis_url)
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)
    assert {"key", "key_id", "org", "user", "created_at"} == set(key)
    client = create_app(runtime).test_client()
    headers = {"Authorization": f"Bearer {key['key']}"}
    assert client.get("/v1/jobs/x", headers=headers).status_code == 404
    secret = key["key"].rsplit("_", 1)[1]
    stored = [redis.hgetall(name) for name in redis.scan_iter(match="*key:*")]
    assert stored
    assert secret not in json.dumps(stored)

    listed = invoke(redis_url, "keys", "list", "--json")
    assert [one["key_id"] for one in json.loads(listed.stdout)] == [key["key_id"]]
    assert secret not in listed.stdout
    table = invoke(redis_url, "keys", "list").stdout
    assert key["key_id"] in table
    assert "acme" in table

    assert invoke(redis_url, "keys", "revoke", key["key_id"]).exit_code == 0
    again = invoke(redis_url, "keys", "revoke", key["key_id"])
    assert again.exit_code == 1
    assert key["key_id"] in again.stderr
    assert invoke(redis_url, "keys", "list").stdout.strip() == "There are no keys."


def test_a_key_for_people_is_on_a_line_of_its_own(redis_url: str) -> None:
    made = invoke(redis_url, "keys", "create", "--org", "acme", "--user", "ann")
    assert made.stdout.splitlines()[-1].startswith("gq_")


@pytest.mark.req("X12")
def test_a_bad_name_for_an_org_is_a_usage_error(redis_url: str) -> None:
    done = invoke(redis_url, "keys", "create", "--org", "a b", "--user", "ann")
    assert done.exit_code == 2
    assert "org must be 1 to 32" in done.stderr


def test_every_wrong_setting_is_a_line_of_its_own_and_status_2() -> None:
    done = run(
        "keys", "list", GENQUEUE_TICKET_CAP="many", GENQUEUE_TIKET_CAP="1", GENQUEUE_QUEUE="a b"
    )
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 3
    for variable in ("GENQUEUE_TICKET_CAP", "GENQUEUE_TIKET_CAP", "GENQUEUE_QUEUE"):
        assert any(line.startswith(f"genqueue: {variable}: ") for line in lines)


def test_redis_away_is_one_clear_line_and_status_3() -> None:
    done = run("keys", "list")
    assert done.returncode == 3
    assert done.stderr.strip().splitlines() == [
        "genqueue: Redis is away: ConnectionError; see REDIS_URL"
    ]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("keys",),
        ("keys", "create"),
        ("keys", "list"),
        ("keys", "revoke"),
        ("worker",),
        ("run-worker",),
        ("settings",),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself_with_an_example(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(genqueue, [*words, "--help"], prog_name="genqueue")
    assert done.exit_code == 0
    assert f"Example: genqueue {' '.join(words)}".strip() in done.stdout


def test_the_settings_are_listed_for_people_and_programs() -> None:
    rows = json.loads(CliRunner().invoke(genqueue, ["settings", "--json"]).stdout)
    assert [row["variable"] for row in rows] == [variable for variable, _, _ in describe()]
    assert "REDIS_URL" in CliRunner().invoke(genqueue, ["settings"]).stdout


def test_the_settings_name_no_rows_of_our_documents() -> None:
    for words in (["settings"], ["settings", "--json"]):
        assert not re.search(r"\([A-Z]\d+\)", CliRunner().invoke(genqueue, words).stdout)
    assert any(re.search(r"\([A-Z]\d+\)", meaning) for _, _, meaning in describe())


@pytest.mark.req("B5", "B13")
def test_the_settings_say_what_generations_lack(tmp_path: Path) -> None:
    lacking = CliRunner(env={"OPENAI_API_KEY": "", "GENQUEUE_EXTRACTION_MODEL": ""})
    told = lacking.invoke(genqueue, ["settings"]).stdout.partition("What generations lack")[2]
    for model in ("gpt-5-mini", "gpt-5.6-luna"):
        assert f"model {model} needs the key of provider openai: set OPENAI_API_KEY" in told

    models = tmp_path / "models.toml"
    models.write_text(
        'default_model = "m"\n[providers.mock]\ntype = "mock"\n[[models]]\nid = "m"\n'
        'provider = "mock"\ninput_usd_micros_per_mtok = 0\noutput_usd_micros_per_mtok = 0\n'
    )
    variables = {"GENQUEUE_MODELS_FILE": str(models), "GENQUEUE_EXTRACTION_MODEL": "m"}
    assert "generations lack" not in CliRunner(env=variables).invoke(genqueue, ["settings"]).stdout


def test_options_of_a_single_run_are_refused_without_once() -> None:
    done = CliRunner().invoke(genqueue, ["run-worker", "--batch-size", "3"])
    assert done.exit_code == 2
    assert "--batch-size goes with --once" in done.stderr
