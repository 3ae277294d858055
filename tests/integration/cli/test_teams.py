"""Can an operator make a team, let it generate, and see what it used? (B2, B17, B21)"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from jobs.domain.billing import Bill, BilledCall
from jobs.domain.entities import Usage
from jobs.runtime import Runtime
from jobs.store.bills import bill_text
from jobs.store.flags import WORKFLOWS_LLM_ACTION
from service.app import create_app
from service.cli.main import genqueue
from tests.integration.cli.conftest import Invoke, Shell
from tests.integration.service.team_caller import TeamCaller
from tests.support.factories import claim_one

ReadJson = Callable[..., Any]


@pytest.mark.req("B2", "B17", "B21")
def test_one_command_makes_a_team_that_can_generate(shell: Shell, runtime: Runtime) -> None:
    words = ("teams", "create", "1", "--org", "acme", "--enable", "--credits", "5", "--json")
    done = shell(*words)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert set(made) == {"team", "org", "created_at", "key_id", "token"}
    team = TeamCaller(create_app(runtime).test_client(), made["token"], "1")
    assert team.submit().status_code == 202
    assert runtime.credits.of_org("acme").cap_usd_micros == 5_000_000


@pytest.mark.req("B2", "B21")
def test_without_more_a_team_has_neither_the_feature_nor_credits(
    invoke: Invoke, runtime: Runtime
) -> None:
    made = invoke("teams", "create", "1", "--org", "acme")
    assert made.exit_code == 0, made.output
    token = made.stdout.splitlines()[-1]
    assert token.startswith("gqt_")
    team = TeamCaller(create_app(runtime).test_client(), token, "1")
    assert team.submit().json["error"]["code"] == "feature_unavailable"  # type: ignore[index]
    assert "is on for org acme" in invoke("orgs", "flag", "acme", "--on").stdout
    assert team.submit().json["error"]["code"] == "quota_exceeded"  # type: ignore[index]
    assert invoke("orgs", "credits", "acme", "--cap", "0.5").exit_code == 0
    assert team.submit().status_code == 202


@pytest.mark.req("B17", "B21")
def test_a_team_says_what_its_organisation_got_with_it(invoke: Invoke) -> None:
    made = invoke("teams", "create", "1", "--org", "acme", "--enable", "--credits", "5")
    assert made.stdout.splitlines()[:2] == [
        f"Org acme has the feature {WORKFLOWS_LLM_ACTION} now.",
        "Org acme may spend $5.00 in all now.",
    ]
    plain = invoke("teams", "create", "2", "--org", "acme")
    assert len(plain.stdout.splitlines()) == 2


@pytest.mark.req("B17")
def test_credits_of_a_further_team_are_refused_where_the_organisation_has_a_cap(
    invoke: Invoke, invoke_json: ReadJson, runtime: Runtime
) -> None:
    invoke("orgs", "credits", "acme", "--cap", "6")
    refused = invoke("teams", "create", "1", "--org", "acme", "--enable", "--credits", "5")
    assert refused.exit_code == 1
    assert refused.stderr.strip() == (
        "org acme has a cap of $6.00 already; see genqueue orgs credits acme."
    )
    assert invoke_json("teams", "list") == []
    assert not invoke_json("orgs", "flag", "acme")["on"]
    assert runtime.credits.of_org("acme").cap_usd_micros == 6_000_000
    assert invoke("teams", "create", "1", "--org", "acme", "--enable").exit_code == 0


def test_the_same_team_twice_is_told_of_before_the_cap(invoke: Invoke) -> None:
    words = ("teams", "create", "1", "--org", "acme", "--credits", "5")
    assert invoke(*words).exit_code == 0
    assert "team 1 exists already" in invoke(*words).stderr


@pytest.mark.req("B2", "X12")
def test_tokens_are_listed_beside_keys_and_end_like_them(
    invoke: Invoke, invoke_json: ReadJson, runtime: Runtime
) -> None:
    first = invoke_json("teams", "create", "1", "--org", "acme")
    second = invoke_json("teams", "token", "1")
    key = invoke_json("keys", "create", "--org", "acme", "--user", "ann")
    assert first["token"] != second["token"]

    listed = {one["key_id"]: one for one in invoke_json("keys", "list")}
    assert listed.keys() == {first["key_id"], second["key_id"], key["key_id"]}
    assert listed[first["key_id"]]["team"] == "1"
    assert listed[key["key_id"]]["team"] is None
    table = invoke("keys", "list").stdout
    assert table.splitlines()[0].split() == ["key", "id", "org", "user", "team", "created"]
    for secret in (first["token"], second["token"]):
        assert secret.rsplit("_", 1)[1] not in table + json.dumps(listed)

    assert invoke("keys", "revoke", first["key_id"]).exit_code == 0
    assert runtime.credentials.authenticate(first["token"]) is None
    assert runtime.credentials.authenticate(second["token"]) is not None


@pytest.mark.req("B2")
def test_a_team_is_made_once(invoke: Invoke, invoke_json: ReadJson, runtime: Runtime) -> None:
    invoke("teams", "create", "1", "--org", "acme")
    again = invoke("teams", "create", "1", "--org", "rival", "--enable", "--credits", "5")
    assert again.exit_code == 1
    assert "team 1 exists already, in organisation acme" in again.stderr
    assert not invoke_json("orgs", "flag", "rival")["on"]
    assert runtime.credits.of_org("rival").cap_usd_micros is None
    assert len(invoke_json("keys", "list")) == 1


def test_teams_are_listed_for_people_and_programs(invoke: Invoke, invoke_json: ReadJson) -> None:
    assert invoke("teams", "list").stdout.strip() == "There are no teams."
    for team, org in (("2", "acme"), ("1", "rival")):
        invoke("teams", "create", team, "--org", org)
    assert [one["team"] for one in invoke_json("teams", "list")] == ["1", "2"]
    assert [one["team"] for one in invoke_json("teams", "list", "--org", "acme")] == ["2"]
    table = invoke("teams", "list").stdout
    assert "rival" in table
    assert "gqt_" not in table


@pytest.mark.parametrize("command", ["token", "show"])
def test_a_team_that_there_is_not_is_status_1(invoke: Invoke, command: str) -> None:
    done = invoke("teams", command, "1")
    assert done.exit_code == 1
    assert "no team 1" in done.stderr
    assert done.stdout == ""


def bill() -> Bill:
    known = BilledCall(1, "mock-1", "mock", "req-1", Usage(12, 34), 1_250_001, 0, 900)
    unknown = BilledCall(
        2, "mock-1", "mock", None, Usage(None, None), None, 250_000, 4000, "timeout"
    )
    return Bill((known, unknown))


@pytest.mark.req("B17")
def test_a_team_shows_what_it_used_newest_first(
    invoke: Invoke, invoke_json: ReadJson, runtime: Runtime, redis: Redis
) -> None:
    words = ("teams", "create", "1", "--org", "acme", "--enable", "--credits", "5")
    token = invoke(*words).stdout.splitlines()[-1]
    team = TeamCaller(create_app(runtime).test_client(), token, "1")
    generation_id = team.submit().json["id"]  # type: ignore[index]
    attempt = claim_one(runtime.queue)
    text = bill_text(attempt.job, bill(), is_captured=False)
    runtime.queue.succeed_generation(attempt.job.id, attempt.token, '{"text":"","fields":{}}', text)

    told = invoke_json("teams", "show", "1")
    assert told["flags"] == {WORKFLOWS_LLM_ACTION: True}
    assert told["credits"] == {
        "spent_usd_micros": 1_250_001,
        "reserved_usd_micros": 0,
        "unsettled_usd_micros": 250_000,
    }
    assert [row["properties"]["pass"] for row in told["ledger"]] == [2, 1]
    assert invoke_json("teams", "show", "1", "--rows", "1")["ledger"] == told["ledger"][:1]
    shown = invoke("teams", "show", "1").stdout
    for part in (generation_id, "$1.250001", "unknown", "mock-1", "$0.25", "12", "34"):
        assert part in shown
    assert "Nothing was booked." in invoke("teams", "show", "1", "--rows", "0").stdout


@pytest.mark.req("B17")
def test_credits_are_set_raised_shown_and_written_off_to_the_micro_dollar(
    invoke: Invoke, invoke_json: ReadJson, redis: Redis
) -> None:
    assert "no credits" in invoke("orgs", "credits", "acme").stdout
    assert invoke_json("orgs", "credits", "acme", "--cap", "0.1")["cap_usd_micros"] == 100_000
    assert invoke_json("orgs", "credits", "acme", "--add", "$0.000249")["cap_usd_micros"] == 100_249
    redis.hset("{gq}:credits:acme", mapping={"spent": 1, "reserved": 20, "unsettled": 300})
    assert invoke_json("orgs", "credits", "acme") == {
        "org": "acme",
        "cap_usd_micros": 100_249,
        "spent_usd_micros": 1,
        "reserved_usd_micros": 20,
        "unsettled_usd_micros": 300,
        "left_usd_micros": 99_928,
    }
    shown = invoke("orgs", "credits", "acme").stdout
    for part in ("$0.100249", "$0.000001", "$0.00002", "$0.0003", "$0.099928"):
        assert part in shown
    done = invoke("orgs", "credits", "acme", "--write-off", "--json")
    assert json.loads(done.stdout)["unsettled_usd_micros"] == 0
    assert "Wrote off $0.0003." in done.stderr
    assert invoke_json("orgs", "credits", "acme", "--no-cap")["cap_usd_micros"] is None


@pytest.mark.req("B17")
def test_what_is_written_off_goes_from_the_figures_of_the_teams_and_into_their_ledgers(
    invoke: Invoke, invoke_json: ReadJson, redis: Redis
) -> None:
    for team, org, held in (("1", "acme", 200), ("2", "acme", 100), ("3", "rival", 7)):
        invoke("teams", "create", team, "--org", org)
        redis.hset(f"{{gq}}:team_credits:{team}", "unsettled", held)
    redis.hset("{gq}:credits:acme", "unsettled", 300)
    assert "Wrote off $0.0003." in invoke("orgs", "credits", "acme", "--write-off").stderr
    for team, held in (("1", 200), ("2", 100)):
        told = invoke_json("teams", "show", team)
        assert told["credits"]["unsettled_usd_micros"] == 0
        (row,) = told["ledger"]
        assert row["event"] == "credits_written_off"
        assert row["properties"] == {"team_id": team, "usd_micros": held}
    assert "$0.0002 written off" in invoke("teams", "show", "1").stdout
    rival = invoke_json("teams", "show", "3")
    assert (rival["credits"]["unsettled_usd_micros"], rival["ledger"]) == (7, [])


def test_an_organisation_of_nobody_is_warned_of_and_set_all_the_same(
    invoke: Invoke, invoke_json: ReadJson
) -> None:
    warning = "No key and no team belongs to org acne yet."
    assert warning in invoke("orgs", "flag", "acne", "--on").stderr
    assert warning in invoke("orgs", "credits", "acne", "--cap", "5").stderr
    assert invoke_json("orgs", "flag", "acne")["on"]
    assert invoke_json("orgs", "credits", "acne")["cap_usd_micros"] == 5_000_000
    invoke("teams", "create", "1", "--org", "acne")
    invoke("keys", "create", "--org", "umbrella", "--user", "ann")
    for org in ("acne", "umbrella"):
        assert invoke("orgs", "credits", org).stderr == ""


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    "amount", ["", "-1", "1e3", "NaN", "inf", "1.0000001", "1,5", "٣", "1.", ".5", "9999999999"]
)
def test_an_amount_that_is_none_changes_nothing(
    invoke: Invoke, invoke_json: ReadJson, amount: str
) -> None:
    for option in ("--cap", "--add"):
        done = invoke("orgs", "credits", "acme", f"{option}={amount}")
        assert done.exit_code == 2
        assert "is no amount" in done.stderr
    done = invoke("teams", "create", "1", "--org", "acme", f"--credits={amount}")
    assert done.exit_code == 2
    assert invoke_json("orgs", "credits", "acme")["cap_usd_micros"] is None
    assert invoke_json("teams", "list") == []


@pytest.mark.req("B21")
def test_a_flag_is_shown_and_switched_by_organisation(
    invoke: Invoke, invoke_json: ReadJson
) -> None:
    assert invoke_json("orgs", "flag", "acme") == {
        "org": "acme",
        "flag": WORKFLOWS_LLM_ACTION,
        "on": False,
    }
    assert invoke_json("orgs", "flag", "acme", "--on")["on"]
    assert invoke_json("orgs", "flag", "acme")["on"]
    assert not invoke_json("orgs", "flag", "rival")["on"]
    assert not invoke_json("orgs", "flag", "acme", "another", "--off")["on"]
    assert not invoke_json("orgs", "flag", "acme", "--off")["on"]
    assert "is off for org acme" in invoke("orgs", "flag", "acme").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("teams", "create", "a b", "--org", "acme"),
        ("teams", "create", "1", "--org", "a b"),
        ("teams", "create", "1"),
        ("orgs", "flag", "a b", "--on"),
        ("orgs", "flag", "acme", "A Flag", "--on"),
        ("orgs", "credits", "a b"),
        ("orgs", "credits", "acme", "--cap", "1", "--add", "1"),
        ("orgs", "credits", "acme", "--cap", "1", "--no-cap"),
    ],
    ids=" ".join,
)
def test_what_can_t_be_meant_is_a_usage_error_and_changes_nothing(
    invoke: Invoke, redis: Redis, words: tuple[str, ...]
) -> None:
    assert invoke(*words).exit_code == 2
    assert redis.dbsize() == 0


@pytest.mark.req("A22")
@pytest.mark.parametrize(
    "words",
    [
        *(("teams",), ("teams", "create"), ("teams", "token"), ("teams", "list")),
        *(("teams", "show"), ("orgs",), ("orgs", "flag"), ("orgs", "credits")),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself_with_an_example(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(genqueue, [*words, "--help"], prog_name="genqueue")
    assert done.exit_code == 0
    group = words[0]
    example = {"teams": "teams create", "orgs": "orgs credits"}.get(" ".join(words))
    assert f"Example: genqueue {example or ' '.join(words)}" in done.stdout
    assert group in done.stdout
