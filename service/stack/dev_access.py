"""With what does one open this stack? A development key and a team's token, kept in its folder."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from service.stack.errors import KeyNotMadeError, StackError, TeamNotMadeError
from service.stack.sample import DEV_TEAM, StackClient

COMMAND_WITHIN_S = 30.0
KEY_FILE = "dev-key"
TOKEN_FILE = "dev-team-token"  # noqa: S105  # a file's name
CLIENT_KEY_FILE = "dev-client-key"
MAKE_KEY = ("keys", "create", "--org", "dev", "--user", "dev", "--json")
MAKE_TEAM = ("teams", "create", DEV_TEAM, "--org", "dev", "--enable", "--credits", "5", "--json")
MAKE_TOKEN = ("teams", "token", DEV_TEAM, "--json")
MAKE_TEAM_AS_CAPPED = ("teams", "create", DEV_TEAM, "--org", "dev", "--enable", "--json")
ANOTHER_WAY = 1
"""The status of a command where the team, or the cap of its org, was made before."""


@dataclass(frozen=True, slots=True)
class DevAccess:
    """The key of org dev, user dev, and a token of team dev; `client_key` is a client's of the
    formation."""

    key: str
    token: str
    client_key: str


def development_client_key(folder: Path) -> str:
    """The client key that is kept in `folder`, where there is none a new one. It is no secret of
    the store: the processes get it from their environment."""
    path = folder / CLIENT_KEY_FILE
    return _kept(path) or _keep(path, f"fmc_{secrets.token_urlsafe(32)}")


def development_access(
    client: StackClient, folder: Path, environment: Mapping[str, str], client_key: str
) -> DevAccess:
    """Key and token as kept in `folder` where they still open the API, else new ones, kept there
    (mode 0600); what has to be made is made at the same time.

    A team that is there already keeps its flag and its credits, an org its cap. Raises
    KeyNotMadeError and TeamNotMadeError.
    """
    key = _kept(folder / KEY_FILE)
    token = _kept(folder / TOKEN_FILE)
    key = key if key and client.accepts(key) else ""
    token = token if token and client.accepts_token(token) else ""
    with ThreadPoolExecutor(max_workers=2) as makers:
        new_key = None if key else makers.submit(_new_key, environment)
        new_token = None if token else makers.submit(_new_token, environment)
    return DevAccess(
        key=_keep(folder / KEY_FILE, new_key.result()) if new_key else key,
        token=_keep(folder / TOKEN_FILE, new_token.result()) if new_token else token,
        client_key=client_key,
    )


def _kept(path: Path) -> str:
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def _keep(path: Path, secret: str) -> str:
    # A file of before may be open to others, or be open already.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secret}\n")
    return secret


def _new_key(environment: Mapping[str, str]) -> str:
    return _printed("key", _run(MAKE_KEY, environment, KeyNotMadeError), KeyNotMadeError)


def _new_token(environment: Mapping[str, str]) -> str:
    for words in (MAKE_TEAM, MAKE_TOKEN, MAKE_TEAM_AS_CAPPED):
        made = _run(words, environment, TeamNotMadeError)
        if made.returncode != ANOTHER_WAY:
            break
    return _printed("token", made, TeamNotMadeError)


def _run(
    words: tuple[str, ...], environment: Mapping[str, str], error_class: type[StackError]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-m", "service.cli", *words],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_WITHIN_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise error_class(repr(error)) from error


def _printed(
    name: str, ended: subprocess.CompletedProcess[str], error_class: type[StackError]
) -> str:
    if ended.returncode:
        raise error_class((ended.stderr.strip().splitlines() or ["no message"])[-1])
    try:
        return str(json.loads(ended.stdout)[name])
    except (ValueError, KeyError) as error:
        raise error_class(repr(error)) from error
