"""The guard that keeps pages from sending a crawl to the user's own network (server-side request forgery, SSRF).

Theory of operation: a page may link or redirect to any URL, and a name may resolve to any address. So the address is
checked at each new connection. This also refuses a name whose address is public at first but private at the connection
(DNS rebinding). A connection in the pool keeps its address, so later requests on this connection are not checked. A URL
whose host is a private address is refused earlier, when the crawl finds the URL.

If the setting is None, start URLs decide whether private addresses are allowed:

* A start URL with a visibly private host (an address that is not public, ``localhost``, a name without a dot,
  ``.local``, ``.internal``, ``.home.arpa``) allows all private addresses, because the user crawls their own network.
* A start URL with any other name allows private addresses only for this name, and only as long as the name has never
  had a public address. Otherwise, the owner of the name could open the guard by changing the name's address.
* A cloud's metadata service is allowed only if a start URL names its address or an ``.internal`` name.

An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64 and so on) has the kind of the carried address,
because a gateway or the system connects to the carried address. Two ranges count as public on purpose. Transparent
proxies on the user's machine use 198.18.0.0/15 (RFC 2544) for names that they resolve themselves, and the ranges for
documentation (RFC 5737, RFC 3849) are not in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from trawl.http import host_of

__all__ = ["MAX_NAMES", "METADATA", "AddressGuard", "address_kind", "is_address", "is_loopback"]

METADATA = "a cloud's metadata service"
"""The kind of the addresses from which a machine in a cloud gets its credentials."""

_LINK_LOCAL = "link-local"

_METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # Amazon, Google, Azure, DigitalOcean, OpenStack, Oracle
            "169.254.170.2",  # Amazon ECS
            "169.254.170.23",  # Amazon EKS
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure's wire server, although the address is in a public range
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
        ("0.0.0.0/8", "unspecified"),  # RFC 1122, 3.2.1.3; Linux treats 0.0.0.0 as loopback
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
        ("64:ff9b:1::/48", "private"),  # RFC 8215: NAT64 of a local network
        ("fc00::/7", "private"),  # RFC 4193: unique-local
        ("fe80::/10", _LINK_LOCAL),
        ("fec0::/10", "private"),  # RFC 3879: site-local, deprecated
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
"""The IPv6 networks whose addresses carry an IPv4 address, and the number of bits after the IPv4 address."""

_TEREDO = IPv6Network("2001::/32")

_ALL_ONES = 0xFFFFFFFF


def address_kind(address: str) -> str | None:
    """Return the kind of an IP address without brackets, such as ``"loopback"``; None if it is public.

    A zone (``%eth0``) is ignored. Raises ValueError if it is not an address.
    """
    return next((kind for each in _meant(ip_address(address.partition("%")[0])) if (kind := _kind(each))), None)


def _meant(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield ``address`` and the IPv4 addresses that it carries."""
    yield address
    if isinstance(address, IPv4Address):
        return
    bits = int(address)
    if bits < 2:  # the unspecified and loopback addresses carry no IPv4 address
        return
    if address in _TEREDO:  # RFC 4380, 4: addresses of the server, and of the client with inverted bits
        yield IPv4Address(bits >> 64 & _ALL_ONES)
        yield IPv4Address(bits & _ALL_ONES ^ _ALL_ONES)
    for network, shift in _CARRYING:
        if address in network:
            yield IPv4Address(bits >> shift & _ALL_ONES)


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if address in _METADATA:
        return METADATA
    return next((kind for network, kind in _KINDS if address in network), None)


MAX_NAMES = 10_000
"""Maximum number of names of start URLs. Later names can't allow private addresses."""

MAX_REMEMBERED = 10_000
"""Maximum number of addresses in URLs whose kind is remembered."""

_OWN_NAMES = (
    ".localhost",  # RFC 6761, 6.3
    ".local",  # RFC 6762, 3
    ".home.arpa",  # RFC 8375
    ".internal",  # reserved by ICANN for this purpose
)

_DIGITS = "0123456789["


class AddressGuard:
    """Decides which addresses a crawl may connect to. Mutable, because it learns from start URLs and lookups.

    ``allows`` is True for all addresses, False for only public addresses, and None to let start URLs decide.
    """

    __slots__ = ("_allows", "_is_open", "_kinds", "_names")

    def __init__(self, allows: bool | None = None) -> None:
        self._allows = allows
        self._is_open = bool(allows)
        self._names: dict[str, bool] = {}  # names of start URLs -> whether they still allow private addresses
        self._kinds: dict[str, str | None] = {}

    @property
    def is_open(self) -> bool:
        """True if the crawl may connect to all private addresses."""
        return self._is_open

    def open(self) -> None:
        """Allow all private addresses, unless the setting decides."""
        if self._allows is None:
            self._is_open = True

    def note_start(self, url: str) -> bool:
        """Record a start URL (in normal form). Returns True if start URLs allow all private addresses."""
        if self._allows is not None:
            return False
        host = _bare(host_of(url))
        if not self._is_open:
            self._is_open = self._kind(host) is not None if is_address(host) else _is_own_name(host)
        if len(self._names) < MAX_NAMES:
            self._names.setdefault(host, True)
        return self._is_open

    def vouched(self, url: str) -> str:
        """Return the private addresses that start URLs allow: ``all``, ``host`` (of this URL only), or "" for none."""
        if self._allows is not None:
            return ""
        return "all" if self._is_open else "host" if self._names.get(_bare(host_of(url))) else ""

    def take_over(self, url: str, vouched: str) -> None:
        """Apply the result of :meth:`vouched` for this URL (in normal form) in another process."""
        if self._allows is not None:
            return
        if vouched == "all":
            self._is_open = True
        elif len(self._names) < MAX_NAMES:
            self._names.setdefault(_bare(host_of(url)), True)

    def refuses_url(self, url: str) -> bool:
        """Return True if a URL (in normal form) contains an address that is not allowed. Fast for names."""
        if self._is_open:
            return False
        if url[url.find(":") + 3] not in _DIGITS and "@" not in url:
            return False
        host = _bare(host_of(url))
        return is_address(host) and bool(self.refused(host, [host]))

    def refused(self, host: str, addresses: Iterable[str]) -> dict[str, str]:
        """Return the addresses of a host (a name or an address) that are not allowed, each with its kind."""
        if self._allows:
            return {}
        host = _bare(host)
        kinds = {address: self._kind(address) for address in addresses}
        if None in kinds.values() and host in self._names:
            self._names[host] = False
        return {address: kind for address, kind in kinds.items() if kind is not None and not self._admits(host, kind)}

    def _admits(self, host: str, kind: str) -> bool:
        """Return True if a private address of this kind is allowed for ``host``."""
        if kind == METADATA:
            return host in self._names and (is_address(host) or _is_own_name(host))
        return self._is_open or self._names.get(host, False)

    def _kind(self, address: str) -> str | None:
        try:
            return self._kinds[address]
        except KeyError:
            if len(self._kinds) >= MAX_REMEMBERED:
                self._kinds.clear()
            kind = self._kinds[address] = address_kind(address)
            return kind


def _bare(host: str) -> str:
    return host.strip("[]").rstrip(".")


def is_address(host: str) -> bool:
    """Return True if a host, without brackets, is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if a host, as in a URL, is this machine (RFC 1122, 3.2.1.3; RFC 6761, 6.3)."""
    host = _bare(host)
    if is_address(host):
        return address_kind(host) == "loopback"
    return host == "localhost" or host.endswith(".localhost")


def _is_own_name(host: str) -> bool:
    """Return True if a name can only belong to the local machine or network."""
    return "." not in host or host.endswith(_OWN_NAMES)
