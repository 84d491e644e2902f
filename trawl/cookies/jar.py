"""The cookies of one session, found by host (RFC 6265, 5.3 and 5.4), bounded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trawl.cookies.cookie import Cookie, Place, domain_matches

__all__ = ["Jar"]

MOST_A_DOMAIN = 180
"""Cookies kept for one domain; browsers keep as many."""

MOST = 20_000
"""Cookies kept in a jar; beyond it the domain that got its first cookie earliest is forgotten."""


class Jar:
    """Keeps cookies by domain, name and path. Looking a request's cookies up costs one step a label of its host."""

    __slots__ = ("_count", "_domains")

    def __init__(self) -> None:
        self._domains: dict[str, dict[tuple[str, str], Cookie]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def store(self, cookie: Cookie, now_utc: datetime) -> None:
        """Keep a cookie in place of the one with its name, domain and path; one that has expired removes that one."""
        kept = self._domains.setdefault(cookie.domain, {})
        key = cookie.name, cookie.path
        self._count -= len(kept)
        if cookie.is_expired(now_utc):
            kept.pop(key, None)
        else:
            kept[key] = cookie
            if len(kept) > MOST_A_DOMAIN:
                _make_room(kept, now_utc)
        self._count += len(kept)
        if not kept:
            del self._domains[cookie.domain]
        while self._count > MOST:
            self._count -= len(self._domains.pop(next(iter(self._domains))))

    def secure_near(self, domain: str, now_utc: datetime) -> list[Cookie]:
        """The secure cookies of a domain, and of those above and below it, that have not expired."""
        near = [other for other in self._domains if other.endswith(domain) and domain_matches(other, domain)]
        above = domain
        while above := above.partition(".")[2]:
            near.append(above)
        kept = (cookie for other in near for cookie in self._domains.get(other, {}).values())
        return [cookie for cookie in kept if cookie.is_secure and not cookie.is_expired(now_utc)]

    def __iter__(self) -> Iterator[Cookie]:
        for kept in self._domains.values():
            yield from kept.values()

    def clear(self) -> None:
        """Forget every cookie."""
        self._domains.clear()
        self._count = 0

    def matching(self, place: Place, now_utc: datetime) -> list[Cookie]:
        """The cookies to send to ``place``: longer paths first, then older ones (RFC 6265, 5.4, 2)."""
        found: list[Cookie] = []
        domain, is_own = place.host, True
        while domain:
            for cookie in self._domains.get(domain, {}).values():
                if (is_own or not cookie.is_host_only) and cookie.is_sent_to(place) and not cookie.is_expired(now_utc):
                    found.append(cookie)
            domain, is_own = domain.partition(".")[2], False
        found.sort(key=lambda cookie: -len(cookie.path))
        return found


def _make_room(kept: dict[tuple[str, str], Cookie], now_utc: datetime) -> None:
    """Drop what has expired, else the oldest."""
    for key in [key for key, cookie in kept.items() if cookie.is_expired(now_utc)]:
        del kept[key]
    while len(kept) > MOST_A_DOMAIN:
        del kept[next(iter(kept))]
