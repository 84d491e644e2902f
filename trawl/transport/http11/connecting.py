"""From an origin to a wire: its addresses, a connection to the first that answers (RFC 8305), TLS if it is https."""

from __future__ import annotations

import socket
import ssl

import attrs

from trawl.addresses import AddressGuard
from trawl.errors import ConnectFailed, NameNotResolved
from trawl.transport.dial import Line, Resolve, ThreadResolver, dial, is_short_of_files
from trawl.transport.http11.names import CachedResolver
from trawl.transport.http11.pool import Site
from trawl.transport.http11.tls import client_context, secured
from trawl.transport.http11.wire import SocketWire, Wire
from trawl.transport.wording import tls_failure, words_of

__all__ = ["Connector", "OutOfFilesError"]

_NO_FILES = "no connection: too many files are open (raise the limit: ulimit -n)"


class OutOfFilesError(ConnectFailed):
    """This process may open no more files; internal to the transports, for the host is not to blame."""


class Connector:
    """Opens connections.

    Args:
        resolve: Looks names up; None: as the system does, in threads. What it says is remembered for a minute.
        ssl_context: Decides what servers are trusted; None: those that certifi trusts, asked when the first ``https``
            site is. Its list of ALPN protocols is set to HTTP/1.1, which is all we speak.
        verifies: Whether certificates are looked at, if there is no ``ssl_context``.
        guard: Says which addresses may be connected to; None: all.
        line: How connections are made.
    """

    def __init__(
        self,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        *,
        verifies: bool = True,
        guard: AddressGuard | None = None,
        line: Line | None = None,
    ) -> None:
        self._resolve = CachedResolver(resolve or ThreadResolver())
        self._context = ssl_context
        self._verifies = verifies
        self._guard = guard
        self._line = line or Line()

    async def __call__(self, site: Site) -> Wire:
        """A new connection to ``site``. Cancelling closes what was opened. Always a checkpoint.

        Raises:
            NameNotResolved: The name has no address.
            OutOfFilesError: This process may open no more files.
            AddressRefused: None of its addresses may be connected to.
            TLSFailed: The handshake failed or the certificate was refused.
            ConnectFailed: Nobody answered.
        """
        target, line = site.target, self._line
        if site.local_end is not None:
            line = attrs.evolve(line, local_end=site.local_end)
        try:
            stream = await dial(target.host, target.port, self._resolve, self._guard, line)
        except socket.gaierror as error:
            if is_short_of_files(error):
                raise OutOfFilesError(_NO_FILES) from error
            raise NameNotResolved(f"the name {target.host!r} has no address ({words_of(error)})") from error
        except OSError as error:
            if is_short_of_files(error):
                raise OutOfFilesError(_NO_FILES) from error
            self._resolve.forget(target.host, target.port)
            raise ConnectFailed(f"no connection: {words_of(error)}") from error
        try:
            if target.scheme == "https":
                return await secured(stream, site.server_name or target.host, self._tls_context(), site.session)
            return SocketWire(stream)
        except ssl.SSLError as error:
            raise tls_failure(error) from error
        except OSError as error:
            stream.socket.close()
            if is_short_of_files(error):
                raise OutOfFilesError(_NO_FILES) from error
            raise ConnectFailed(f"no connection: {words_of(error)}") from error

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = client_context(verifies=self._verifies)
        self._context.set_alpn_protocols(["http/1.1"])  # each time: who gave it may use it for something else too
        return self._context
