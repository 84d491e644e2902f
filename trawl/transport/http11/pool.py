"""Connections to an origin: opened, and kept for the next request.

Theory of operation: an origin has its idle connections in a stack, and all idle connections are in one queue, in the
order in which they became idle. The youngest of an origin is used first, so that the oldest can expire; the oldest of
all is closed first when there are too many, and it is also the oldest of its origin. So taking, giving and closing
never search. Nothing runs in the background: expired connections are closed when another one is taken or given.
"""

from __future__ import annotations

import socket
import ssl
from collections import OrderedDict, deque
from math import inf
from typing import TYPE_CHECKING

import attrs

from trawl.address_guard import AddressGuard
from trawl.errors import ConnectFailed, NameNotResolved, UnsupportedScheme
from trawl.transport.base import is_short_of_files, tls_failure, words_of
from trawl.transport.connect import ConnectOptions, dial
from trawl.transport.http11.message import ParsedUrl
from trawl.transport.http11.network_stream import NetworkStream, TcpStream, client_context, start_tls
from trawl.transport.resolver import Resolve, ResolverCache, ThreadResolver
from trawl.transport.settings import BindAddress

if TYPE_CHECKING:
    from trawl.transport.http11.connection import Connection

__all__ = ["ConnectionFactory", "FileLimitError", "Origin", "Pool", "room_for_idle"]


MAX_IDLE = 4_096
"""Maximum number of idle connections; if the system allows fewer open files, half of those."""

OTHER_FILES = 32
"""Files that are left for the feeds, the job, the log, and Python itself."""

USUAL_IDLE = 100
"""Maximum number of idle connections if the system has no limit for open files."""

MAX_ORIGINS = 4_096
"""Origins known; beyond that number those without a connection are forgotten, with their TLS sessions."""


def room_for_idle() -> int:
    """Return the maximum number of idle connections: half of the files that this process may open, minus a few."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return USUAL_IDLE
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_IDLE if allowed == resource.RLIM_INFINITY else max(1, min(MAX_IDLE, (allowed - OTHER_FILES) // 2))


class Origin:
    """The state of one origin.

    Attributes:
        key: Its key in the pool.
        url: The beginning of its URLs, up to the path.
        parsed: The parts of its URL; the path has no meaning.
        idle: Its idle connections, the youngest last.
        session: The last TLS session, to resume.
        server_name: The name that the certificate must be for, if not the host.
        bind_address: The address that connections come from, if not the default.
    """

    __slots__ = ("bind_address", "idle", "key", "parsed", "server_name", "session", "url")

    def __init__(self, key: str, url: str, server_name: str = "", bind_address: BindAddress | None = None) -> None:
        self.key: str = key
        self.url: str = url
        self.parsed: ParsedUrl = ParsedUrl.of(url)
        self.idle: deque[Connection] = deque()
        self.session: ssl.SSLSession | None = None
        self.server_name: str = server_name
        self.bind_address: BindAddress | None = bind_address


class Pool:
    """The idle connections. The number in use has no limit here: throttling limits it.

    Args:
        keepalive: Seconds that an idle connection is kept.
        max_idle: Maximum number of idle connections; the oldest is closed first.
    """

    def __init__(self, *, keepalive: float, max_idle: int) -> None:
        self._keepalive = keepalive
        self._max_idle = max_idle
        self._origins: dict[str, Origin] = {}
        self._sweep_at = MAX_ORIGINS
        self._idle: OrderedDict[Connection, Origin] = OrderedDict()
        self._is_closed = False
        self._expires_at = inf  # nothing runs out before

    def __len__(self) -> int:
        """Return the number of idle connections."""
        return len(self._idle)

    def origin(self, url: str, server_name: str = "", bind_address: BindAddress | None = None) -> Origin:
        """Return the state of the origin of ``url``.

        Args:
            url: A URL in normal form, up to its path.
            server_name: The name that the certificate must be for, if not the host.
            bind_address: The address that connections come from, if not the default.

        Raises:
            UnsupportedScheme: The scheme is neither http nor https.
        """
        key = f"{url} {server_name}" if server_name else url
        if bind_address is not None:
            key = f"{key} {bind_address}"
        origin = self._origins.get(key)
        if origin is None:
            scheme = url.partition(":")[0]
            if scheme not in {"http", "https"}:
                raise UnsupportedScheme(f"the scheme {scheme!r} is not fetched")
            origin = self._origins[key] = Origin(key, url, server_name, bind_address)
            if len(self._origins) > self._sweep_at:
                self._origins = {each: known for each, known in self._origins.items() if known.idle or known is origin}
                # Where most have connections: not a sweep for each new origin.
                self._sweep_at = max(MAX_ORIGINS, 2 * len(self._origins))
        return origin

    def take(self, origin: Origin, now: float) -> Connection | None:
        """Take an open connection to ``origin`` out of the pool; None if there is none. Closes the expired ones."""
        if now >= self._expires_at:
            self._expire(now)
        while origin.idle:
            connection = origin.idle.pop()
            del self._idle[connection]
            # A server that has closed it, or said something unasked, has made it readable.
            if connection.wire.is_quiet():
                return connection
            connection.close()
        return None

    def give(self, origin: Origin, connection: Connection, now: float) -> None:
        """Keep ``connection``, whose last response is whole, for the next request to ``origin``."""
        if self._is_closed or not self._keepalive:
            connection.close()
            return
        # It may have been swept out while its only connection was in use.
        origin = self._origins.setdefault(origin.key, origin)
        connection.idle_since = now
        origin.idle.append(connection)
        if not self._idle:
            self._expires_at = now + self._keepalive
        self._idle[connection] = origin
        if len(self._idle) > self._max_idle:
            self._close_oldest()
        if now >= self._expires_at:
            self._expire(now)

    def make_room(self) -> bool:
        """Close the connection that has been idle for longest. Returns False if there is none."""
        if not self._idle:
            return False
        self._close_oldest()
        return True

    def close(self) -> None:
        """Close all idle connections, and from now on each one that is given."""
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
        connection, origin = self._idle.popitem(last=False)
        origin.idle.popleft()
        connection.close()


_NO_FILES = "no connection: too many files are open (raise the limit: ulimit -n)"


class FileLimitError(ConnectFailed):
    """This process may open no more files. Internal to the transports: the host is not to blame."""


class ConnectionFactory:
    """Opens connections.

    Args:
        resolve: Looks names up; None: the system does, in threads. An answer is remembered for a minute.
        ssl_context: Decides what servers are trusted; None: those that certifi trusts, loaded for the first ``https``
            origin. Its list of ALPN protocols is set to HTTP/1.1.
        verifies: Check certificates, if there is no ``ssl_context``.
        guard: Says which addresses may be connected to; None: all.
        options: Options of the connections.
    """

    def __init__(
        self,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        *,
        verifies: bool = True,
        guard: AddressGuard | None = None,
        options: ConnectOptions | None = None,
    ) -> None:
        self._resolve = ResolverCache(resolve or ThreadResolver())
        self._context = ssl_context
        self._verifies = verifies
        self._guard = guard
        self._options = options or ConnectOptions()

    async def __call__(self, origin: Origin) -> NetworkStream:
        """Open a connection to ``origin``. Cancelling closes what was opened. Always a checkpoint.

        Raises:
            NameNotResolved: The name has no address.
            FileLimitError: This process may open no more files.
            AddressRefused: None of its addresses may be connected to.
            TLSFailed: The handshake failed or the certificate was refused.
            ConnectFailed: No address answered.
        """
        parsed, options = origin.parsed, self._options
        if origin.bind_address is not None:
            options = attrs.evolve(options, bind_address=origin.bind_address)
        try:
            stream = await dial(parsed.host, parsed.port, self._resolve, self._guard, options)
        except socket.gaierror as error:
            if is_short_of_files(error):
                raise FileLimitError(_NO_FILES) from error
            raise NameNotResolved(f"the name {parsed.host!r} has no address ({words_of(error)})") from error
        except OSError as error:
            if is_short_of_files(error):
                raise FileLimitError(_NO_FILES) from error
            self._resolve.forget(parsed.host, parsed.port)
            raise ConnectFailed(f"no connection: {words_of(error)}") from error
        try:
            if parsed.scheme == "https":
                return await start_tls(stream, origin.server_name or parsed.host, self._tls_context(), origin.session)
            return TcpStream(stream)
        except ssl.SSLError as error:
            raise tls_failure(error) from error
        except OSError as error:
            stream.socket.close()
            if is_short_of_files(error):
                raise FileLimitError(_NO_FILES) from error
            raise ConnectFailed(f"no connection: {words_of(error)}") from error

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = client_context(verifies=self._verifies)
        self._context.set_alpn_protocols(["http/1.1"])  # each time: its owner may use it for something else too
        return self._context
