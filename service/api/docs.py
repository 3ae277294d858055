"""Where does a person read the API? A Swagger page whose files are served from here (X3)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from flask import Blueprint, Response, redirect, render_template, send_from_directory
from werkzeug.wrappers import Response as WerkzeugResponse

ASSETS: Final = Path(str(resources.files("flask_swagger_ui"))) / "dist"
ASSETS_MAX_AGE_S: Final = 3600

blueprint = Blueprint("docs", __name__)


@blueprint.get("/")
def show_root() -> WerkzeugResponse:
    """Lead a person who knows only the address to the page."""
    return redirect("/docs")


@blueprint.get("/docs")
def show_docs() -> str:
    """The page itself; it reads /openapi.json."""
    return render_template("docs.html")


@blueprint.get("/docs/assets/<path:name>")
def show_asset(name: str) -> Response:
    """A file of Swagger UI, out of the package that ships it."""
    return send_from_directory(ASSETS, name, max_age=ASSETS_MAX_AGE_S)
