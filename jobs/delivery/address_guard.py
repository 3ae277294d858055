"""Where may a delivery go? To public addresses, and to the networks that the settings name (X12).

A URL is checked when it is submitted, as far as that goes without a name lookup; the addresses of
its name are checked when it is posted to, and the one that was checked is the one connected to.
`ipaddress` and the system's resolver do not read the same addresses: `127.1`, `0x7f000001` and
`2130706433` are none to the one and loopback to the other. So a host is a name, or an address in
its full form.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

URL_MAX_BYTES: Final = 2048
DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_PRINTABLE: Final = re.compile(r"[!-~]+")
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_LIKE_A_NUMBER: Final = re.compile(r"(.*\.)?(0[xX][0-9A-Fa-f]*|[0-9]+)\.?")
"""The resolver reads what ends so as an address."""

_HTTPS_ONLY: Final = "must be an https:// address"
_EITHER: Final = "must be an https:// address, or an http:// one of a network in the settings"

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER_PUBLIC: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.88.99.0/24",  # relays of 6to4
        "::/96",  # addresses that carry one of IPv4: obsolete, and a way round
        "64:ff9b:1::/48",  # translation within a network
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "3fff::/20",  # for examples
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in its parts; `host` without brackets, `path` with the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the Host header says: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def check_url(text: str, networks: Sequence[Network] = ()) -> None:
    """Raise ValueError, with a reason for people, where nothing can be posted to this URL; a name
    is not looked up. `networks` are those that the settings allow beside the public addresses."""
    scheme_wanted = _EITHER if networks else _HTTPS_ONLY
    target = read_url(text, scheme_wanted)
    if target.scheme == "http" and not networks:
        raise ValueError("must begin with https://: the settings name no network for http://")
    address = _address_of(target.host)
    if address is None or is_allowed(address, target.scheme, networks):
        return
    if is_allowed(address, "https", networks):
        raise ValueError(
            "must begin with https://: http:// is for the networks in the settings alone"
        )
    raise ValueError("must not name an address of a private or reserved network")


def read_url(text: str, scheme_wanted: str = _EITHER) -> Target:
    """The parts of a URL. Raises ValueError, with a reason for people, for what is no URL;
    `scheme_wanted` is the reason where it is of another scheme."""
    if len(text.encode()) > URL_MAX_BYTES:
        raise ValueError(f"must be at most {URL_MAX_BYTES} bytes")
    if not _PRINTABLE.fullmatch(text) or "\\" in text:
        raise ValueError(
            "must be printable ASCII without spaces: a host in its xn-- form, the rest %-encoded"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("must be an address with a port from 1 to 65535, if any") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError(scheme_wanted)
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or a password")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("must be an address with a port from 1 to 65535, if any")
    host = parts.hostname
    _check_host(host, is_bracketed=parts.netloc.startswith("["))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = host.removesuffix(".")  # no certificate is for that spelling of a name
    return Target(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path)


def _check_host(host: str, *, is_bracketed: bool) -> None:
    if is_bracketed:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("must name its host by a name or a whole IP address") from None
        if address.scope_id is not None:
            raise ValueError("must not name an interface of this machine")
    elif _LIKE_A_NUMBER.fullmatch(host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError("must name its host by a name or a whole IP address") from None
    elif not _NAME.fullmatch(host) or len(host) > 253:
        raise ValueError("must name its host by letters, digits, '-', '_' and dots")


def _address_of(host: str) -> str | None:
    """The address that the host is, as far as that is known without a lookup."""
    if host == "localhost" or host.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def is_allowed(address: str, scheme: str, networks: Sequence[Network]) -> bool:
    """Whether a delivery may go to `address`, an IP as text: by https to public ones, by either
    scheme to `networks`."""
    try:
        found = _plain(ipaddress.ip_address(address))
    except ValueError:
        return False
    if any(found.version == network.version and found in network for network in networks):
        return True
    return scheme == "https" and is_public(found)


def _plain(address: Ip) -> Ip:
    """The IPv4 address that one of IPv6 means where it is only a way to write it."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_public(address: Ip) -> bool:
    """Whether an address is one of the open internet, whatever way it is written."""
    address = _plain(address)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if any(address.version == network.version and address in network for network in _NEVER_PUBLIC):
        return False
    is_special = (
        address.is_multicast
        or address.is_reserved
        or address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
    )
    return address.is_global and not is_special
