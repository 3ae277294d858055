"""Who is let in as the admin, and which requests may change something? (SEC-03)"""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from flask import Flask, Request, request
from werkzeug.exceptions import Forbidden, HTTPException, TooManyRequests, Unauthorized
from werkzeug.security import generate_password_hash

from jobs.settings import Settings
from service.admin import TRIES_MAX, AdminLogin, require_same_origin

pytestmark = [pytest.mark.req("X7", "X12"), pytest.mark.case("SEC-03")]

PASSWORD = "pässword of 20 signs"
PLAIN = Settings(admin_user="ada", admin_password=PASSWORD)
HASHED = Settings(admin_user="ada", admin_password_hash=generate_password_hash(PASSWORD))
APP = Flask("test")


def refusal(check: Callable[[Request], None], **headers: str) -> type[HTTPException] | None:
    """What `check` raises for a request to queue.internal with these headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with APP.test_request_context(base_url="http://queue.internal:8080", headers=named):
        try:
            check(request)
        except HTTPException as error:
            return type(error)
    return None


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("settings", [PLAIN, HASHED], ids=["plain", "hashed"])
def test_user_and_password_let_in_and_nothing_else_does(settings: Settings) -> None:
    login = AdminLogin(settings)

    assert refusal(login.require, Authorization=basic("ada", PASSWORD)) is None
    for wrong in (
        basic("ada", PASSWORD + "x"),
        basic("ada", ""),
        basic("bob", PASSWORD),
        basic("", ""),
        basic("ä" * 1000, "\x00"),
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
        "Bearer " + PASSWORD.encode().hex(),
        "",
    ):
        assert refusal(login.require, Authorization=wrong) is Unauthorized, wrong
    assert refusal(login.require, Authorization=basic("ada", PASSWORD)) is None


def test_without_an_admin_nobody_gets_in() -> None:
    login = AdminLogin(Settings())

    assert refusal(login.require, Authorization=basic("", "")) is Forbidden
    assert refusal(login.require) is Forbidden


def test_guessing_is_slowed_down_and_who_is_known_goes_on() -> None:
    login = AdminLogin(PLAIN)
    assert refusal(login.require, Authorization=basic("ada", PASSWORD)) is None

    tries = [refusal(login.require, Authorization=basic("ada", str(n))) for n in range(50)]

    assert tries == [Unauthorized] * TRIES_MAX + [TooManyRequests] * (50 - TRIES_MAX)
    assert refusal(login.require, Authorization=basic("ada", PASSWORD)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "same-origin"},
        {"Origin": "http://queue.internal:8080"},
        {"Origin": "https://queue.internal:8080"},
        {"Referer": "http://QUEUE.internal:8080/admin/rq/0/view/jobs"},
    ],
)
def test_a_page_of_this_host_may_change_something(headers: dict[str, str]) -> None:
    assert refusal(require_same_origin, **headers) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_Fetch_Site": "cross-site", "Origin": "http://queue.internal:8080"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "null"},
        {"Origin": "http://queue.internal"},
        {"Origin": "http://queue.internal:8080.elsewhere.example"},
        {"Origin": "http://queue.internal:8080@elsewhere.example"},
        {"Origin": "http://elsewhere.example", "Referer": "http://queue.internal:8080/"},
        {"Referer": "http://elsewhere.example/queue.internal:8080"},
        {"Referer": "http://[queue.internal:8080"},
    ],
)
def test_other_pages_and_who_says_nothing_may_not(headers: dict[str, str]) -> None:
    assert refusal(require_same_origin, **headers) is Forbidden
