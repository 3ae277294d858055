"""How is the web process put together? `service.app:create_app()` for any WSGI server."""

from __future__ import annotations

from flask import Flask

from jobs.runtime import Runtime, build
from service.api import (
    captains_log,
    chat,
    deliveries,
    docs,
    generations,
    health,
    jobs,
    metrics,
    mission,
    prompts,
    requests,
    step_templates,
    steps,
)
from service.context import attach_runtime
from service.dashboard import mount_dashboard
from service.observability import observe
from service.openapi import Api, configure, document_security
from service.request_ids import number_requests


def create_app(runtime: Runtime | None = None) -> Flask:
    """The application over `runtime`, by default over the settings of the environment.

    Connects to nothing yet: `/healthz` answers without Redis. Raises SettingsInvalidError.
    """
    runtime = runtime or build()
    app = Flask("service")
    app.config["MAX_CONTENT_LENGTH"] = runtime.settings.max_body_bytes
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of Flask's own provider
    # A doubled slash is a page that isn't there, not a redirect.
    app.url_map.merge_slashes = False
    attach_runtime(app, runtime)
    number_requests(app)
    observe(app, runtime.settings)
    configure(app)
    api = Api(app)
    document_security(api)
    nouns = (
        *(prompts, jobs, mission, generations, steps, step_templates, health),
        *(chat, requests, deliveries, captains_log),
    )
    for noun in nouns:
        api.register_blueprint(noun.blueprint)
    app.register_blueprint(docs.blueprint)
    app.register_blueprint(metrics.blueprint)
    mount_dashboard(app, runtime)
    return app
