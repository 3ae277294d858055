"""Is a team one organisation's, and its token its own? (B2)"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from jobs.domain.errors import TeamExistsError, TeamMissingError
from jobs.store import keys
from jobs.store.credentials import Credentials, Identity
from jobs.store.teams import Teams
from tests.support.snapshot import snapshot


@pytest.mark.req("B2")
def test_a_team_is_found_again_and_listed_by_its_id(redis: Redis) -> None:
    teams = Teams(redis)
    second = teams.create("2", "acme")
    first = teams.create("10", "acme")
    other = teams.create("rival.team_1-a", "rival")

    assert teams.get("2") == second
    assert (second.team_id, second.org_id) == ("2", "acme")
    assert abs(second.created_at_ms - redis.time()[0] * 1000) < 60_000
    assert teams.list() == [first, second, other]
    assert teams.list("acme") == [first, second]
    assert teams.list("nobody") == []


@pytest.mark.req("B2")
def test_a_team_that_is_there_is_not_given_to_another_organisation(redis: Redis) -> None:
    teams = Teams(redis)
    teams.create("1", "acme")
    before = snapshot(redis)
    for org in ("rival", "acme"):
        with pytest.raises(TeamExistsError) as raised:
            teams.create("1", org)
        assert (raised.value.team_id, raised.value.org_id) == ("1", "acme")
    assert snapshot(redis) == before


@pytest.mark.req("B2")
def test_of_twenty_organisations_that_ask_for_a_team_at_once_one_gets_it(redis: Redis) -> None:
    teams = Teams(redis)
    barrier = threading.Barrier(20)

    def create(n: int) -> str:
        barrier.wait(20)
        try:
            return teams.create("1", f"org-{n}").org_id
        except TeamExistsError as error:
            return f"owner {error.org_id}"

    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(create, range(20)))
    owner = teams.get("1").org_id
    assert sorted(told) == sorted([owner, *[f"owner {owner}"] * 19])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a|b", "ä", "a\n", "x" * 33, "a:b", "{a}"])
def test_a_name_that_would_not_fit_into_an_address_or_a_key_is_refused(
    redis: Redis, name: str
) -> None:
    for team, org in ((name, "acme"), ("1", name)):
        with pytest.raises(ValueError, match="1 to 32 letters"):
            Teams(redis).create(team, org)
    assert snapshot(redis) == {}


def test_a_team_that_there_is_not_is_said_so(redis: Redis) -> None:
    with pytest.raises(TeamMissingError):
        Teams(redis).get("1")
    assert Teams(redis).list() == []


@pytest.mark.req("B2", "X12")
def test_a_token_names_its_team_and_is_stored_as_a_hash(redis: Redis) -> None:
    credentials = Credentials(redis)
    credential, token = credentials.create_for_team("1", "acme")
    again, second = credentials.create_for_team("1", "acme")

    for made, sent in ((credential, token), (again, second)):
        assert sent.startswith(f"gqt_{made.key_id}_")
        assert credentials.authenticate(sent) == Identity(made.key_id, "acme", "", "1")
        assert sent.rsplit("_", 1)[1] not in json.dumps(redis.hgetall(keys.CREDENTIAL(made.key_id)))
    assert [(one.key_id, one.team_id) for one in credentials.list()] == [
        (one.key_id, "1")
        for one in sorted((credential, again), key=lambda one: (one.created_at_ms, one.key_id))
    ]


@pytest.mark.req("B2", "X12")
def test_a_secret_opens_only_under_its_own_id_and_prefix(redis: Redis) -> None:
    credentials = Credentials(redis)
    _, key = credentials.create("acme", "ann")
    _, token = credentials.create_for_team("1", "acme")
    other, _ = credentials.create_for_team("2", "rival")
    _, key_id, secret = token.split("_", 2)

    for wrong in (
        f"gq_{key_id}_{secret}",
        f"gqt_{other.key_id}_{secret}",
        f"gqt_{key_id}_{secret[:-1]}",
        f"gqt_{key_id}_{secret}\n",
        key.replace("gq_", "gqt_", 1),
        token.upper(),
        "gqt_",
    ):
        assert credentials.authenticate(wrong) is None
    assert credentials.authenticate(token) is not None
    identity = credentials.authenticate(key)
    assert identity is not None
    assert identity.team_id is None


@pytest.mark.req("X12")
def test_an_identity_is_read_once_in_five_seconds_and_not_longer(redis: Redis) -> None:
    now_s = 100.0
    credentials = Credentials(redis, clock=lambda: now_s)
    credential, token = credentials.create_for_team("1", "acme")
    assert credentials.authenticate(token) is not None
    assert credentials.revoke(credential.key_id)
    now_s += 4.9
    assert credentials.authenticate(token) is not None
    now_s += 0.1
    assert credentials.authenticate(token) is None
    assert not credentials.revoke(credential.key_id)
    assert credentials.list() == []
