"""The address rules of `http.request`: allowed and refused targets in every notation and behind every host name."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from craftcore.actions.http.address_rules import ADDRESSES_MAX, addresses_of, look_up, refusal
from craftcore.outcome_exceptions import Fail, NoEffect

PUBLIC = ["93.184.216.34", "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1"]
PUBLIC_6 = ["2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]

PRIVATE = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1"],
    "6to4 and NAT64 of loopback": ["2002:7f00:1::", "2002:7f00:1:ffff:ffff:ffff:ffff:ffff", "64:ff9b::7fff:ffff"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1", "fec0::1"],
    "private, though a part of it reads like link-local": ["fd12::a9fe:1", "fd12:a9fe:a9fe::1", "64:ff9b:1::a00:1"],
    "private in others": ["::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:c0a8:101::1", "64:ff9b:1::1"],
    "shared and test networks": ["100.64.0.1", "100.127.255.255", "198.18.0.1", "198.19.255.255"],
}
NEVER = {
    "link-local": ["169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254"],
    "link-local in others": ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"],
    "a cloud's": ["100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "::ffff:100.100.100.200"],
    "a cloud's, of version 6": ["fd00:ec2::23", "fd00:ec2::253", "fd00:c1::a9fe:a9fe", "fd00:42::42"],
    "a cloud's, by RFC 6052 in a translation of one's own": [
        *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0"),
        *("64:ff9b:1::6464:64c8", "64:ff9b:1::a83f:8110", "64:ff9b:1::a9fe:aa02", "64:ff9b:1::c000:c0"),
    ],
    "a cloud's, behind anybody's prefix": [
        *("fd12:3456::a9fe:a9fe", "fd12:3456::5efe:a9fe:a9fe", "2a00:1450::a9fe:aa02", "fc00::6464:64c8"),
        *("2a00:1450:0:1:200:5efe:a83f:8110", "::ffff:169.254.170.2", "2002:6464:64c8::1", "2001:0:1::5601:5601"),
    ],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "64:ff9b::"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "::ffff:224.0.0.1"],
    "reserved": ["192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255"],
    "reserved, of version 6": ["::2", "::7f00:1", "100::1", "2001::1", "2001:db8::1", "3fff::1", "4000::1", "5f00::1"],
}


@pytest.mark.parametrize("address", PUBLIC + PUBLIC_6)
def test_public_address_is_allowed(address):
    assert refusal(ip_address(address), allow_private=False) is None


@pytest.mark.parametrize("address", [address for kind in PRIVATE.values() for address in kind])
def test_private_address_is_allowed_only_with_allow_private(address):
    assert refusal(ip_address(address), allow_private=False) is not None
    assert refusal(ip_address(address), allow_private=True) is None


@pytest.mark.parametrize("address", [address for kind in NEVER.values() for address in kind])
def test_reserved_or_metadata_address_is_refused_even_with_allow_private(address):
    assert refusal(ip_address(address), allow_private=False) is not None
    assert refusal(ip_address(address), allow_private=True) is not None


@pytest.mark.anyio
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
        *("0x7F.0.0.0x1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1"),
    ],
)
async def test_loopback_address_is_refused_in_every_notation(host):
    """The system parses the notation; an address that it cannot parse is not called."""
    with pytest.raises((Fail, NoEffect)) as refused:
        await addresses_of(host, 80, allow_private=False, resolve=look_up)
    if isinstance(refused.value, Fail):
        assert refused.value.code == "VALIDATION_ERROR"
        assert "a loopback address, which is not asked; where that is meant, allow_private" in str(refused.value)


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "0", "0.0.0.0", "::"])
async def test_refusal_of_a_reserved_address_does_not_mention_allow_private(host):
    with pytest.raises((Fail, NoEffect)) as refused:
        await addresses_of(host, 80, allow_private=True, resolve=look_up)
    assert "allow_private" not in str(refused.value)


@pytest.mark.anyio
@pytest.mark.parametrize("found", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["2606:4700::1111", "::1"]])
async def test_host_name_with_any_refused_address_is_refused(found):
    async def resolve(host: str, port: int) -> Any:
        return found

    with pytest.raises(Fail, match=r"^evil\.example leads to .*, a .* address, which is not asked"):
        await addresses_of("evil.example", 80, allow_private=False, resolve=resolve)


@pytest.mark.anyio
async def test_addresses_of_a_host_name_are_ordered_unique_and_limited():
    many = [f"8.8.8.{number}" for number in range(50)]

    async def resolve(host: str, port: int) -> list[str]:
        return ["9.9.9.9", "9.9.9.9", *many]

    found = await addresses_of("api.example", 80, allow_private=False, resolve=resolve)

    assert found == ["9.9.9.9", *many][:ADDRESSES_MAX]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), NoEffect),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), NoEffect),
        (UnicodeError("label too long"), Fail),
    ],
)
async def test_host_name_lookup_failure_ends_without_an_effect(error, ends):
    async def resolve(host: str, port: int) -> list[str]:
        raise error

    with pytest.raises(ends, match=r"a\.example"):
        await addresses_of("a.example", 80, allow_private=False, resolve=resolve)


@pytest.mark.anyio
async def test_host_name_without_an_address_ends_without_an_effect():
    async def resolve(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(NoEffect, match="it has no address"):
        await addresses_of("a.example", 80, allow_private=False, resolve=resolve)


@pytest.mark.anyio
async def test_host_name_with_a_label_over_63_characters_is_refused():
    with pytest.raises((Fail, NoEffect)):
        await addresses_of("a" * 64 + ".example", 80, allow_private=False, resolve=look_up)
