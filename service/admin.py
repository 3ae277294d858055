"""Who may open what is for operators? One user by HTTP Basic, on pages of the same origin.

A browser sends the password along with every request to these pages, whichever page made it
send one: what changes something must therefore come from one of them (SEC-03).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from typing import Final
from urllib.parse import urlsplit

from flask import Request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Forbidden, TooManyRequests, Unauthorized
from werkzeug.security import check_password_hash

from jobs.settings import Settings

TRIES_MAX: Final = 20
TRIES_WINDOW_S: Final = 60.0
"""So many wrong passwords a process looks at in this time; who is known already goes on."""

HOW_TO_ENABLE: Final = (
    "This page is off. Set GENQUEUE_ADMIN_USER, and GENQUEUE_ADMIN_PASSWORD or"
    " GENQUEUE_ADMIN_PASSWORD_HASH, to open it."
)


class AdminLogin:
    """Looks at the login of requests for the pages of operators. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._user = settings.admin_user
        self._password = settings.admin_password
        self._hash = settings.admin_password_hash
        self._salt = secrets.token_bytes(16)
        self._known = b""
        self._failed_at_s: list[float] = []
        self._checking = threading.Lock()

    @property
    def is_enabled(self) -> bool:
        """Whether there is a user who may log in."""
        return bool(self._user)

    def require(self, request: Request) -> None:
        """Raise Unauthorized unless the request carries user and password, TooManyRequests
        where too many did not, Forbidden where no user is set."""
        if not self.is_enabled:
            raise Forbidden(HOW_TO_ENABLE)
        presented = request.authorization
        if presented is None or presented.type != "basic":
            raise self._challenge("Log in as the user in GENQUEUE_ADMIN_USER.")
        user, password = presented.username or "", presented.password or ""
        digest = self._digest(user, password)
        # A hash is slow on purpose, and the pages ask for data every few seconds.
        if self._known and hmac.compare_digest(digest, self._known):
            return
        with self._checking:
            self._count_tries()
            if not self._is_right(user, password):
                self._failed_at_s.append(time.monotonic())
                raise self._challenge("The user or the password is wrong.")
            self._known = digest

    def _is_right(self, user: str, password: str) -> bool:
        is_user = hmac.compare_digest(_bytes(user), _bytes(self._user))
        if self._hash:
            is_password = check_password_hash(self._hash, password)
        else:
            is_password = hmac.compare_digest(_bytes(password), _bytes(self._password))
        return is_user and is_password

    def _count_tries(self) -> None:
        since_s = time.monotonic() - TRIES_WINDOW_S
        self._failed_at_s = [at_s for at_s in self._failed_at_s if at_s > since_s]
        if len(self._failed_at_s) >= TRIES_MAX:
            wait_s = int(self._failed_at_s[0] - since_s) + 1
            raise TooManyRequests("Too many wrong passwords.", retry_after=wait_s)

    def _digest(self, user: str, password: str) -> bytes:
        return hashlib.sha256(self._salt + _bytes(user) + b"\0" + _bytes(password)).digest()

    @staticmethod
    def _challenge(detail: str) -> Unauthorized:
        how = WWWAuthenticate("basic", {"realm": "genqueue admin", "charset": "UTF-8"})
        return Unauthorized(detail, www_authenticate=how)


def require_same_origin(request: Request) -> None:
    """Raise Forbidden unless the browser says that a page of this host made the request: by
    Sec-Fetch-Site, else by Origin, else by Referer. One that says nothing is refused."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        is_same = site == "same-origin"
    else:
        source = request.headers.get("Origin") or request.headers.get("Referer") or ""
        # Not the scheme: TLS may end in front of this process.
        is_same = _host_of(source) == request.host.lower()
    if not is_same:
        raise Forbidden("This changes something, and another site, or no page, asked for it.")


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).netloc.lower()
    except ValueError:
        return ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
