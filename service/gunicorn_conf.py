"""How does gunicorn serve the app? `gunicorn --config python:service.gunicorn_conf`.

Address and processes stay with the command line.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from jobs import logs
from jobs.domain.errors import SettingsInvalidError
from jobs.settings import Settings, from_environment, share_metrics_in


def _settings() -> Settings:
    try:
        return from_environment()
    except SettingsInvalidError as error:
        sys.exit("\n".join(f"genqueue: {problem}" for problem in error.problems))


def _fresh_folder(wanted: Path | None) -> Path:
    """The folder that the web processes share, without the figures of an earlier start."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="genqueue-metrics-"))
    wanted.mkdir(parents=True, exist_ok=True)
    for path in wanted.glob("*.db"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return wanted


_found: Final = _settings()
_metrics_folder: Final = _fresh_folder(_found.metrics_folder)
# prometheus-client looks at the environment when it is imported, in whichever process.
share_metrics_in(_metrics_folder)
logs.configure(_found)

wsgi_app: Final = "service.app:create_app()"
worker_class: Final = "service.gunicorn_worker.ProblemThreadWorker"
logger_class: Final = "service.gunicorn_logger.OneHandlerLogger"
loglevel: Final = _found.log_level

# A stream holds a thread for as long as its client likes; threads start as they are needed.
# gunicorn's timeout is for a process that no longer answers, not for a request: streams live on.
threads: Final = _found.web_threads

# A key of 64 KB is a wrong key (401), not an unreadable request.
limit_request_field_size: Final = 80_000
limit_request_fields: Final = 64


def child_exit(_server: Any, worker: Any) -> None:
    """A web process ended: what it held open is no longer counted."""
    from jobs import metrics  # noqa: PLC0415  # only once the folder is known

    metrics.forget_process(worker.pid)


def on_exit(_server: Any) -> None:
    """The last of gunicorn: leave nothing behind that was made here."""
    if _found.metrics_folder is None:
        shutil.rmtree(_metrics_folder, ignore_errors=True)
