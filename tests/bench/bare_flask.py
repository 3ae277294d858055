"""What does a web process cost that does nothing? A Flask route that answers 202."""

from __future__ import annotations

from flask import Flask


def create_app() -> Flask:
    """One route, of the same path, method and shape of answer as the real one."""
    app = Flask("bare")

    def answer() -> tuple[dict[str, str], int]:
        return {"prompt_id": "0" * 36, "job_id": "0" * 36, "state": "queued"}, 202

    app.add_url_rule("/v1/prompt", view_func=answer, methods=["POST"])
    app.add_url_rule("/healthz", endpoint="health", view_func=lambda: "ok")
    return app
