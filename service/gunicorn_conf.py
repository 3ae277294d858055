"""How does gunicorn serve the app? `gunicorn --config python:service.gunicorn_conf`.

Address, processes and threads stay with the command line.
"""

from __future__ import annotations

from typing import Final

wsgi_app: Final = "service.app:create_app()"
worker_class: Final = "service.gunicorn_worker.ProblemThreadWorker"

# A key of 64 KB is a wrong key (401), not an unreadable request.
limit_request_field_size: Final = 80_000
limit_request_fields: Final = 64
