import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import SettingsInvalidError
from jobs.domain.formation import Agent, Formation, RetryAsync, TaskRetry
from jobs.domain.formation_values import web_address
from jobs.domain.models import ModelRegistry
from jobs.formation_file import MAX_BYTES, load
from jobs.providers.registry import SHIPPED_MODELS_FILE
from jobs.providers.registry import load as load_models
from jobs.settings import SHIPPED_FORMATION_FILE

PAGE = Path(__file__).parents[2] / "docs" / "formation.md"
ONE = "agents: [{id: a}]\n"
RETRY_ASYNC = "overlord.response.retry_async"
PATTERNS = "overlord.workflow.replanning.non_replannable_error_patterns"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


MODELS = ModelRegistry.parse(
    {
        "default_model": "m",
        "providers": {"mock": {"type": "mock"}},
        "models": [{"id": "m", "provider": "mock"}],
    }
)


def loaded(path: Path, text: str | bytes, models: ModelRegistry | None = None) -> Formation:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path, models)


def problems_of(path: Path, text: str | bytes, models: ModelRegistry | None = None) -> list[str]:
    """What `text` is refused for, without the path that each begins with."""
    with pytest.raises(SettingsInvalidError) as caught:
        loaded(path, text, models)
    assert all(problem.startswith(f"{path}: ") for problem in caught.value.problems)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def nested(where: str, value: str) -> str:
    """A file in which the key at `where` has `value`, beside one agent."""
    for key in reversed(where.split(".")):
        value = f"{{{key}: {value}}}"
    return f"{{agents: [{{id: a}}], {value[1:]}"


def examples() -> list[str]:
    text = PAGE.read_text("utf-8")
    return re.findall(
        r"<!-- example: formation -->\n```yaml\n(.*?)```\n<!-- end -->", text, re.DOTALL
    )


@pytest.mark.req("C1", "C4")
def test_only_agents_have_to_be_named(path: Path) -> None:
    assert loaded(path, ONE) == Formation("formation", (Agent("a"),))


@pytest.mark.req("C3", "C4")
def test_the_defaults_are_those_of_the_contract(path: Path) -> None:
    formation = loaded(path, ONE)

    assert formation.retry_async == RetryAsync(True, 2, 900.0, None)
    assert formation.non_replannable == (
        *("auth", "unauthorized", "forbidden", "permission", "credential"),
        *("configuration error", "invalid api key", "data corruption"),
    )


@pytest.mark.req("C1", "C4")
def test_the_shipped_file_shows_the_defaults_and_two_agents_on_the_default_model() -> None:
    formation = load(SHIPPED_FORMATION_FILE, load_models(SHIPPED_MODELS_FILE))

    assert [(agent.id, agent.model) for agent in formation.agents] == [
        ("assistant", None),
        ("second", None),
    ]
    assert formation == Formation("formation", formation.agents)


@pytest.mark.req("C1", "C3", "C4", "C10")
def test_the_example_of_the_page_is_read_to_the_last_key(path: Path) -> None:
    (example,) = examples()

    formation = loaded(path, example, load_models(SHIPPED_MODELS_FILE))

    researcher, writer = formation.agents
    assert formation == Formation(
        id="reports",
        agents=(
            Agent("researcher", "gpt-5.4", researcher.system, ("claude-sonnet-4-6", "gpt-5-mini")),
            Agent("writer", "claude-sonnet-4-6", writer.system, ("gpt-5-mini",)),
        ),
        plans=True,
        planner_model="gpt-5-mini",
        retry=TaskRetry(3, 1.0, 30.0, 3.0),
        non_replannable=("auth", "permission", "no such report"),
        retry_async=RetryAsync(True, 4, 300.0, 7200.0),
        webhook_url="https://reports.example.com/outcomes",
        channel_url="https://notify.example.com/genqueue",
    )
    assert researcher.system == (
        "You find what a question needs, and name where it is from.\n"
        "What you can't find, you say.\n"
    )
    assert writer.system == "You write short reports from what the researcher found."


@pytest.mark.req("C4")
def test_the_block_of_the_contract_is_taken_as_it_is_written(path: Path) -> None:
    block = (
        "overlord:\n  response:\n    retry_async:\n      enabled: false\n      max_attempts: 10\n"
        '      attempt_idle_timeout: "500ms"\n      deadline: 90\n'
    )

    assert loaded(path, ONE + block).retry_async == RetryAsync(False, 10, 0.5, 90.0)


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        *((f"{RETRY_ASYNC}.enabled", value, "must be true or false")
          for value in ('"yes"', '"true"', "yes", "on", "1", "0", "[]")),
        *((f"{RETRY_ASYNC}.enabled", value, "must not be null; leave it out")
          for value in ("null", "~")),
        *((f"{RETRY_ASYNC}.max_attempts", value, "must be a whole number from 1 to 10")
          for value in ("0", "11", "-1", "true", "2.0", '"2"', "0x2", "02", "1_0", "9" * 5000)),
        *((f"{RETRY_ASYNC}.attempt_idle_timeout", value, "must be a duration like")
          for value in ("soon", "true", "[]", "{}", "1:30", "1e3", ".inf", ".nan", "15 m")),
        (f"{RETRY_ASYNC}.attempt_idle_timeout", "1h30m", "takes one number with one unit"),
        (f"{RETRY_ASYNC}.attempt_idle_timeout", "null", "must not be null"),
        *((f"{RETRY_ASYNC}.deadline", value, "must be more than 0") for value in ("0", "-5s")),
        (f"{RETRY_ASYNC}.deadline", "8761h", "must be at most 365 days"),
        ("overlord.workflow.planning", "yes", "must be true or false"),
        ("overlord.workflow.retry.max_attempts", "11", "must be a whole number from 1 to 10"),
        ("overlord.workflow.retry.initial_delay", "0", "must be more than 0"),
        ("overlord.workflow.retry.max_delay", "never", "must be a duration like"),
        *(("overlord.workflow.retry.backoff_factor", value, "must be a number from 1 to 10")
          for value in ("0.9", "10.1", "true", '"2"', ".nan")),
        (PATTERNS, "auth", "must be a list"),
        (PATTERNS, "null", "must not be null"),
        ("overlord.model", "5", "must be a text"),
        ("overlord.model", '" "', "must not be empty"),
        *(("formation.id", value, "must be 1 to 32 letters, digits and . _ -")
          for value in ('"a b"', "ä", "x" * 33, '"a\\n"', "a/b")),
        ("formation.id", "7", "must be a text; quotes make one of a number"),
        *(("async.webhook_url", value, "must be an http:// or https:// address")
          for value in ("ftp://h/", "h/x", "https://", '"https://u:p@h/"', '"http://h/a b"',
                        '"http://h:99999/"', '"http://[::1/"', '"https://hö/"', '"http://h:0/"')),
        ("async.webhook_url", "https://h/" + "x" * 2039, "must be at most 2048 bytes"),
        ("proactive.notifications.channel.url", "slack", "must be an http:// or https:// address"),
        *((where, "null", "is empty: put keys below it, or leave it out")
          for where in ("formation", "overlord", "overlord.workflow.retry", RETRY_ASYNC, "async")),
        *((where, "[1]", "must be a mapping")
          for where in ("formation", "overlord", RETRY_ASYNC, "proactive.notifications")),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_naming_its_key(
    path: Path, where: str, value: str, reason: str
) -> None:
    (problem,) = problems_of(path, nested(where, value))

    assert problem.startswith(f"{where}: {reason}")


@pytest.mark.req("C1", "C3", "C4", "C10")
@pytest.mark.parametrize(
    ("where", "value", "field", "read"),
    [
        ("formation.id", '"Az09_.-"', "id", "Az09_.-"),
        ("formation.id", "x" * 32, "id", "x" * 32),
        ("formation.id", "no", "id", "no"),
        ("overlord.model", "null", "planner_model", None),
        ("overlord.workflow.planning", "true", "plans", True),
        ("overlord.workflow.retry", "{backoff_factor: 1}", "retry", TaskRetry(backoff_factor=1.0)),
        ("overlord.workflow.retry", "{backoff_factor: 1.5}", "retry", TaskRetry(2, 0.5, 10, 1.5)),
        (PATTERNS, "[]", "non_replannable", ()),
        (f"{RETRY_ASYNC}.deadline", "null", "retry_async", RetryAsync()),
        (RETRY_ASYNC, "{max_attempts: 1, deadline: '0.5'}", "retry_async",
         RetryAsync(True, 1, 900.0, 0.5)),
        ("async.webhook_url", '"http://h:80/a?b=c"', "webhook_url", "http://h:80/a?b=c"),
        ("async.webhook_url", "null", "webhook_url", None),
        ("proactive.notifications.channel", "{}", "channel_url", None),
    ],
)  # fmt: skip
def test_a_good_value_is_read(path: Path, where: str, value: str, field: str, read: Any) -> None:
    assert getattr(loaded(path, nested(where, value)), field) == read


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    "where",
    [
        *("surprise", "formation.name", "overlord.persona", "overlord.workflow.retries"),
        *("overlord.workflow.retry.max_attemps", "overlord.workflow.replanning.patterns"),
        *("overlord.response.retry", f"{RETRY_ASYNC}.max_attemps", "async.webhook", "proactive.x"),
        *("proactive.notifications.x", "proactive.notifications.channel.x"),
    ],
)
def test_an_unknown_key_is_refused_with_its_whole_path(path: Path, where: str) -> None:
    assert problems_of(path, nested(where, "1")) == [f"{where}: unknown key"]


@pytest.mark.req("C4")
def test_all_problems_are_named_at_once_and_always_in_the_same_order(path: Path) -> None:
    text = """
agents:
  - {id: a, mdel: x}
  - {id: a b, fallbacks: [m, 1, ""]}
  - {id: a, system: "\\0"}
  - b
overlord:
  workflow: {planning: true, planning: 5}
  response: {retry_async: {max_attemps: 1, enabled: "yes"}}
? [a]
: 1
"odd\\nkey": 1
1: 1
"""
    expected = [
        "overlord.workflow.planning: the key occurs twice",
        "a key must be a text",
        "1: unknown key",
        "agents[1].mdel: unknown key",
        "agents[2].fallbacks[2]: must be a text; quotes make one of a number",
        "agents[2].fallbacks[3]: must not be empty",
        "agents[2].id: must be 1 to 32 letters, digits and . _ -",
        "agents[3].id: occurs twice",
        "agents[3].system: has a character that can't be stored",
        "agents[4]: must be a mapping",
        "'odd\\nkey': unknown key",
        "overlord.response.retry_async.enabled: must be true or false",
        "overlord.response.retry_async.max_attemps: unknown key",
        "overlord.workflow.planning: must be true or false",
    ]
    assert problems_of(path, text) == expected

    code = f"import pathlib, jobs.formation_file as f; f.load(pathlib.Path({str(path)!r}))"
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert "; ".join(f"{path}: {problem}" for problem in expected) in done.stderr


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("agents", "problem"),
    [
        ("[]", "agents: must hold 1 to 20 agents"),
        (str([{"id": f"a{number}"} for number in range(21)]), "agents: must hold 1 to 20 agents"),
        ("{id: a}", "agents: must be a list"),
        ("null", "agents: must not be null; leave it out"),
        ("[{model: m}]", "agents[1].id: is missing"),
        ("[{id: a}, {id: b}, {id: a}]", "agents[3].id: occurs twice"),
        ("[{id: a}, null]", "agents[2]: is empty: put keys below it, or leave it out"),
        ("[{id: a, fallbacks: m}]", "agents[1].fallbacks: must be a list"),
        ("[{id: a, fallbacks: [null]}]", "agents[1].fallbacks[1]: must not be null; leave it out"),
        ('[{id: a, system: "\\ud800"}]', "agents[1].system: has a character that can't be stored"),
        ('[{id: a, system: ""}]', "agents[1].system: must not be empty"),
    ],
)
def test_agents_that_are_none_are_refused(path: Path, agents: str, problem: str) -> None:
    assert problems_of(path, f"agents: {agents}") == [problem]


@pytest.mark.req("C4")
def test_twenty_agents_whose_ids_differ_in_case_alone_are_taken(path: Path) -> None:
    agents = [{"id": letter} for letter in "abcdefghijABCDEFGHIJ"]

    assert len(loaded(path, f"agents: {agents}").agents) == 20
    assert loaded(path, "agents: [{id: a, model: null, system: null}]").agents == (Agent("a"),)


@pytest.mark.req("C4")
def test_a_file_without_agents_says_so(path: Path) -> None:
    assert problems_of(path, "formation: {id: a}") == ["agents: is missing"]


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be a mapping with the key agents"),
        ("- a", "must be a mapping with the key agents"),
        (b"agents: \xff", "is not UTF-8 at byte 8"),
        ("agents: [", "line 1, column 10: expected the node content"),
        ("agents:\n\t- id: a", "line 2, column 1: found character"),
        (f"{ONE}---\n{ONE}", "line 2, column 1: but found another document"),
        (f"{ONE}{ONE}", "agents: the key occurs twice"),
        ("agents: [{id: a, id: a}]", "agents[1].id: the key occurs twice"),
        (f"{ONE}<<: {{async: {{}}}}", "'<<': unknown key"),
        (b"agents: [{id: a\x00}]", "character 16 can't be in a YAML file"),
        ('agents: "\\UFFFFFFFF"', "has an escape that is no character"),
        ("agents: &a [{id: a}]", "line 1, column 9: anchors and aliases are not read"),
        (f"{ONE}async: *a", "line 2, column 8: anchors and aliases are not read"),
        ("agents: !!python/name:os.system ''", "line 1, column 9: tags are not read"),
        ("agents: [!!str a]", "line 1, column 10: tags are not read"),
        ("[" * 2_000, "is nested too deeply"),
        ("agents: " + "{a: " * 20_000, "is nested too deeply"),
        (f"agents: [{'1,' * 10_000}]", "line 1, column 20004: has more than 10000 keys and values"),
        ("#" * (MAX_BYTES + 1), "is larger than 1000000 bytes"),
    ],
    ids=range(19),
)
def test_a_file_that_cannot_be_read_is_refused(path: Path, text: str | bytes, problem: str) -> None:
    (found,) = problems_of(path, text)

    assert found.startswith(problem)


@pytest.mark.req("C4")
def test_a_file_of_exactly_a_megabyte_and_one_with_a_byte_order_mark_are_read(path: Path) -> None:
    assert loaded(path, ONE + "#" * (MAX_BYTES - len(ONE))).agents == (Agent("a"),)
    assert loaded(path, b"\xef\xbb\xbf" + ONE.encode()).agents == (Agent("a"),)


@pytest.mark.req("C4")
def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalidError, match=r"nothing\.yaml: No such file"):
        load(tmp_path / "nothing.yaml")
    with pytest.raises(SettingsInvalidError, match="Is a directory"):
        load(tmp_path)


@pytest.mark.req("C4")
def test_no_problem_repeats_a_value(path: Path) -> None:
    text = nested("async", '{webhook_url: "https://user:hunter2@h/", x: hunter2}')

    assert "hunter2" not in " ".join(problems_of(path, text))


@pytest.mark.req("C4")
def test_models_that_the_models_file_lacks_are_named_by_their_keys(path: Path) -> None:
    good = "{agents: [{id: a, model: m, fallbacks: [m]}], overlord: {model: m}}"
    bad = "{agents: [{id: a}, {id: b, model: x, fallbacks: [m, y]}], overlord: {model: z}}"

    assert loaded(path, good, MODELS) == loaded(path, good)
    assert problems_of(path, bad, MODELS) == [
        "overlord.model: the models file has no model 'z'",
        "agents[2].model: the models file has no model 'x'",
        "agents[2].fallbacks[2]: the models file has no model 'y'",
    ]
    (problem,) = problems_of(path, nested("overlord.model", "x" * 1_000), MODELS)
    assert problem.endswith(f"no model '{'x' * 40}'")


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("text", "other_problem"),
    [
        ("{agents: [{id: a, model: x, sytem: s}]}", "agents[1].sytem: unknown key"),
        ("{agents: [{id: a, model: x, fallbacks: 5}]}", "agents[1].fallbacks: must be a list"),
        ("{agents: [{model: x}]}", "agents[1].id: is missing"),
        ("{agents: [{id: a, model: x}], a: 1}", "a: unknown key"),
        ("{agents: [{id: a, model: x}], overlord: 5}", "overlord: must be a mapping"),
        ("{agents: [{id: a, id: b, model: x}]}", "agents[1].id: the key occurs twice"),
    ],
)
def test_models_that_are_lacking_are_named_together_with_what_else_is_wrong(
    path: Path, text: str, other_problem: str
) -> None:
    assert problems_of(path, text, MODELS) == [
        other_problem,
        "agents[1].model: the models file has no model 'x'",
    ]


@pytest.mark.req("C4")
@pytest.mark.parametrize("value", ["5", "''", "[m]", "{m: m}", r'"\0"'])
def test_what_is_no_name_of_a_model_is_told_once(path: Path, value: str) -> None:
    for where in ("overlord.model", "overlord", "agents"):
        text = nested(where, value)
        assert problems_of(path, text, MODELS) == problems_of(path, text)


@given(st.none() | st.text() | st.from_regex(r"https?://[ -~]{0,30}", fullmatch=True))
def test_any_text_is_an_address_as_it_is_or_a_value_error(value: object) -> None:
    try:
        read = web_address(value)
    except ValueError:
        return
    assert read == value
    assert read.startswith(("http", "HTTP", "Http"))
