"""What the site of the histories holds, and what limits a crawl of it is to keep: known to site, spider and checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

__all__ = ["ACCOUNT", "DELAY", "LEASE", "SCOPES", "SLOW", "World", "scopes_of"]

DELAY = 0.2
"""Seconds between two sends to one host, whoever sends."""

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
    """Hosts with as many pages each.

    Page ``n`` of a host leads to two more of it, and to page ``n`` of two others. Some lead to a redirect as well
    (``/r/n``), whose target is a page of the next host (``/t/n``) that nothing else leads to.

    Attributes:
        hosts: Their addresses.
        pages: How many each has.
        port: Where all of them listen.
    """

    hosts: Sequence[str]
    pages: int
    port: int = 0

    @property
    def start(self) -> str:
        """The URL of the first page."""
        return self.url(0, "/0")

    @property
    def urls(self) -> set[str]:
        """The URLs of all pages that are not redirects."""
        numbers = [f"/{page}" for page in range(self.pages)]
        numbers += [f"/t/{page}" for page in range(self.pages) if _has_redirect(page)]
        return {self.url(host, path) for host in range(len(self.hosts)) for path in numbers}

    def url(self, host: int, path: str) -> str:
        """The URL of a page."""
        return f"http://{self.hosts[host % len(self.hosts)]}:{self.port}{path}"

    def links(self, host: int, path: str) -> list[str]:
        """The URLs that a page leads to."""
        if not path[1:].isdecimal():
            return []
        page = int(path[1:])
        found = [self.url(host, f"/{child}") for child in (2 * page + 1, 2 * page + 2) if child < self.pages]
        found += [self.url(host * 2 + step, path) for step in (1, 2)]
        return [*found, self.url(host, f"/r/{page}")] if _has_redirect(page) else found

    def target(self, host: int, path: str) -> str | None:
        """The URL that a page redirects to; None: it does not."""
        return self.url(host + 1, f"/t/{path[3:]}") if path.startswith("/r/") else None

    def fails_first(self, path: str) -> bool:
        """Whether a page's first answer is that the server failed."""
        return path[1:].isdecimal() and int(path[1:]) % 19 == 7


def _has_redirect(page: int) -> bool:
    return page % 9 == 5
