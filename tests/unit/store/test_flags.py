"""Has an organisation a feature? Only where somebody gave it. (B21)"""

from __future__ import annotations

import pytest
from redis import Redis

from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from tests.support.snapshot import snapshot


@pytest.mark.req("B21")
def test_a_flag_is_off_until_it_is_on_and_each_organisation_s_own(redis: Redis) -> None:
    flags = Flags(redis)
    assert WORKFLOWS_LLM_ACTION == "workflows-llm-action"
    assert not flags.is_on(WORKFLOWS_LLM_ACTION, "acme")
    assert flags.orgs(WORKFLOWS_LLM_ACTION) == []

    for org in ("umbrella", "acme", "acme"):
        flags.enable(WORKFLOWS_LLM_ACTION, org)
    assert flags.is_on(WORKFLOWS_LLM_ACTION, "acme")
    assert not flags.is_on(WORKFLOWS_LLM_ACTION, "rival")
    assert not flags.is_on("another", "acme")
    assert flags.orgs(WORKFLOWS_LLM_ACTION) == ["acme", "umbrella"]


@pytest.mark.req("B21")
def test_a_flag_that_went_off_leaves_nothing_behind(redis: Redis) -> None:
    flags = Flags(redis)
    flags.enable(WORKFLOWS_LLM_ACTION, "acme")
    for _ in range(2):
        flags.disable(WORKFLOWS_LLM_ACTION, "acme")
    assert not flags.is_on(WORKFLOWS_LLM_ACTION, "acme")
    assert snapshot(redis) == {}


@pytest.mark.parametrize(
    ("flag", "org"), [("", "acme"), ("A flag", "acme"), ("a:b", "acme"), ("a", ""), ("a", "b c")]
)
def test_a_name_that_can_t_be_one_is_refused(redis: Redis, flag: str, org: str) -> None:
    flags = Flags(redis)
    for change in (flags.enable, flags.disable):
        with pytest.raises(ValueError, match="must be"):
            change(flag, org)
    assert snapshot(redis) == {}
