from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.address_guard import METADATA, address_kind

TABLE = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"],
    "loopback": ["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::127.0.0.1"],
    "private": [
        "10.0.0.0",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "fc00::1",
        "fdff::1",
        "fec0::1",
        "64:ff9b:1::1",
        "::ffff:10.1.2.3",
        "::ffff:0:10.1.2.3",
        "::10.1.2.3",
        "2002:0a01:0203::1",
        "64:ff9b::a01:203",
        "2001:0:a01:203::",
        "2001:0:505:505:0:ffff:f5fe:fdfc",
    ],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "::ffff:169.254.1.1"],
    "shared with a provider's other customers": ["100.64.0.1", "100.127.255.255", "2002:6440:1::"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.0.8"],
    METADATA: [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
    ],
}

PUBLIC = [
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.18.0.1",
    "203.0.113.7",
    "223.255.255.255",
    "2606:4700::1111",
    "2001:db8::1",
    "::ffff:1.1.1.1",
    "2002:0101:0101::1",
    "64:ff9b::1.1.1.1",
]


OPEN = [ip_network(each) for each in ("198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]


@pytest.mark.parametrize(("address", "kind"), [(each, kind) for kind, addresses in TABLE.items() for each in addresses])
def test_what_is_not_public_is_known_in_every_form(address: str, kind: str) -> None:
    assert address_kind(address) == kind


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_left_alone_up_to_the_edge_of_each_range(address: str) -> None:
    assert address_kind(address) is None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_whatever_the_standard_library_calls_private_is_not_public_but_for_what_leads_nowhere(v4: IPv4Address) -> None:
    left_open = any(v4 in network for network in OPEN)
    if (v4.is_private or v4.is_multicast or v4.is_reserved or v4.is_link_local) and not left_open:
        assert address_kind(str(v4)) is not None
    if v4.is_global and not v4.is_multicast and str(v4) not in TABLE[METADATA]:
        assert address_kind(str(v4)) is None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_address_in_another_has_its_kind(v4: IPv4Address) -> None:
    number = int(v4)
    for carrier in (
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address(0x64FF9B << 96 | number),
        IPv6Address(0x2002 << 112 | number << 80),
    ):
        assert address_kind(str(carrier)) == address_kind(str(v4))


@given(st.ip_addresses().map(str))
def test_every_address_has_an_answer(address: str) -> None:
    assert address_kind(address) in {None, *TABLE}


@pytest.mark.parametrize("text", ["", "a.example", "localhost", "127.1", "[::1]", "1.2.3.4.5"])
def test_what_is_no_address_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        address_kind(text)
