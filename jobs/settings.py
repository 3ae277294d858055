"""What can be set, by which variable, and what holds where nothing is set?

The only reader of the environment. All problems are reported at once, each with its variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jobs.domain.errors import SettingsInvalidError

SHIPPED_MODELS_FILE: Final = Path(__file__).with_name("models.toml")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isascii() or not text.strip().isdigit():
            raise ValueError(f"must be a whole number from {low} to {high}")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}")
        return value

    return parse


def _redis_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must be a redis://, rediss:// or unix:// address")
    return text


def _existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"no such file: {text}")
    return path


def _name(text: str) -> str:
    if not text or not all(c.isalnum() or c in "_-" for c in text) or not text.isascii():
        raise ValueError("must be letters, digits, '_' and '-'")
    return text


def _setting(variable: str, default: Any, parse: Callable[[str], Any], help_text: str) -> Any:
    return field(
        default=default, metadata={"variable": variable, "parse": parse, "help": help_text}
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of every process; see `from_environment` for the variables."""

    redis_url: str = _setting("REDIS_URL", "redis://127.0.0.1:6379/0", _redis_url, "where Redis is")
    rq_prefix: str = _setting(
        "RQ_KEY_PREFIX", "rq", lambda text: text, "prefix of RQ's own keys, read by RQ as well"
    )
    queue_name: str = _setting(
        "GENQUEUE_QUEUE", "genqueue", _name, "name of the RQ queue that holds the tickets"
    )
    models_file: Path = _setting(  # noqa: RUF009  # a field, whose default is immutable
        "GENQUEUE_MODELS_FILE", SHIPPED_MODELS_FILE, _existing_file, "providers, models, prices"
    )
    worker_concurrency: int = _setting(
        "GENQUEUE_WORKER_CONCURRENCY", 32, _whole(1, 512), "attempts at once in a worker process"
    )
    heartbeat_interval_s: int = _setting(
        "GENQUEUE_HEARTBEAT_INTERVAL_S", 30, _whole(1, 60), "seconds between heartbeats (A7)"
    )
    lease_window_s: int = _setting(
        "GENQUEUE_LEASE_WINDOW_S", 90, _whole(2, 300), "seconds a lease lasts unrenewed (A8)"
    )
    sweep_interval_s: int = _setting(
        "GENQUEUE_SWEEP_INTERVAL_S", 15, _whole(1, 60), "seconds between reclaim sweeps (A8)"
    )
    call_budget_s: int = _setting(
        "GENQUEUE_CALL_BUDGET_S", 180, _whole(1, 3600), "wall clock of one provider call (A11)"
    )
    stuck_after_s: int = _setting(
        "GENQUEUE_STUCK_AFTER_S", 900, _whole(10, 86400), "a silent job this old is stuck (A12)"
    )
    ticket_cap: int = _setting(
        "GENQUEUE_TICKET_CAP", 16, _whole(1, 1000), "most tickets that wait at a time"
    )
    ticket_claiming_s: int = _setting(
        "GENQUEUE_TICKET_CLAIMING_S", 30, _whole(1, 300), "seconds after which a ticket hands over"
    )
    idle_poll_s: int = _setting(
        "GENQUEUE_IDLE_POLL_S", 15, _whole(1, 60), "an idle worker looks for work this often"
    )
    shutdown_grace_s: int = _setting(
        "GENQUEUE_SHUTDOWN_GRACE_S", 20, _whole(0, 3600), "seconds to finish after SIGTERM"
    )
    max_body_bytes: int = _setting(
        "GENQUEUE_MAX_BODY_BYTES", 1_048_576, _whole(1024, 16_777_216), "largest request body"
    )
    api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Provider keys by the name of the variable that holds them (`*_API_KEY`)."""


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of `environment`, by default the process's own.

    Raises SettingsInvalidError naming every bad variable, and every unknown one that begins
    with `GENQUEUE_`.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    problems: list[str] = []
    known: set[str] = set()
    for item in fields(Settings):
        variable = item.metadata.get("variable")
        if variable is None:
            continue
        known.add(variable)
        text = environment.get(variable)
        if text is None or text == "":
            continue
        try:
            values[item.name] = item.metadata["parse"](text)
        except ValueError as error:
            problems.append(f"{variable}: {error}")
    unknown = {name for name in environment if name.startswith("GENQUEUE_")} - known
    problems += [f"{name}: no such setting" for name in sorted(unknown)]
    values["api_keys"] = {
        name: key for name, key in environment.items() if name.endswith("_API_KEY") and key
    }
    if not problems:
        settings = Settings(**values)
        if settings.lease_window_s < 2 * settings.heartbeat_interval_s:
            problems.append(
                "GENQUEUE_LEASE_WINDOW_S: must be at least twice GENQUEUE_HEARTBEAT_INTERVAL_S"
            )
        else:
            return settings
    raise SettingsInvalidError(problems)


def describe() -> list[tuple[str, str, str]]:
    """Variable, default and meaning of every setting, for help texts and the docs."""
    return [
        (item.metadata["variable"], str(item.default), item.metadata["help"])
        for item in fields(Settings)
        if "variable" in item.metadata
    ]
