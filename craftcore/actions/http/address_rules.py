"""Which addresses a request may go to: the public internet, and what else only where it is allowed.

The rules judge the address itself, never its text: `127.1`, `0x7f000001`, `2130706433` and a name that leads there are
all 127.0.0.1 after the lookup. The lists are IANA's special-purpose registries.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import anyio

from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.serialization.untrusted import message_of

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up a host's addresses, the best one first."""

ADDRESSES_MAX = 8
"""How many of the addresses of a name are tried."""

_ALLOWABLE = [
    ("a loopback address", ("127.0.0.0/8", "::1/128")),
    ("a private address", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10", "64:ff9b:1::/48")),
    ("an address of a shared or test network", ("100.64.0.0/10", "198.18.0.0/15")),
]
"""Refused, unless private addresses are allowed."""

_NEVER = [
    # First: the others contain some of them. Who may ask these is given the keys of the whole machine.
    # AWS (all of fd00:ec2::/32: metadata, credentials of pods, names, time), Oracle, Scaleway, Google, Alibaba, Azure.
    ("a cloud's address for the machine itself", ("fd00:ec2::/32", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128")),
    ("a cloud's address for the machine itself", ("fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")),
    ("a link-local address", ("169.254.0.0/16", "fe80::/10")),
    ("an unspecified address", ("0.0.0.0/8", "::/128")),
    ("a multicast address", ("224.0.0.0/4", "ff00::/8")),
    ("a reserved address", ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.51.100.0/24", "203.0.113.0/24")),
    ("a reserved address", ("240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20")),
]

_WITHIN = [("::ffff:0:0/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80)]
"""IPv6 networks whose addresses are IPv4 addresses (mapped, translated, NAT64, 6to4), and the bits to the right of that
address."""

_LOCAL_TRANSLATION = ip_network("64:ff9b:1::/48")
"""NAT64 in a local network (RFC 8215), which itself decides where the IPv4 address is."""

_HANDS_OUT = [ip_network(text) for text in ("169.254.0.0/16", "100.100.100.200", "168.63.129.16", "192.0.0.192")]
"""IPv4 networks in which clouds hand out credentials."""

_METADATA = {
    int(IPv4Address(text))
    for text in (
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
}
"""The addresses themselves: of AWS and most others, its containers and pods, Tencent, Scaleway, Alibaba, Azure, Oracle.
As the last 32 bits of an IPv6 address they are deliberate: a prefix of NAT64 or ISATAP comes before them."""

_never = [(kind, [ip_network(text) for text in texts]) for kind, texts in _NEVER]
_allowable = [(kind, [ip_network(text) for text in texts]) for kind, texts in _ALLOWABLE]
_within = [(ip_network(text), shift) for text, shift in _WITHIN]
_global = ip_network("2000::/3")


def refusal(address: Address, *, allow_private: bool) -> str | None:
    """Return what kind of address it is that no request may go to. None: it may."""
    if (inner := _embedded_address(address)) is not None:
        return refusal(inner, allow_private=allow_private)
    if (kind := _kind(address, _never)) is not None:
        return kind
    if isinstance(address, IPv6Address) and _is_metadata_address(address):
        return "a cloud's address for the machine itself, behind a translation to IPv4"
    if (kind := _kind(address, _allowable)) is not None:
        return None if allow_private else kind
    return "a reserved address" if address.version == 6 and address not in _global else None


async def addresses_of(host: str, port: int, *, allow_private: bool, resolve: Resolve) -> list[str]:
    """Return the addresses that a request to this host goes to, and to no others: a second look-up might lead
    elsewhere.

    Raises Fail when one of them may not be asked, NoEffect when the host cannot be found.
    """
    try:
        found = [ip_address(text) for text in await resolve(host, port)]
    except OSError as error:
        why = error.strerror or message_of(error)
        raise NoEffect(f"{host} cannot be found: {why}", code=ErrorCode.TRANSPORT_ERROR) from None
    except ValueError:  # also a name that no name may be, as UnicodeError
        raise Fail(ErrorCode.VALIDATION_ERROR, f"{host!r} is not a valid host name") from None
    if not found:
        raise NoEffect(f"{host} cannot be found: it has no address", code=ErrorCode.TRANSPORT_ERROR)
    for address in found:
        if kind := refusal(address, allow_private=allow_private):
            led = "is" if str(address) == host else f"leads to {address},"
            allowed = "; where that is meant, allow_private = true in [http] or a target allows it"
            hint = "" if refusal(address, allow_private=True) else allowed
            raise Fail(ErrorCode.VALIDATION_ERROR, f"{host} {led} {kind}, which is not asked{hint}")
    return list(dict.fromkeys(map(str, found)))[:ADDRESSES_MAX]


async def look_up(host: str, port: int) -> list[str]:
    """Look up a name as this machine does. Raises OSError or UnicodeError."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [place[0] for _, _, _, _, place in found]


def _embedded_address(address: Address) -> IPv4Address | None:
    for network, shift in _within:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFF_FFFF)
    return None


def _is_metadata_address(address: IPv6Address) -> bool:
    number = int(address)
    if number & 0xFFFF_FFFF in _METADATA:
        return True
    if address not in _LOCAL_TRANSLATION:
        return False
    without = (number >> 64 << 56) | (number & (1 << 56) - 1)  # RFC 6052 leaves out bits 64 to 71
    found = [number & 0xFFFF_FFFF, *(without >> shift & 0xFFFF_FFFF for shift in (24, 32, 40))]  # /96, /64, /56, /48
    return any(IPv4Address(one) in network for one in found for network in _HANDS_OUT)


def _kind(address: Address, kinds: list[tuple[str, list[IPv4Network | IPv6Network]]]) -> str | None:
    return next((kind for kind, networks in kinds if any(address in network for network in networks)), None)
