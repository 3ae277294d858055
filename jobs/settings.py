"""What can be set, by which variable, and what holds where nothing is set?

The only reader of the environment. All problems are reported at once, each with its variable.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jobs.domain.errors import SettingsInvalidError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SHIPPED_MODELS_FILE: Final = Path(__file__).with_name("models.toml")
SHIPPED_FORMATION_FILE: Final = Path(__file__).with_name("formation.yaml")
THREADS_FOR_REQUESTS: Final = 8
"""Threads of a web process that streams leave to requests."""

PASSWORD_LENGTH_MIN: Final = 12

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus-client learns, when it is imported, that processes share."""


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


def _model_name(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be the id of a model")
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def _dsn(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.username or not parts.path.strip("/"):
        raise ValueError("must be an address of Sentry, https://key@host/project")
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    return text


def _token(text: str) -> str:
    if len(text) < 16 or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be 16 or more printable ASCII characters, without a space")
    return text


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_token(part.strip()) for part in text.split(",")))


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    except ValueError:
        raise ValueError("must be networks such as 10.0.0.0/8, separated by commas") from None


def _user(text: str) -> str:
    if not text.isprintable() or ":" in text:
        raise ValueError("must be a name without ':'")
    return text


def _password(text: str) -> str:
    if len(text) < PASSWORD_LENGTH_MIN:
        raise ValueError(f"must be {PASSWORD_LENGTH_MIN} or more characters")
    return text


def _password_hash(text: str) -> str:
    method, _, rest = text.partition("$")
    if method.split(":")[0] not in {"scrypt", "pbkdf2"} or rest.count("$") != 1:
        raise ValueError("must be what werkzeug's generate_password_hash answers")
    return text


def _setting(
    variable: str,
    default: Any,
    parse: Callable[[str], Any],
    help_text: str,
    *,
    is_secret: bool = False,
) -> Any:
    return field(
        default=default,
        repr=not is_secret,
        metadata={"variable": variable, "parse": parse, "help": help_text},
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
    urgent_slots: int = _setting(
        "GENQUEUE_URGENT_SLOTS",
        0,
        _whole(0, 511),
        "slots of a worker process that are kept for priority 0 to 10 (A34)",
    )
    heartbeat_interval_s: int = _setting(
        "GENQUEUE_HEARTBEAT_INTERVAL_S", 30, _whole(1, 60), "seconds between heartbeats (A7)"
    )
    lease_window_s: int = _setting(
        "GENQUEUE_LEASE_WINDOW_S", 90, _whole(2, 300), "seconds a lease lasts unrenewed (A8)"
    )
    drain_interval_s: int = _setting(
        "GENQUEUE_DRAIN_INTERVAL_S",
        0,
        _whole(0, 3600),
        "seconds between looks of the scheduler for work that no worker is up for; 0: never (A6)",
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
    extraction_model: str = _setting(
        "GENQUEUE_EXTRACTION_MODEL",
        "gpt-5.6-luna",
        _model_name,
        "model of a generation's second pass, an id of the models file (B13)",
    )
    generation_slots: int = _setting(
        "GENQUEUE_GENERATION_SLOTS", 30, _whole(1, 10_000), "generations that run at once (B18)"
    )
    generation_slots_per_team: int = _setting(
        "GENQUEUE_GENERATION_SLOTS_PER_TEAM", 5, _whole(1, 10_000), "those of one team"
    )
    generations_per_minute: int = _setting(
        "GENQUEUE_GENERATIONS_PER_MINUTE",
        60,
        _whole(1, 100_000),
        "generations that a team may submit within 60 s (B8)",
    )
    generation_url: str = _setting(
        "GENQUEUE_GENERATION_URL",
        "",
        _http_url,
        "the genqueue that makes the generations of workflow steps (B30); none: this one",
    )
    generation_token: str = _setting(
        "GENQUEUE_GENERATION_TOKEN", "", _token, "the team token there", is_secret=True
    )
    capture_url: str = _setting(
        "GENQUEUE_CAPTURE_URL",
        "",
        _http_url,
        "where the usage of generations is posted as JSON (B17); none: only ledger and log",
    )
    formation_file: Path = _setting(  # noqa: RUF009  # as models_file
        "GENQUEUE_FORMATION_FILE",
        SHIPPED_FORMATION_FILE,
        _existing_file,
        "agents of chat turns, and what happens when one fails (C4)",
    )
    formation_keys: tuple[str, ...] = _setting(
        "GENQUEUE_FORMATION_KEYS",
        (),
        _tokens,
        "client keys of /v1/chat, separated by commas; each also signs its client's webhooks (C16)",
        is_secret=True,
    )
    webhook_networks: tuple[Network, ...] = _setting(
        "GENQUEUE_WEBHOOK_NETWORKS",
        (),
        _networks,
        "networks beside the public ones that webhooks may go to, by http as well: 10.0.0.0/8",
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
    web_threads: int = _setting(
        "GENQUEUE_WEB_THREADS", 128, _whole(9, 1024), "requests at once in a web process"
    )
    stream_limit: int = _setting(
        "GENQUEUE_STREAM_LIMIT",
        100,
        _whole(1, 1000),
        "open streams and held requests in a web process; each holds a thread",
    )
    stream_limit_per_org: int = _setting(
        "GENQUEUE_STREAM_LIMIT_PER_ORG",
        50,
        _whole(1, 1000),
        "those of one organisation, or of one client of the formation",
    )
    max_body_bytes: int = _setting(
        "GENQUEUE_MAX_BODY_BYTES", 1_048_576, _whole(1024, 16_777_216), "largest request body"
    )
    log_format: str = _setting(
        "GENQUEUE_LOG_FORMAT",
        "auto",
        _one_of("auto", "json", "text"),
        "json, or text for people; auto is text on a terminal",
    )
    log_level: str = _setting(
        "GENQUEUE_LOG_LEVEL",
        "info",
        _one_of("debug", "info", "warning", "error"),
        "the least level that is logged",
    )
    metrics_token: str = _setting(
        "GENQUEUE_METRICS_TOKEN",
        "",
        _token,
        "bearer token that /metrics asks for; none: open to all",
        is_secret=True,
    )
    metrics_folder: Path | None = _setting(  # noqa: RUF009  # as models_file
        METRICS_FOLDER,
        None,
        Path,
        "where web processes share their figures; none: a temporary folder",
    )
    worker_metrics_port: int = _setting(
        "GENQUEUE_WORKER_METRICS_PORT",
        0,
        _whole(0, 65535),
        "port of a worker's own /metrics; 0: none",
    )
    admin_user: str = _setting(
        "GENQUEUE_ADMIN_USER", "", _user, "who may open /admin/rq; none: it is off"
    )
    admin_password: str = _setting(
        "GENQUEUE_ADMIN_PASSWORD", "", _password, "the password of that user", is_secret=True
    )
    admin_password_hash: str = _setting(
        "GENQUEUE_ADMIN_PASSWORD_HASH",
        "",
        _password_hash,
        "in its place, and wins over it: a scrypt or pbkdf2 hash by werkzeug",
        is_secret=True,
    )
    sentry_dsn: str = _setting(
        "SENTRY_DSN", "", _dsn, "where Sentry takes errors; none: nowhere", is_secret=True
    )
    client_url: str = _setting(
        "GENQUEUE_URL", "", _http_url, "the API that `genqueue submit` uses; none: Redis itself"
    )
    client_key: str = _setting(
        "GENQUEUE_KEY", "", _token, "the API key that it sends along", is_secret=True
    )
    api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Provider keys by the name of the variable that holds them (`*_API_KEY`)."""

    @property
    def delivery_queue_name(self) -> str:
        """The RQ queue whose tickets say that there is something to post."""
        return f"{self.queue_name}-deliveries"


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
        problems = _contradictions(settings)
        if not problems:
            return settings
    raise SettingsInvalidError(problems)


def _contradictions(settings: Settings) -> list[str]:
    """What can't hold together, each by its variable."""
    problems = []
    if settings.lease_window_s < 2 * settings.heartbeat_interval_s:
        problems.append(
            "GENQUEUE_LEASE_WINDOW_S: must be at least twice GENQUEUE_HEARTBEAT_INTERVAL_S"
        )
    if bool(settings.admin_user) != bool(settings.admin_password or settings.admin_password_hash):
        problems.append(
            "GENQUEUE_ADMIN_USER: goes with GENQUEUE_ADMIN_PASSWORD or GENQUEUE_ADMIN_PASSWORD_HASH"
        )
    if bool(settings.generation_url) != bool(settings.generation_token):
        problems.append("GENQUEUE_GENERATION_URL: goes with GENQUEUE_GENERATION_TOKEN")
    if settings.stream_limit > settings.web_threads - THREADS_FOR_REQUESTS:
        problems.append(
            f"GENQUEUE_STREAM_LIMIT: must leave {THREADS_FOR_REQUESTS} of GENQUEUE_WEB_THREADS"
        )
    return problems


def share_metrics_in(folder: Path) -> None:
    """Have this process and its children keep their figures in `folder`; only works before
    prometheus-client is imported."""
    os.environ[METRICS_FOLDER] = str(folder)


def describe() -> list[tuple[str, str, str]]:
    """Variable, default and meaning of every setting, for help texts and the docs."""
    return [
        (item.metadata["variable"], str(item.default), item.metadata["help"])
        for item in fields(Settings)
        if "variable" in item.metadata
    ]
