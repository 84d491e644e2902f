"""Opening connections to origins, and keeping idle connections for later requests.

Each origin has a stack of its idle connections. All idle connections are also in one queue, in the order in which they
became idle. A request takes the connection of its origin that became idle last, so that the older connections can
expire. The first connection of the queue is also the oldest of its origin. So the pool never searches, and needs no
background task: ``take`` and ``give`` close expired connections.
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
"""Maximum number of idle connections, or half of the allowed open files if that is less."""

OTHER_FILES = 32
"""Files reserved for the feeds, the job, the log, and Python itself."""

USUAL_IDLE = 100
"""Maximum number of idle connections if the limit of open files is unknown."""

MAX_ORIGINS = 4_096
"""Number of known origins above which origins without idle connections are removed, with their TLS sessions."""


def room_for_idle() -> int:
    """Return the maximum number of idle connections, almost half of the number of files that this process may open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return USUAL_IDLE
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_IDLE if allowed == resource.RLIM_INFINITY else max(1, min(MAX_IDLE, (allowed - OTHER_FILES) // 2))


class Origin:
    """The state of one origin. ``url`` is the start of its URLs, up to the path.

    Attributes:
        idle: The idle connections to the origin, in the order in which they became idle.
        session: The last TLS session, for resumption.
        server_name: The name for which the certificate must be valid; "" for the host.
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
    """The idle connections, each kept for ``keepalive`` seconds. There are at most ``max_idle``.

    Connections in use are not limited here, because throttling limits them.
    """

    def __init__(self, *, keepalive: float, max_idle: int) -> None:
        self._keepalive = keepalive
        self._max_idle = max_idle
        self._origins: dict[str, Origin] = {}
        self._sweep_at = MAX_ORIGINS
        self._idle: OrderedDict[Connection, Origin] = OrderedDict()
        self._is_closed = False
        self._expires_at = inf  # no connection expires before this time

    def __len__(self) -> int:
        """Return the number of idle connections."""
        return len(self._idle)

    def origin(self, url: str, server_name: str = "", bind_address: BindAddress | None = None) -> Origin:
        """Return the state of the origin of ``url``, a URL in normal form up to its path.

        Raises UnsupportedScheme if the scheme is neither http nor https.
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
                # If most origins have connections, the sweep removes few. Double the limit, or each new origin would
                # cause a sweep.
                self._sweep_at = max(MAX_ORIGINS, 2 * len(self._origins))
        return origin

    def take(self, origin: Origin, now: float) -> Connection | None:
        """Take an open connection to ``origin`` out of the pool, or return None. Closes expired connections."""
        if now >= self._expires_at:
            self._expire(now)
        while origin.idle:
            connection = origin.idle.pop()
            del self._idle[connection]
            # A connection is not quiet if the server has closed it or sent unexpected data.
            if connection.wire.is_quiet():
                return connection
            connection.close()
        return None

    def give(self, origin: Origin, connection: Connection, now: float) -> None:
        """Keep ``connection``, whose last response is complete, for the next request to ``origin``."""
        if self._is_closed or not self._keepalive:
            connection.close()
            return
        # A sweep may have removed the origin while its only connection was in use.
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
        """Close the connection that has been idle longest and return True, or return False if there is none."""
        if not self._idle:
            return False
        self._close_oldest()
        return True

    def close(self) -> None:
        """Close all idle connections. From now on, ``give`` closes each connection."""
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
    """The limit of open files is reached, which is not the host's fault. Internal to the transports."""


class ConnectionFactory:
    """Opens connections. Results of ``resolve`` are cached for a minute.

    Without ``ssl_context``, the certificates of certifi are loaded for the first ``https`` origin. The ALPN protocols
    of the context are set to HTTP/1.1.
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
        """Open a connection to ``origin``. Cancelling closes all opened sockets. Always a checkpoint.

        Raises AddressRefused, or ConnectFailed or one of its kinds: NameNotResolved, TLSFailed, FileLimitError.
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
        # Set the protocols for each connection, because the owner of the context may have changed them.
        self._context.set_alpn_protocols(["http/1.1"])
        return self._context
