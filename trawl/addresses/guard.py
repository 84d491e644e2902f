"""Keeps pages of strangers from sending a crawl to the user's own network (server-side request forgery, SSRF).

Theory of operation: a page may link, or redirect, to any URL, and a name may resolve to any address. So what counts is
the address that is dialled, each time one is: a name that is public when it is looked at and private when it is
connected to (DNS rebinding) gains nothing. A connection in the pool was dialled once and stays where it is, so that
nothing is asked about the pages that follow on it. URLs whose host is an address are refused before that, when they are
found.

Who may send a crawl to a private address, if the setting leaves it open? The user, by what ``start()`` gives:

* A start URL that says so in its text (an address that is not public, ``localhost``, a name without a dot, ``.local``,
  ``.internal``, ``.home.arpa``) opens every private address to the crawl: it is one of the own network.
* A start URL with any other name vouches for that name alone, and only as long as the name has never had a public
  address: whoever owns a name could otherwise open the guard by what he lets it resolve to.
* A cloud's metadata service is open only to a start URL that names its address or an ``.internal`` name.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from trawl.addresses.kinds import METADATA, kind_of
from trawl.http import host_of

__all__ = ["AddressGuard"]

MOST_NAMES = 10_000
"""Names of start URLs that are remembered; those after them can't vouch for a private address."""

MOST_REMEMBERED = 10_000
"""Addresses in URLs whose kind is remembered."""

_OWN_NAMES = (
    ".localhost",  # RFC 6761, 6.3
    ".local",  # RFC 6762, 3
    ".home.arpa",  # RFC 8375
    ".internal",  # kept for this by ICANN
)

_DIGITS = "0123456789["


class AddressGuard:
    """Decides for one crawl which addresses it may connect to. Mutable: it learns from start URLs and from look-ups.

    Args:
        allows: True lets everything through, False no address that is not public; None: start URLs decide.
    """

    __slots__ = ("_allows", "_is_open", "_kinds", "_names")

    def __init__(self, allows: bool | None = None) -> None:
        self._allows = allows
        self._is_open = bool(allows)
        self._names: dict[str, bool] = {}  # of start URLs -> whether they may still vouch for private addresses
        self._kinds: dict[str, str | None] = {}

    @property
    def is_open(self) -> bool:
        """Whether private addresses may be connected to, whoever names them."""
        return self._is_open

    def open(self) -> None:
        """Let private addresses be connected to, whoever names them, unless the setting says that none may be."""
        if self._allows is None:
            self._is_open = True

    def begin_at(self, url: str) -> bool:
        """Take note of a URL (in normal form) that the user starts from; whether such URLs have opened the guard."""
        if self._allows is not None:
            return False
        host = _bare(host_of(url))
        if not self._is_open:
            self._is_open = self._kind(host) is not None if _is_address(host) else _is_own_name(host)
        if len(self._names) < MOST_NAMES:
            self._names.setdefault(host, True)
        return self._is_open

    def refuses_url(self, url: str) -> bool:
        """Whether a URL (in normal form) names an address that may not be connected to. Hot: names cost nothing."""
        if self._is_open:
            return False
        if url[url.find(":") + 3] not in _DIGITS and "@" not in url:
            return False
        host = _bare(host_of(url))
        return _is_address(host) and bool(self.refused(host, [host]))

    def refused(self, host: str, addresses: Iterable[str]) -> dict[str, str]:
        """Those of a host's ``addresses`` that may not be connected to, each with what it is for.

        Args:
            host: A name or an address.
            addresses: What it was found to have, all of them.
        """
        if self._allows:
            return {}
        host = _bare(host)
        kinds = {address: self._kind(address) for address in addresses}
        if None in kinds.values() and host in self._names:
            self._names[host] = False
        return {address: kind for address, kind in kinds.items() if kind is not None and not self._admits(host, kind)}

    def _admits(self, host: str, kind: str) -> bool:
        """Whether ``host`` may be connected to at a private address of that kind."""
        if kind == METADATA:
            return host in self._names and (_is_address(host) or _is_own_name(host))
        return self._is_open or self._names.get(host, False)

    def _kind(self, address: str) -> str | None:
        try:
            return self._kinds[address]
        except KeyError:
            if len(self._kinds) >= MOST_REMEMBERED:
                self._kinds.clear()
            kind = self._kinds[address] = kind_of(address)
            return kind


def _bare(host: str) -> str:
    return host.strip("[]").rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_own_name(host: str) -> bool:
    """Whether a name can only be one of the own machine or network."""
    return "." not in host or host.endswith(_OWN_NAMES)
