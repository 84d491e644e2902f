"""Connections kept for the next request, by origin.

Theory of operation: a site has its idle connections in a stack, and all of them are in one queue, in the order in
which they became idle. The youngest of a site is used first, so that the oldest can run out; the oldest of all is
closed first when there are too many, and it is also the oldest of its site. So taking, giving and closing never search.
Nothing runs in the background: what ran out is closed when somebody takes or gives.
"""

from __future__ import annotations

import ssl
from collections import OrderedDict, deque
from math import inf
from typing import TYPE_CHECKING

from trawl.errors import UnsupportedScheme
from trawl.transport.local_end import LocalEnd
from trawl.transport.target import Target

if TYPE_CHECKING:
    from trawl.transport.http11.connection import Connection

__all__ = ["Pool", "Site", "room_for_idle"]

MOST_IDLE = 4_096
"""Idle connections that are kept at most; where the system allows fewer open files, half of those."""

OTHER_FILES = 32
"""Files that are not counted on for connections: the feeds, the job, the log, what Python itself holds open."""

USUAL_IDLE = 100
"""Idle connections that are kept where the system has no such limit."""

MOST_SITES = 4_096
"""Sites known beyond which those without a connection are forgotten, with their TLS sessions."""


def room_for_idle() -> int:
    """How many idle connections can be kept: half of the files that this process may have open, but for a few."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return USUAL_IDLE
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_IDLE if allowed == resource.RLIM_INFINITY else max(1, min(MOST_IDLE, (allowed - OTHER_FILES) // 2))


class Site:
    """What is kept about one origin.

    Attributes:
        origin: The URL's beginning, up to the path; also the key.
        target: Its parts; the path is of no meaning.
        idle: Connections that nobody uses, the youngest last.
        session: The last TLS session, to go on with.
        server_name: Whose certificate is asked for, if it is not the host's.
        local_end: Where connections come from, if not from where the others do.
    """

    __slots__ = ("idle", "local_end", "origin", "server_name", "session", "target")

    def __init__(self, origin: str, target: Target, server_name: str = "", local_end: LocalEnd | None = None) -> None:
        self.origin: str = origin
        self.target: Target = target
        self.idle: deque[Connection] = deque()
        self.session: ssl.SSLSession | None = None
        self.server_name: str = server_name
        self.local_end: LocalEnd | None = local_end


class Pool:
    """The idle connections. Nothing caps how many are in use: throttling does.

    Args:
        keepalive: Seconds that a connection stays idle before it is closed.
        most_idle: Idle connections kept; the oldest goes first.
    """

    def __init__(self, *, keepalive: float, most_idle: int) -> None:
        self._keepalive = keepalive
        self._most_idle = most_idle
        self._sites: dict[str, Site] = {}
        self._sweep_at = MOST_SITES
        self._idle: OrderedDict[Connection, Site] = OrderedDict()
        self._is_closed = False
        self._expires_at = inf  # nothing runs out before

    def __len__(self) -> int:
        """How many connections are idle."""
        return len(self._idle)

    def site(self, origin: str, server_name: str = "", local_end: LocalEnd | None = None) -> Site:
        """What is known about ``origin``: a URL in normal form, or its beginning.

        Args:
            origin: Where connections go.
            server_name: Whose certificate is asked for, if it is not the host's.
            local_end: Where connections come from, if not from where the others do.

        Raises:
            UnsupportedScheme: It is neither http nor https.
        """
        key = f"{origin} {server_name}" if server_name else origin
        if local_end is not None:
            key = f"{key} {local_end}"
        site = self._sites.get(key)
        if site is None:
            scheme = origin.partition(":")[0]
            if scheme not in {"http", "https"}:
                raise UnsupportedScheme(f"the scheme {scheme!r} is not fetched")
            site = self._sites[key] = Site(key, Target.of(origin), server_name, local_end)
            if len(self._sites) > self._sweep_at:
                self._sites = {each: known for each, known in self._sites.items() if known.idle or known is site}
                self._sweep_at = max(MOST_SITES, 2 * len(self._sites))
        return site

    def take(self, site: Site, now: float) -> Connection | None:
        """An open connection to ``site``, no longer idle; None: open one. Closes those that ran out."""
        if now >= self._expires_at:
            self._expire(now)
        while site.idle:
            connection = site.idle.pop()
            del self._idle[connection]
            if connection.wire.is_quiet():
                return connection
            connection.close()
        return None

    def give(self, site: Site, connection: Connection, now: float) -> None:
        """Keep ``connection`` for the next request to ``site``, whose last one is whole."""
        if self._is_closed or not self._keepalive:
            connection.close()
            return
        site = self._sites.setdefault(site.origin, site)
        connection.idle_since = now
        site.idle.append(connection)
        if not self._idle:
            self._expires_at = now + self._keepalive
        self._idle[connection] = site
        if len(self._idle) > self._most_idle:
            self._close_oldest()
        if now >= self._expires_at:
            self._expire(now)

    def make_room(self) -> bool:
        """Close the connection that has been idle for longest; whether there was one."""
        if not self._idle:
            return False
        self._close_oldest()
        return True

    def close(self) -> None:
        """Close all that are idle, and from now on each that is given."""
        self._is_closed = True
        while self._idle:
            self._close_oldest()

    def _expire(self, now: float) -> None:
        self._expires_at = inf
        while self._idle:
            until = next(iter(self._idle)).idle_since + self._keepalive
            if until > now:
                self._expires_at = until
                break
            self._close_oldest()

    def _close_oldest(self) -> None:
        connection, site = self._idle.popitem(last=False)
        site.idle.popleft()
        connection.close()
