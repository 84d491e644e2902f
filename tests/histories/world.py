"""The pages and the limits of the histories' site, which the site, the spider and the checker share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

__all__ = ["ACCOUNT", "DELAY", "LEASE", "SCOPES", "SLOW", "World", "scopes_of"]

DELAY = 0.2
"""Minimum seconds between two sends to a host, from all workers together."""

LEASE = 3.0
"""Seconds of a session's lease."""

SLOW, ACCOUNT = "slow", "account"
"""Scopes that pages of all hosts need: the first has a delay, the second a quota."""

SCOPES: Mapping[str, Mapping[str, float]] = {
    SLOW: {"delay": 0.05},
    ACCOUNT: {"quota": 20, "window": 1.0},
}


def scopes_of(path: str) -> Sequence[str]:
    """Return the shared scopes that a page needs."""
    number = path.removeprefix("/")
    if not number.isdecimal():
        return []
    return [scope for scope, every in ((SLOW, 4), (ACCOUNT, 3)) if int(number) % every == 1]


@attrs.frozen
class World:
    """Hosts that have the same number of pages.

    Page ``n`` of a host links to two further pages of the host and to page ``n`` of two other hosts. Some pages also
    link to a redirect (``/r/n``), whose target is a page of the next host (``/t/n``) that has no other link.

    Attributes:
        hosts: The addresses of the hosts.
        pages: Number of pages of each host.
        port: The port of all hosts.
    """

    hosts: Sequence[str]
    pages: int
    port: int = 0

    @property
    def start(self) -> str:
        """Return the URL of the first page."""
        return self.url(0, "/0")

    @property
    def urls(self) -> set[str]:
        """Return the URLs of all pages that are not redirects."""
        numbers = [f"/{page}" for page in range(self.pages)]
        numbers += [f"/t/{page}" for page in range(self.pages) if _has_redirect(page)]
        return {self.url(host, path) for host in range(len(self.hosts)) for path in numbers}

    def url(self, host: int, path: str) -> str:
        """Return the URL of a page."""
        return f"http://{self.hosts[host % len(self.hosts)]}:{self.port}{path}"

    def links(self, host: int, path: str) -> list[str]:
        """Return the URLs in the links of a page."""
        if not path[1:].isdecimal():
            return []
        page = int(path[1:])
        found = [self.url(host, f"/{child}") for child in (2 * page + 1, 2 * page + 2) if child < self.pages]
        found += [self.url(host * 2 + step, path) for step in (1, 2)]
        return [*found, self.url(host, f"/r/{page}")] if _has_redirect(page) else found

    def target(self, host: int, path: str) -> str | None:
        """Return the URL to which a page redirects; None if it does not redirect."""
        return self.url(host + 1, f"/t/{path[3:]}") if path.startswith("/r/") else None

    def fails_first(self, path: str) -> bool:
        """Return whether a page's first response is a server error."""
        return path[1:].isdecimal() and int(path[1:]) % 19 == 7


def _has_redirect(page: int) -> bool:
    return page % 9 == 5
