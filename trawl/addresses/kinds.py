"""What an IP address is for, if it is not one that anybody on the Internet may be reached at.

An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64 and the like) is what the carried one is, because a
gateway, or the system itself, goes on to that one.

Two ranges are left open on purpose. 198.18.0.0/15 (RFC 2544) is where transparent proxies on the user's own machine put
the names that they will resolve themselves. The ranges for documentation (RFC 5737, RFC 3849) lead nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["METADATA", "kind_of"]

METADATA = "a cloud's metadata service"
"""The kind of the addresses at which clouds tell a machine its secrets."""

_LINK_LOCAL = "link-local"

_METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # Amazon, Google, Azure, DigitalOcean, OpenStack, Oracle
            "169.254.170.2",  # Amazon ECS
            "169.254.170.23",  # Amazon EKS
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure's wire server: a public address by its number
            "192.0.0.192",  # Oracle, classic
            "fd00:ec2::254",  # Amazon
            "fd00:ec2::23",  # Amazon EKS
            "fd20:ce::254",  # Google
            "fd00:42::42",  # Scaleway
        ),
    )
)

_KINDS = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),  # RFC 1122, 3.2.1.3; Linux takes 0.0.0.0 for loopback
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared with a provider's other customers"),  # RFC 6598, carrier-grade NAT
        ("127.0.0.0/8", "loopback"),  # RFC 1122, 3.2.1.3
        ("169.254.0.0/16", _LINK_LOCAL),  # RFC 3927
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # RFC 6890
        ("192.168.0.0/16", "private"),
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("240.0.0.0/4", "reserved"),  # RFC 1112, 4; 255.255.255.255 is broadcast
        ("::/128", "unspecified"),  # RFC 4291, 2.5.2
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private"),  # RFC 8215: NAT64 of the own network
        ("fc00::/7", "private"),  # RFC 4193: unique-local
        ("fe80::/10", _LINK_LOCAL),
        ("fec0::/10", "private"),  # RFC 3879: site-local, of old
        ("ff00::/8", "multicast"),
    )
)

_CARRYING: tuple[tuple[IPv6Network, int], ...] = tuple(
    (IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # RFC 4291, 2.5.5.2: mapped
        ("::ffff:0:0:0/96", 0),  # RFC 2765: translated
        ("::/96", 0),  # RFC 4291, 2.5.5.1: compatible
        ("64:ff9b::/96", 0),  # RFC 6052: NAT64
        ("2002::/16", 80),  # RFC 3056: 6to4
    )
)
"""Where IPv6 addresses carry an IPv4 address, and how many bits are behind it."""

_TEREDO = IPv6Network("2001::/32")
_ALL_ONES = 0xFFFFFFFF


def kind_of(address: str) -> str | None:
    """What ``address`` is for, as ``"loopback"`` or ``"private"``; None if it is public.

    Args:
        address: IPv4 or IPv6, without brackets; a zone (``%eth0``) is of no meaning.

    Raises:
        ValueError: It is no address.
    """
    return next((kind for each in _meant(ip_address(address.partition("%")[0])) if (kind := _kind(each))), None)


def _meant(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The address, and those that it carries."""
    yield address
    if isinstance(address, IPv4Address):
        return
    bits = int(address)
    if bits < 2:  # unspecified and loopback carry nothing
        return
    if address in _TEREDO:  # RFC 4380, 4: the server, and the client with its bits turned over
        yield IPv4Address(bits >> 64 & _ALL_ONES)
        yield IPv4Address(bits & _ALL_ONES ^ _ALL_ONES)
    for network, shift in _CARRYING:
        if address in network:
            yield IPv4Address(bits >> shift & _ALL_ONES)


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if address in _METADATA:
        return METADATA
    return next((kind for network, kind in _KINDS if address in network), None)
