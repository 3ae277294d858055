"""What does the stack take from the environment?"""

import pytest

from service.stack.environment import read_environment


def test_an_empty_environment_means_a_redis_of_our_own_and_port_8080() -> None:
    environment = read_environment({})
    assert environment.redis_url is None
    assert environment.port == 8080


def test_an_empty_redis_url_is_as_good_as_none() -> None:
    assert read_environment({"REDIS_URL": ""}).redis_url is None


def test_given_values_are_taken() -> None:
    environment = read_environment({"REDIS_URL": "redis://cache", "PORT": "9000"})
    assert environment.redis_url == "redis://cache"
    assert environment.port == 9000


def test_children_see_everything_and_the_redis_in_use() -> None:
    environment = read_environment({"OPENAI_API_KEY": "k", "REDIS_URL": "redis://old"})
    seen = environment.for_children("redis://new", "fmc_made-for-this-folder")
    assert seen["OPENAI_API_KEY"] == "k"
    assert seen["REDIS_URL"] == "redis://new"


def test_a_port_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="PORT"):
        read_environment({"PORT": "http"})


@pytest.mark.req("B13")
@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, "mock-1"),
        ({"OPENAI_API_KEY": ""}, "mock-1"),
        ({"OPENAI_API_KEY": "k"}, None),
        ({"OPENAI_API_KEY": "k", "GENQUEUE_EXTRACTION_MODEL": "mock-1"}, "mock-1"),
        ({"GENQUEUE_EXTRACTION_MODEL": "llama3.2"}, "llama3.2"),
    ],
)
def test_the_mock_reads_fields_unless_something_else_is_set_up_for_it(
    variables: dict[str, str], seen: str | None
) -> None:
    environment = read_environment(variables)
    assert (
        environment.for_children("redis://new", "fmc_made-for-this-folder").get(
            "GENQUEUE_EXTRACTION_MODEL"
        )
        == seen
    )
    assert environment.extracts_by_mock == (seen == "mock-1")


@pytest.mark.req("C16", "X1")
@pytest.mark.parametrize("named", ["", "fmc_one-of-mine-0123,fmc_other-of-mine-01"])
def test_a_client_key_is_made_only_where_none_is_named(named: str) -> None:
    environment = read_environment({"GENQUEUE_FORMATION_KEYS": named})
    seen = environment.for_children("redis://new", "fmc_made-for-this-folder")

    assert seen["GENQUEUE_FORMATION_KEYS"] == (named or "fmc_made-for-this-folder")
    assert environment.client_key == named.split(",", maxsplit=1)[0]
    assert seen["GENQUEUE_WEBHOOK_NETWORKS"] == "127.0.0.0/8,::1/128"
