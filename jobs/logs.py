"""How does a process log, and what may never be in a log? (X10)

One handler on the root logger, one line a record on standard error, as JSON or as text. Of
what is running the lines carry what was bound with `bind` or `bound`: request_id, trace_id,
job_id, attempt, org. Two rules keep prompts and secrets out, whoever logs:

- an exception is shown by its type and its stack; its text only where it is one of ours or of
  the operating system, since other texts quote the values that they complain about;
- whatever looks like a key, and every key that this process knows, is cut out of the line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Protocol, TextIO

from jobs.domain.errors import GenqueueError

REDACTED: Final = "[redacted]"
FRAMES_MAX: Final = 30
CAUSES_MAX: Final = 5
TELLING: Final = (GenqueueError, OSError, ImportError)
"""Exceptions whose texts quote no content: ours by their contract, the others by their kind."""

QUIET: Final = frozenset({"openai", "httpx", "httpx2", "httpcore", "httpcore2", "urllib3"})
"""Packages that log what they send and receive; from them only warnings are let through."""

_SECRETS: Final = (
    r"(?<![A-Za-z0-9])(?:gqt?_|fmc_|sk-)[A-Za-z0-9_-]{8,}",
    r"(?<![A-Za-z0-9])whsec_[A-Za-z0-9+/=]{8,}",
    r"(?:[Bb]earer|BEARER|[Bb]asic|BASIC)\s+[A-Za-z0-9._~+/=-]{8,}",
    r"(?<=://)[^/@\s\"]+(?=@)",
)
_MARKS: Final = (
    *("gq_", "gqt_", "fmc_", "whsec_", "sk-", "://"),
    *("earer", "EARER", "asic", "ASIC"),
)
"""What every text has that one of these could match: looking for them first costs a thirtieth."""

_KEY_SHORTEST: Final = 8

logger = logging.getLogger(__name__)

_context: ContextVar[Mapping[str, Any]] = ContextVar("genqueue_log_context", default={})  # noqa: B039  # replaced, never changed


class LogSettings(Protocol):
    """The settings that logging needs; `jobs.settings.Settings` has them."""

    @property
    def log_format(self) -> str:
        """`json`, `text` or `auto`."""
        ...

    @property
    def log_level(self) -> str:
        """A level's lower-case name."""
        ...

    @property
    def api_keys(self) -> Mapping[str, str]:
        """Keys of providers, which are cut out of every line."""
        ...

    @property
    def metrics_token(self) -> str:
        """Cut out as well."""
        ...

    @property
    def formation_keys(self) -> Sequence[str]:
        """Cut out as well."""
        ...


def bind(**fields: Any) -> None:
    """Have every line from here on, in this thread or task, carry `fields` too."""
    _context.set({**_context.get(), **fields})


def clear() -> None:
    """Forget what was bound: something else begins in this thread."""
    _context.set({})


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """`bind` for the block."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def bound_fields() -> Mapping[str, Any]:
    """What lines carry here and now."""
    return _context.get()


class Scrubber:
    """Cuts secrets out of a text: what looks like one, and `known` ones by value."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        values = sorted((known or {}).values(), key=len, reverse=True)
        exact = [value for value in values if len(value) >= _KEY_SHORTEST]
        self._marks = (*_MARKS, *exact)
        self._pattern = re.compile("|".join([*map(re.escape, exact), *_SECRETS]))

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        for mark in self._marks:
            if mark in text:
                return self._pattern.sub(REDACTED, text)
        return text


def scrubber_of(settings: LogSettings) -> Scrubber:
    """One that knows all secrets of `settings`."""
    clients = {f"client {n}": key for n, key in enumerate(settings.formation_keys)}
    return Scrubber({**settings.api_keys, **clients, "metrics": settings.metrics_token})


def exception_text(error: BaseException) -> str:
    """The text of `error` where it can hold nobody's content, else ""."""
    return str(error) if isinstance(error, TELLING) else ""


def describe_exception(error: BaseException) -> list[dict[str, Any]]:
    """`error` and what caused it, each with type, text (where it may be shown) and stack,
    innermost call last."""
    described: list[dict[str, Any]] = []
    one: BaseException | None = error
    while one is not None and len(described) < CAUSES_MAX:
        frames = [
            f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(one.__traceback__)
        ]
        name = f"{type(one).__module__}.{type(one).__qualname__}".removeprefix("builtins.")
        entry: dict[str, Any] = {"type": name, "stack": frames[-FRAMES_MAX:]}
        text = exception_text(one)
        if text:
            entry["text"] = text
        described.append(entry)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return described


@lru_cache(maxsize=2)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _instant(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_whole_second(second)}.{int((record.created - second) * 1000):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the line carries beside its message: its own `extra={"fields": {...}}` first."""
    return {**_context.get(), **getattr(record, "fields", {})}


def _error_of(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII, so that any pipe and any locale carry it."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub
        self._encode = json.JSONEncoder(default=str).encode

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`."""
        line: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        error = _error_of(record)
        if error is not None:
            line["exception"] = describe_exception(error)
        return self._scrub(self._encode(line))


class TextFormatter(logging.Formatter):
    """A line for people; the stack of an exception follows in lines of its own."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines of `record`."""
        pairs = "".join(f" {name}={value}" for name, value in _fields(record).items())
        text = record.getMessage()
        lines = [f"{_instant(record)} {record.levelname:7} {record.name}: {text}{pairs}"]
        error = _error_of(record)
        for entry in describe_exception(error) if error is not None else ():
            lines.append(f"  {entry['type']}: {entry.get('text', '(text withheld)')}")
            lines += [f"    {frame}" for frame in entry["stack"]]
        return self._scrub("\n".join(lines))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the moment, as tests and daemons replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # looked up for each line
        return sys.stderr


def _is_wanted(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] not in QUIET


def configure(settings: LogSettings) -> None:
    """Log as `settings` say, from now on and in children that are forked; call it once at the
    start of a process, a second call replaces the first."""
    level = settings.log_level.upper()
    scrub = scrubber_of(settings)
    is_json = settings.log_format == "json" or (
        settings.log_format == "auto" and not sys.stderr.isatty()
    )
    handler = _Stderr()
    handler.setLevel(level)
    handler.setFormatter(JsonFormatter(scrub) if is_json else TextFormatter(scrub))
    handler.addFilter(_is_wanted)
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not isinstance(one, _Stderr)]
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # What the lines don't show need not be found out for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # A line that can't be formatted or written must not print its arguments instead.
    logging.raiseExceptions = False
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    warnings.showwarning = _log_warning


def configure_if_nobody_did(settings: LogSettings) -> None:
    """`configure`, where no handler is there: without one, Python would print the texts of
    exceptions."""
    if not logging.getLogger().handlers:
        configure(settings)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logger.critical("uncaught %s", kind.__name__, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(raised: threading.ExceptHookArgs) -> None:
    if raised.exc_value is not None and not issubclass(raised.exc_type, SystemExit):
        name = raised.thread.name if raised.thread else "a thread"
        logger.critical("uncaught in %s", name, exc_info=raised.exc_value)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Where a warning came from; its text may quote a value, as validators do."""
    del message, file, line
    logger.warning("%s at %s:%d", category.__name__, filename, lineno)
