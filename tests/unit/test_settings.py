"""What do the variables of the environment mean, and what is said of wrong ones?"""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from jobs.domain.errors import SettingsInvalidError
from jobs.settings import Settings, describe, from_environment

ROOT = Path(__file__).resolve().parents[2]


def problems(**environment: str) -> tuple[str, ...]:
    with pytest.raises(SettingsInvalidError) as caught:
        from_environment(environment)
    return caught.value.problems


def test_nothing_set_is_the_shipped_defaults() -> None:
    assert from_environment({}) == Settings()
    assert from_environment({"PATH": "/bin", "HOME": "/", "OTHER": "1"}) == Settings()


@pytest.mark.req("A7", "A8", "A11")
def test_the_defaults_are_the_promised_figures() -> None:
    settings = Settings()
    assert (settings.heartbeat_interval_s, settings.lease_window_s) == (30, 90)
    assert (settings.sweep_interval_s, settings.call_budget_s) == (15, 180)
    assert settings.stuck_after_s == 900
    assert settings.worker_concurrency == 32
    assert settings.max_body_bytes == 1_048_576


def test_every_setting_can_be_set_by_its_variable(tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.touch()
    others = {
        "REDIS_URL": "rediss://user:pw@cache.internal:6380/3",
        "RQ_KEY_PREFIX": "{gq}:rq",
        "GENQUEUE_QUEUE": "work-2",
        "GENQUEUE_MODELS_FILE": str(models),
        "GENQUEUE_HEARTBEAT_INTERVAL_S": "7",
        "GENQUEUE_LEASE_WINDOW_S": "61",
        "GENQUEUE_URGENT_SLOTS": "3",
        "GENQUEUE_DRAIN_INTERVAL_S": "4",
        "GENQUEUE_LOG_FORMAT": "text",
        "GENQUEUE_LOG_LEVEL": "debug",
        "GENQUEUE_METRICS_TOKEN": "a-token-of-16-or-more",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
        "GENQUEUE_WORKER_METRICS_PORT": "9100",
        "SENTRY_DSN": "https://public@sentry.internal/1",
        "GENQUEUE_EXTRACTION_MODEL": "llama3.2",
        "GENQUEUE_GENERATION_URL": "https://queue.internal",
        "GENQUEUE_GENERATION_TOKEN": "gqt_0123456789ab_secret",
        "GENQUEUE_FORMATION_FILE": str(models),
        "GENQUEUE_FORMATION_KEYS": "fmc_one-0123456789, fmc_two-0123456789",
        "GENQUEUE_WEBHOOK_NETWORKS": "10.0.0.0/8, ::1/128",
        "GENQUEUE_CAPTURE_URL": "https://capture.internal/batch",
        "GENQUEUE_URL": "https://queue.internal:8443/base",
        "GENQUEUE_KEY": "gq_0123456789ab_secret",
        "GENQUEUE_ADMIN_USER": "operator",
        "GENQUEUE_ADMIN_PASSWORD": "correct horse battery staple",
        "GENQUEUE_ADMIN_PASSWORD_HASH": "scrypt:32768:8:1$salt$digest",
    }
    variables = {
        item.metadata["variable"]: item
        for item in dataclasses.fields(Settings)
        if "variable" in item.metadata
    }
    environment = {
        name: str(item.default - 1) for name, item in variables.items() if name not in others
    }

    settings = from_environment({**environment, **others})

    for name, item in variables.items():
        value = getattr(settings, item.name)
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert shown == {**environment, **others}[name]
        assert type(value) is type(item.default) or item.name.endswith(("file", "folder"))


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert from_environment({"GENQUEUE_TICKET_CAP": "", "REDIS_URL": ""}) == Settings()


def test_all_problems_are_told_at_once_each_with_its_variable() -> None:
    found = problems(
        REDIS_URL="http://example.org",
        GENQUEUE_QUEUE="a b",
        GENQUEUE_MODELS_FILE="/no/such/file",
        GENQUEUE_TICKET_CAP="many",
        GENQUEUE_WORKER_CONCURENCY="8",
    )
    assert [problem.split(":")[0] for problem in found] == [
        "REDIS_URL",
        "GENQUEUE_QUEUE",
        "GENQUEUE_MODELS_FILE",
        "GENQUEUE_TICKET_CAP",
        "GENQUEUE_WORKER_CONCURENCY",
    ]
    assert "no such setting" in found[-1]


@pytest.mark.parametrize(
    "text", ["0", "513", "-1", "+1", "1.0", "1e2", "0x10", "²", "١", "1_0", "true", " ", "9" * 30]
)
def test_a_whole_number_out_of_range_or_shape_is_refused(text: str) -> None:
    (problem,) = problems(GENQUEUE_WORKER_CONCURRENCY=text)
    assert problem.startswith("GENQUEUE_WORKER_CONCURRENCY: must be")
    assert "512" in problem


@pytest.mark.parametrize(("text", "value"), [("1", 1), (" 8 ", 8), ("512", 512), ("007", 7)])
def test_a_whole_number_in_range_is_taken(text: str, value: int) -> None:
    settings = from_environment({"GENQUEUE_WORKER_CONCURRENCY": text})
    assert settings.worker_concurrency == value


@pytest.mark.req("A8")
@pytest.mark.parametrize(
    ("window_s", "interval_s", "fits"), [("60", "30", True), ("59", "30", False), ("2", "1", True)]
)
def test_a_lease_must_outlast_two_heartbeats(window_s: str, interval_s: str, fits: bool) -> None:
    environment = {
        "GENQUEUE_LEASE_WINDOW_S": window_s,
        "GENQUEUE_HEARTBEAT_INTERVAL_S": interval_s,
    }
    if fits:
        assert from_environment(environment).lease_window_s == int(window_s)
    else:
        (problem,) = problems(**environment)
        assert "GENQUEUE_LEASE_WINDOW_S" in problem


@pytest.mark.req("A8")
def test_no_lease_lasts_longer_than_five_minutes() -> None:
    assert from_environment({"GENQUEUE_LEASE_WINDOW_S": "300"}).lease_window_s == 300
    assert problems(GENQUEUE_LEASE_WINDOW_S="301")


@pytest.mark.parametrize("url", ["redis://h", "rediss://h:1/2", "unix:///run/redis.sock?db=1"])
def test_addresses_of_redis_are_taken(url: str) -> None:
    assert from_environment({"REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("url", ["localhost:6379", "redis", "tcp://h", "//h", "redis//h"])
def test_what_is_no_address_of_redis_is_refused(url: str) -> None:
    assert problems(REDIS_URL=url)[0].startswith("REDIS_URL: must be")


@pytest.mark.req("X10")
@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GENQUEUE_LOG_FORMAT", "xml"),
        ("GENQUEUE_LOG_LEVEL", "loud"),
        ("GENQUEUE_METRICS_TOKEN", "short"),
        ("GENQUEUE_METRICS_TOKEN", "with a space in it"),
        ("SENTRY_DSN", "sentry.internal/1"),
        ("SENTRY_DSN", "https://sentry.internal/1"),
        ("SENTRY_DSN", "https://public@sentry.internal"),
        ("GENQUEUE_URL", "queue.internal:8443"),
        ("GENQUEUE_KEY", "short"),
    ],
)
def test_what_can_not_be_observed_with_is_refused(variable: str, text: str) -> None:
    (problem,) = problems(**{variable: text})
    assert problem.startswith(f"{variable}: must be")
    assert text not in problem


@pytest.mark.req("X12")
def test_keys_of_providers_are_gathered_and_never_shown() -> None:
    settings = from_environment({"OPENAI_API_KEY": "sk-secret", "OTHER_API_KEY": "", "KEY": "x"})
    assert settings.api_keys == {"OPENAI_API_KEY": "sk-secret"}
    assert "sk-secret" not in repr(settings)


@pytest.mark.req("X10")
def test_the_scrape_token_and_the_address_of_sentry_are_never_shown() -> None:
    dsn = "https://public@sentry.internal/1"
    settings = from_environment({"GENQUEUE_METRICS_TOKEN": "t" * 16, "SENTRY_DSN": dsn})
    assert "t" * 16 not in repr(settings)
    assert dsn not in repr(settings)
    assert "sk-secret" not in str(problems(OPENAI_API_KEY="sk-secret", GENQUEUE_X="1"))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().ticket_cap = 1  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    rows = describe()
    assert len(rows) == len({variable for variable, _, _ in rows})
    assert all(variable and meaning for variable, _, meaning in rows)
    assert {item.metadata.get("variable") for item in dataclasses.fields(Settings)} - {None} == {
        variable for variable, _, _ in rows
    }


def test_nobody_else_of_the_product_reads_the_environment() -> None:
    readers = set()
    for path in (ROOT / "jobs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if re.fullmatch(r"environ|environb|getenv", name):
                readers.add(path.relative_to(ROOT).as_posix())
    assert readers <= {"jobs/settings.py"}


@pytest.mark.req("C16", "C21")
def test_client_keys_are_several_each_once_and_none_may_be_guessed() -> None:
    settings = from_environment({"GENQUEUE_FORMATION_KEYS": f"{'a' * 16},{'b' * 16}, {'a' * 16}"})

    assert settings.formation_keys == ("a" * 16, "b" * 16)
    assert "aaaa" not in repr(settings)
    (problem,) = problems(GENQUEUE_FORMATION_KEYS=f"{'a' * 16},short")
    assert problem.startswith("GENQUEUE_FORMATION_KEYS: must be 16 or more")


@pytest.mark.req("X12")
@pytest.mark.parametrize("text", ["10.0.0.1/8", "all", "10.0.0.0/8,,"])
def test_a_network_that_is_none_is_refused_by_name(text: str) -> None:
    (problem,) = problems(GENQUEUE_WEBHOOK_NETWORKS=text)

    assert problem.startswith("GENQUEUE_WEBHOOK_NETWORKS: must be networks")
