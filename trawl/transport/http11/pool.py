"""Connections kept for the next request, by origin.

Theory of operation: an origin has its idle connections in a stack, and all of them are in one queue, in the order in
which they became idle. The youngest of an origin is used first, so that the oldest can run out; the oldest of all is
closed first when there are too many, and it is also the oldest of its origin. So taking, giving and closing
never search. Nothing runs in the background: what ran out is closed when somebody takes or gives.

TLS by Trio's ``SSLStream`` (RFC 8446), as browsers do it: nobody's goodbye is waited for.

A server that closes without ``close_notify`` has ended its stream: most do so. A body that has a length or chunks shows
a cut all the same; one that ends with the connection does not (RFC 9112, 9.8).

From an origin to a wire: its addresses, a connection to the first that answers (RFC 8305), TLS if it is https.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import OrderedDict, deque
from math import inf
from typing import TYPE_CHECKING

import attrs
import certifi
import trio

from trawl.addresses import AddressGuard
from trawl.errors import ConnectFailed, NameNotResolved, UnsupportedScheme
from trawl.transport.connect import ConnectOptions, dial, is_short_of_files
from trawl.transport.errors import tls_failure, words_of
from trawl.transport.http11.network_stream import NetworkStream, TcpStream, TrioStream, peer_of
from trawl.transport.http11.request_head import Target
from trawl.transport.resolver import Resolve, ResolverCache, ThreadResolver
from trawl.transport.settings import BindAddress

if TYPE_CHECKING:
    from trawl.transport.http11.connection import Connection

__all__ = ["Connector", "FileLimitError", "Origin", "Pool", "client_context", "room_for_idle", "secured"]


def client_context(*, verifies: bool = True) -> ssl.SSLContext:
    """Return the context of a client that speaks HTTP/1.1.

    Servers are trusted that certifi trusts, or those of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` if one of them is set.

    Args:
        verifies: Whether certificates are looked at.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def secured(
    plain: trio.SocketStream, host: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> TrioStream:
    """Shake hands over ``plain`` and return the wire that is safe then. Closes ``plain`` if that fails or is cancelled.

    Args:
        plain: A fresh connection.
        host: Whose certificate is asked for.
        context: Decides what is trusted.
        session: An earlier session with this server, to go on with (RFC 8446, 2.2); must be of the same context.

    Raises:
        ssl.SSLError: The handshake failed or the certificate was refused.
        OSError: The connection broke.
    """
    peer = peer_of(plain.socket)
    secure = trio.SSLStream(plain, context, server_hostname=host.rstrip("."), https_compatible=True)
    try:
        if session is not None:
            secure.session = session
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        plain.socket.close()
        raise (error.__cause__ if isinstance(error.__cause__, OSError) else ConnectionResetError(str(error))) from error
    except BaseException:
        plain.socket.close()
        raise

    def is_quiet() -> bool:
        return plain.socket.fileno() >= 0 and not plain.socket.is_readable() and not secure.pending()

    return TrioStream(secure, close=plain.socket.close, is_quiet=is_quiet, peer=peer)


MAX_IDLE = 4_096
"""Idle connections that are kept at most; where the system allows fewer open files, half of those."""

OTHER_FILES = 32
"""Files that are not counted on for connections: the feeds, the job, the log, what Python itself holds open."""

USUAL_IDLE = 100
"""Idle connections that are kept where the system has no such limit."""

MAX_ORIGINS = 4_096
"""Sites known beyond which those without a connection are forgotten, with their TLS sessions."""


def room_for_idle() -> int:
    """How many idle connections can be kept: half of the files that this process may have open, but for a few."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return USUAL_IDLE
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_IDLE if allowed == resource.RLIM_INFINITY else max(1, min(MAX_IDLE, (allowed - OTHER_FILES) // 2))


class Origin:
    """What is kept about one origin.

    Attributes:
        key: Its key in the pool.
        url: The beginning of its URLs, up to the path.
        target: Its parts; the path is of no meaning.
        idle: Connections that nobody uses, the youngest last.
        session: The last TLS session, to go on with.
        server_name: Whose certificate is asked for, if it is not the host's.
        bind_address: Where connections come from, if not from where the others do.
    """

    __slots__ = ("bind_address", "idle", "key", "server_name", "session", "target", "url")

    def __init__(self, key: str, url: str, server_name: str = "", bind_address: BindAddress | None = None) -> None:
        self.key: str = key
        self.url: str = url
        self.target: Target = Target.of(url)
        self.idle: deque[Connection] = deque()
        self.session: ssl.SSLSession | None = None
        self.server_name: str = server_name
        self.bind_address: BindAddress | None = bind_address


class Pool:
    """The idle connections. Nothing caps how many are in use: throttling does.

    Args:
        keepalive: Seconds that a connection stays idle before it is closed.
        max_idle: Idle connections kept; the oldest goes first.
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
        """How many connections are idle."""
        return len(self._idle)

    def origin(self, url: str, server_name: str = "", bind_address: BindAddress | None = None) -> Origin:
        """What is known about the origin of ``url``: a URL in normal form, or its beginning.

        Args:
            url: Where connections go.
            server_name: Whose certificate is asked for, if it is not the host's.
            bind_address: Where connections come from, if not from where the others do.

        Raises:
            UnsupportedScheme: It is neither http nor https.
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
                self._sweep_at = max(MAX_ORIGINS, 2 * len(self._origins))
        return origin

    def take(self, origin: Origin, now: float) -> Connection | None:
        """An open connection to ``origin``, no longer idle; None: open one. Closes those that ran out."""
        if now >= self._expires_at:
            self._expire(now)
        while origin.idle:
            connection = origin.idle.pop()
            del self._idle[connection]
            if connection.wire.is_quiet():
                return connection
            connection.close()
        return None

    def give(self, origin: Origin, connection: Connection, now: float) -> None:
        """Keep ``connection`` for the next request to ``origin``, whose last one is whole."""
        if self._is_closed or not self._keepalive:
            connection.close()
            return
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
        connection, origin = self._idle.popitem(last=False)
        origin.idle.popleft()
        connection.close()


_NO_FILES = "no connection: too many files are open (raise the limit: ulimit -n)"


class FileLimitError(ConnectFailed):
    """This process may open no more files; internal to the transports, for the host is not to blame."""


class Connector:
    """Opens connections.

    Args:
        resolve: Looks names up; None: as the system does, in threads. What it says is remembered for a minute.
        ssl_context: Decides what servers are trusted; None: those that certifi trusts, asked when the first ``https``
            origin is. Its list of ALPN protocols is set to HTTP/1.1, which is all we speak.
        verifies: Whether certificates are looked at, if there is no ``ssl_context``.
        guard: Says which addresses may be connected to; None: all.
        options: How connections are made.
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
        """A new connection to ``origin``. Cancelling closes what was opened. Always a checkpoint.

        Raises:
            NameNotResolved: The name has no address.
            FileLimitError: This process may open no more files.
            AddressRefused: None of its addresses may be connected to.
            TLSFailed: The handshake failed or the certificate was refused.
            ConnectFailed: Nobody answered.
        """
        target, options = origin.target, self._options
        if origin.bind_address is not None:
            options = attrs.evolve(options, bind_address=origin.bind_address)
        try:
            stream = await dial(target.host, target.port, self._resolve, self._guard, options)
        except socket.gaierror as error:
            if is_short_of_files(error):
                raise FileLimitError(_NO_FILES) from error
            raise NameNotResolved(f"the name {target.host!r} has no address ({words_of(error)})") from error
        except OSError as error:
            if is_short_of_files(error):
                raise FileLimitError(_NO_FILES) from error
            self._resolve.forget(target.host, target.port)
            raise ConnectFailed(f"no connection: {words_of(error)}") from error
        try:
            if target.scheme == "https":
                return await secured(stream, origin.server_name or target.host, self._tls_context(), origin.session)
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
        self._context.set_alpn_protocols(["http/1.1"])  # each time: who gave it may use it for something else too
        return self._context
