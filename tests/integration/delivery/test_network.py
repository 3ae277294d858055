"""Where do deliveries go, and what do odd receivers cost? (C16, X12)"""

from __future__ import annotations

import ipaddress
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.delivery.poster import Poster
from jobs.domain.delivery import Tried, TryError
from jobs.providers.network import Address
from jobs.providers.tls import SharedTls
from service.stack.free_port import free_port
from tests.support.full_port import full_port
from tests.support.webhook_receiver import (
    TLS,
    Reply,
    WebhookReceiver,
    bomb,
    endless,
    hang,
    silent_body,
    status,
    trickle_body,
    trickle_header,
    webhook_receiver,
)

pytestmark = pytest.mark.req("C16", "X12")
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
PUBLIC = "93.184.215.14"
BODY = b'{"a":1}'


@pytest.fixture
def secure() -> Iterator[WebhookReceiver]:
    with webhook_receiver(tls=True) as running:
        yield running


def tls() -> SharedTls:
    """Trusts the certificate of the tests, which is for localhost."""
    return SharedTls(lambda: ssl.create_default_context(cafile=str(TLS / "loopback.crt")))


class Names:
    """A resolver that answers what it is told, a set of addresses each time it is asked."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in address], (address, port)) for address in addresses]


def test_only_the_networks_of_the_settings_are_posted_to_without_tls(
    receiver: WebhookReceiver,
) -> None:
    assert Poster(LOOPBACK).post(receiver.url(), {}, BODY) == Tried(200)
    refused = Tried(error=TryError.REFUSED_ADDRESS)
    assert Poster(()).post(receiver.url(), {}, BODY) == refused
    public = Poster(LOOPBACK, lookup=Names((PUBLIC,)))
    assert public.post("http://hook.example/", {}, BODY) == refused
    assert len(receiver.received) == 1


@pytest.mark.case("WH-03")
@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        (PUBLIC, "127.0.0.1"),
        ("127.0.0.1", PUBLIC),
        (PUBLIC, PUBLIC, PUBLIC, PUBLIC, "10.0.0.1"),
        ("::ffff:127.0.0.1",),
        ("64:ff9b::7f00:1",),
        ("fe80::1%1",),
        ("169.254.169.254",),
    ],
)
def test_a_name_with_one_refused_address_is_connected_to_at_none(
    receiver: WebhookReceiver, addresses: tuple[str, ...]
) -> None:
    poster = Poster((), lookup=Names(addresses))

    tried = poster.post(f"https://hook.example:{receiver.port}/", {}, BODY)

    assert tried == Tried(error=TryError.REFUSED_ADDRESS)
    assert receiver.received == []


@pytest.mark.case("WH-03")
def test_a_name_is_looked_up_once_a_try_so_that_a_second_answer_can_not_matter(
    receiver: WebhookReceiver,
) -> None:
    names = Names(("127.0.0.1",), ("10.0.0.1",))
    poster = Poster(LOOPBACK, lookup=names)
    url = receiver.url("hook.example")

    assert poster.post(url, {}, BODY) == Tried(200)
    assert names.asked == ["hook.example"]
    assert receiver.received[0].headers["host"] == f"hook.example:{receiver.port}"
    assert poster.post(url, {}, BODY) == Tried(error=TryError.REFUSED_ADDRESS)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a.example/", "https://u:p@a.example/", "https://127.1/", "https://a.example:0/"],
)
def test_what_is_no_url_is_not_tried(url: str) -> None:
    assert Poster(LOOPBACK).post(url, {}, BODY) == Tried(error=TryError.INVALID_URL)


def test_tls_is_verified_against_the_name_while_the_checked_address_is_connected_to(
    secure: WebhookReceiver,
) -> None:
    names = Names(("127.0.0.1",))
    trusting = Poster(LOOPBACK, lookup=names, tls=tls())

    assert trusting.post(secure.url("localhost"), {}, BODY) == Tried(200)
    failed = Tried(error=TryError.TLS)
    assert trusting.post(secure.url("hook.example"), {}, BODY) == failed
    assert Poster(LOOPBACK, lookup=names).post(secure.url("localhost"), {}, BODY) == failed
    assert len(secure.received) == 1


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_no_redirect_is_followed(receiver: WebhookReceiver, code: int) -> None:
    receiver.answer_next(status(code, Location=receiver.url(path="/elsewhere")))

    assert Poster(LOOPBACK).post(receiver.url(), {}, BODY) == Tried(code)
    assert [got.path for got in receiver.received] == ["/hook"]


def test_no_proxy_of_the_environment_is_used(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")

    assert Poster(LOOPBACK).post(receiver.url(), {}, BODY) == Tried(200)


@pytest.mark.parametrize("reply", [hang, trickle_header])
def test_who_does_not_answer_costs_the_wall_clock_and_no_more(
    receiver: WebhookReceiver, reply: Reply
) -> None:
    receiver.answer_next(reply)
    began_s = time.monotonic()

    tried = Poster(LOOPBACK, within_s=1.0).post(receiver.url(), {}, BODY)

    assert tried == Tried(error=TryError.TIMEOUT)
    assert 0.9 < time.monotonic() - began_s < 3


@pytest.mark.case("WH-09")
@pytest.mark.parametrize("reply", [endless, trickle_body, silent_body, bomb])
def test_of_an_answer_little_is_read_and_nothing_unpacked(
    receiver: WebhookReceiver, reply: Reply
) -> None:
    poster = Poster(LOOPBACK)
    poster.post(receiver.url(), {}, BODY)
    receiver.answer_next(*[reply] * 2)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.monotonic()

    assert [poster.post(receiver.url(), {}, BODY) for _ in range(2)] == [Tried(200)] * 2

    assert time.monotonic() - began_s < (3.5 if reply is endless else 8)
    if reply is not bomb:  # which the receiver makes in this very process
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000


def test_what_nobody_listens_at_is_no_connection_or_no_time() -> None:
    poster = Poster(LOOPBACK, within_s=0.5)
    assert poster.post(f"http://127.0.0.1:{free_port()}/", {}, BODY) == Tried(
        error=TryError.NO_CONNECTION
    )
    with full_port() as port:
        assert poster.post(f"http://127.0.0.1:{port}/", {}, BODY) == Tried(error=TryError.TIMEOUT)


def test_a_receiver_that_breaks_off_or_speaks_no_http_is_broken(receiver: WebhookReceiver) -> None:
    def nonsense(handler: object) -> None:
        handler.write(b"hello\r\n\r\n")  # type: ignore[attr-defined]
        handler.close_connection = True  # type: ignore[attr-defined]

    def nothing(handler: object) -> None:
        handler.close_connection = True  # type: ignore[attr-defined]

    receiver.answer_next(nonsense, nothing)

    broken = Tried(error=TryError.BROKEN)
    assert [Poster(LOOPBACK).post(receiver.url(), {}, BODY) for _ in range(2)] == [broken] * 2


def test_a_resolver_that_hangs_costs_the_wall_clock() -> None:
    def slow(_host: str, _port: int) -> list[Address]:
        time.sleep(2)
        return []

    began_s = time.monotonic()
    tried = Poster(LOOPBACK, lookup=slow, within_s=0.4).post("http://hook.example/", {}, BODY)

    assert tried == Tried(error=TryError.TIMEOUT)
    assert time.monotonic() - began_s < 1.8


@pytest.mark.case("WH-11")
def test_nothing_asks_rq_to_post_anything() -> None:
    root = Path(__file__).resolve().parents[3]
    paths = [
        p for folder in ("jobs", "service", "scheduler") for p in (root / folder).rglob("*.py")
    ]
    texts: dict[Path, str] = {path: path.read_text() for path in paths}
    guilty: Callable[[str], bool] = lambda text: "webhooks=" in text or "rq.webhook" in text  # noqa: E731
    assert [path.name for path, text in texts.items() if guilty(text)] == []
