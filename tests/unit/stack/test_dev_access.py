"""With what does one open the stack: kept where it still opens, made anew where not?"""

import os
import stat
from pathlib import Path

import pytest
from redis import Redis

from jobs.runtime import Runtime
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.teams import Teams
from service.stack.dev_access import development_access, development_client_key
from service.stack.errors import KeyNotMadeError, TeamNotMadeError
from service.stack.free_port import free_port
from service.stack.sample import StackClient
from tests.unit.stack.played_api import KEY, TOKEN, Api

CLIENT_KEY = "fmc_0123456789abcdef"


def client_of(api: Api) -> StackClient:
    return StackClient(api.url, lambda _seconds: None)


def keep(folder: Path, key: str = KEY, token: str = TOKEN) -> None:
    (folder / "dev-key").write_text(f"{key}\n")
    (folder / "dev-team-token").write_text(f"{token}\n")


@pytest.fixture
def environment(redis_url: str) -> dict[str, str]:
    return os.environ | {"REDIS_URL": redis_url}


@pytest.mark.req("X1")
def test_what_is_kept_and_still_opens_is_used_again_and_nothing_is_made(
    api: Api, tmp_path: Path, environment: dict[str, str], redis: Redis
) -> None:
    keep(tmp_path)
    access = development_access(client_of(api), tmp_path, environment, CLIENT_KEY)
    assert (access.key, access.token) == (KEY, TOKEN)
    assert redis.keys() == []


@pytest.mark.req("X1", "B2", "B21")
def test_a_first_start_makes_a_key_and_a_team_that_may_generate(
    api: Api, tmp_path: Path, environment: dict[str, str], runtime: Runtime
) -> None:
    access = development_access(client_of(api), tmp_path, environment, CLIENT_KEY)
    opened = runtime.credentials.authenticate(access.token)
    assert opened is not None
    assert (opened.team_id, opened.org_id) == ("dev", "dev")
    assert runtime.credentials.authenticate(access.key) is not None
    assert Flags(runtime.redis).is_on(WORKFLOWS_LLM_ACTION, "dev")
    assert runtime.credits.of_org("dev").cap_usd_micros == 5_000_000


def test_what_no_longer_opens_is_replaced_for_its_owner_only_also_over_an_open_file(
    api: Api, tmp_path: Path, environment: dict[str, str]
) -> None:
    keep(tmp_path, "gq_revoked", "gqt_revoked")
    for name in ("dev-key", "dev-team-token"):
        (tmp_path / name).chmod(0o644)
    access = development_access(client_of(api), tmp_path, environment, CLIENT_KEY)
    for name, prefix, secret in (
        ("dev-key", "gq_", access.key),
        ("dev-team-token", "gqt_", access.token),
    ):
        assert secret.startswith(prefix)
        assert not secret.endswith("_revoked")
        assert (tmp_path / name).read_text() == f"{secret}\n"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.req("B21")
def test_a_team_that_is_there_gets_a_further_token_and_keeps_its_flag_and_credits(
    api: Api, tmp_path: Path, environment: dict[str, str], runtime: Runtime
) -> None:
    Teams(runtime.redis).create("dev", "dev")
    keep(tmp_path, token="gqt_lost")
    access = development_access(client_of(api), tmp_path, environment, CLIENT_KEY)
    opened = runtime.credentials.authenticate(access.token)
    assert opened is not None
    assert opened.team_id == "dev"
    assert not Flags(runtime.redis).is_on(WORKFLOWS_LLM_ACTION, "dev")
    assert runtime.credits.of_org("dev").cap_usd_micros is None


@pytest.mark.req("B17", "B21")
def test_an_organisation_that_has_a_cap_keeps_it_and_gets_its_team(
    api: Api, tmp_path: Path, environment: dict[str, str], runtime: Runtime
) -> None:
    runtime.credits.set_cap("dev", 1_000_000)
    access = development_access(client_of(api), tmp_path, environment, CLIENT_KEY)
    opened = runtime.credentials.authenticate(access.token)
    assert opened is not None
    assert opened.team_id == "dev"
    assert Flags(runtime.redis).is_on(WORKFLOWS_LLM_ACTION, "dev")
    assert runtime.credits.of_org("dev").cap_usd_micros == 1_000_000


@pytest.mark.parametrize(
    ("key", "token", "error_class"),
    [("gq_lost", TOKEN, KeyNotMadeError), (KEY, "gqt_lost", TeamNotMadeError)],
)
def test_a_command_that_fails_is_one_line_and_leaves_what_was_kept(
    api: Api, tmp_path: Path, key: str, token: str, error_class: type[Exception]
) -> None:
    keep(tmp_path, key, token)
    nobody = os.environ | {"REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    with pytest.raises(error_class, match=r"could be made: .*Redis") as raised:
        development_access(client_of(api), tmp_path, nobody, CLIENT_KEY)
    assert "\n" not in str(raised.value)
    assert (tmp_path / "dev-key").read_text() == f"{key}\n"
    assert (tmp_path / "dev-team-token").read_text() == f"{token}\n"


@pytest.mark.req("C16", "X1")
def test_the_client_key_of_a_folder_is_made_once_and_kept_for_its_owner(tmp_path: Path) -> None:
    made = development_client_key(tmp_path)

    assert made.startswith("fmc_")
    assert development_client_key(tmp_path) == made
    assert (tmp_path / "dev-client-key").stat().st_mode & 0o777 == 0o600
