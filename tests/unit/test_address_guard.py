"""Which URLs and addresses may a delivery go to? (X12)"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.delivery.address_guard import (
    Network,
    Target,
    check_url,
    is_allowed,
    is_public,
    read_url,
)

pytestmark = [pytest.mark.req("X12"), pytest.mark.case("WH-03")]
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com./hook",
        "https://hooks.example.com:8443/a/b?c=d#e",
        "https://xn--bcher-kva.example/hook",
        "https://93.184.215.14/hook",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:444/",
        "HTTPS://EXAMPLE.COM/Hook",
        "https://a_b.example.com:65535/",
        "https://example.com/" + "a" * 2028,
    ],
)
def test_public_addresses_and_names_pass(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "127.0.0.1",
        "127.0.0.1.",
        "0x7f000001",
        "0X7F.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "2130706433",
        "0",
        "0x",
        "1.2.3.256",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "192.88.99.1",
        "[::]",
        "[::1]",
        "[::7f00:1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        "[fc00::1]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[::1",
        "::1",
        "[v1.a]",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "127。0。0。1",
        "１２７.0.0.1",
        "exämple.com",
        "ex%61mple.com",
        "%31%32%37.0.0.1",
        "example..com",
        ".example.com",
        "-a.example",
        "exam ple.com",
        "example.com\\@10.0.0.1",
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
        "user@example.com",
        "user:pass@example.com",
        "@example.com",
        "example.com:0",
        "example.com:65536",
        "example.com:",
        "example.com:https",
        "example.com:-1",
        "",
    ],
)
def test_all_ways_to_write_a_private_address_and_all_odd_hosts_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_url(f"https://{host}/hook")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https:example.com",
        "https:///hook",
        "http://example.com/hook",
        "https://example.com/a b",
        "https://example.com/\t",
        "\nhttps://example.com/",
        "https://example.com/\x00",
        "https://example.com/ü",
        "https://example.com/" + "a" * 2029,
    ],
)
def test_what_is_no_https_url_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_url(url)


def refused_for(url: str, networks: Sequence[Network] = ()) -> str:
    with pytest.raises(ValueError, match="must") as caught:
        check_url(url, networks)
    return str(caught.value)


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "127.0.0.1", "[::1]"])
def test_http_is_refused_as_http_where_the_settings_name_no_network(host: str) -> None:
    reason = "must begin with https://: the settings name no network for http://"
    assert refused_for(f"http://{host}/hook") == reason


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]"])
def test_http_to_a_public_address_is_refused_as_http(host: str) -> None:
    reason = "must begin with https://: http:// is for the networks in the settings alone"
    assert refused_for(f"http://{host}/h", LOOPBACK) == reason


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_private_address_outside_the_networks_is_refused_as_private(scheme: str) -> None:
    reason = "must not name an address of a private or reserved network"
    assert refused_for(f"{scheme}://10.0.0.1/h", LOOPBACK) == reason


@pytest.mark.parametrize("url", ["ftp://example.com", "ftp://127.0.0.1/", "example.com", "http:a"])
def test_another_scheme_is_refused_with_those_that_the_settings_allow(url: str) -> None:
    assert refused_for(url) == "must be an https:// address"
    assert refused_for(url, LOOPBACK) == (
        "must be an https:// address, or an http:// one of a network in the settings"
    )


def test_the_networks_of_the_settings_are_reached_by_both_schemes() -> None:
    for url in ("http://127.0.0.1:8080/", "https://127.0.0.1/", "http://localhost/"):
        check_url(url, LOOPBACK)
    check_url("http://hook.internal/", LOOPBACK)  # its addresses are checked at each try
    for url in ("http://10.0.0.1/", "http://93.184.215.14/", "https://[::1]/", "http://127.1/"):
        with pytest.raises(ValueError, match="must"):
            check_url(url, LOOPBACK)


def test_a_url_is_posted_to_as_it_was_checked() -> None:
    assert read_url("https://Example.com?a=b#c") == Target("https", "example.com", 443, "/?a=b")
    assert read_url("http://[::1]:81/x").authority == "[::1]:81"
    assert read_url("https://a.example.:443/").authority == "a.example"


def test_an_address_in_an_ipv6_coat_is_the_one_that_it_means() -> None:
    assert is_allowed("::ffff:127.0.0.1", "http", LOOPBACK)
    assert is_allowed("64:ff9b::5db8:d70e", "https", ())
    assert not is_allowed("64:ff9b::7f00:1", "https", ())
    assert not is_allowed("64:ff9b::5db8:d70e", "http", ())
    assert not is_allowed("no address", "https", LOOPBACK)


@given(st.ip_addresses(v=4))
def test_no_coat_makes_an_address_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    nat64 = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    assert is_public(mapped) == is_public(nat64) == is_public(address)
    if is_public(address):
        assert address.is_global
