"""The bytes to and from a server: over TCP, over TLS, or over any of Trio's streams.

Theory of operation: HTTP/1.1 takes turns, so a stream is never read and written at once, and what Trio's streams do to
guard against that (two conflict detectors, a checkpoint after each send) buys nothing here. :class:`TcpStream` sends
without giving way. Then all other tasks have one turn, after which a busy program finds most answers there: waiting for
a socket costs three times as much as giving way, and needs a time limit besides. If nothing has come by then, this is
not tried again for a while. Any other stream goes through :class:`TrioStream`.

TLS is Trio's ``SSLStream`` (RFC 8446), used as browsers do: the peer's goodbye is not waited for. A server that closes
without ``close_notify`` has ended its stream: many do so. A body that has a length or chunks shows a cut all the same;
one that ends with the connection may have been cut by anybody on the way (RFC 9112, 9.8), so that end is noted.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import certifi
import trio

__all__ = ["NetworkStream", "TcpStream", "TrioStream", "client_context", "is_cut", "peer_of", "start_tls"]

READ_BYTES = 65_536
"""The largest piece that is read at once."""

RELUCTANCE = 4
"""Reads that wait at once after one that gave way in vain."""


class NetworkStream(Protocol):
    """An open connection, used by one task at a time. Its methods raise ``OSError`` when it breaks."""

    peer: str | None
    """The address at the other end, if there is one."""

    is_cut: bool
    """It has ended without the goodbye of the peer's TLS."""

    def send_nowait(self, data: bytes) -> int:
        """Send as much of ``data`` as the system takes at once. Returns the number of bytes sent."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Not always a checkpoint. After a cancellation the stream can only be closed."""
        ...

    async def receive_soon(self) -> bytes | None:
        """Give way once and return what has come; empty at the end; None: nothing has come, or giving way was skipped.

        A checkpoint unless it returns None.
        """
        ...

    async def receive(self) -> bytes:
        """Return what has come, or wait for it; empty at the end. Always a checkpoint; cancelling loses nothing."""
        ...

    def is_quiet(self) -> bool:
        """Return True if the connection is open and no bytes have come unasked."""
        ...

    def session(self) -> ssl.SSLSession | None:
        """Return the TLS session, for another connection to resume; None without TLS. Read something first."""
        ...

    def close(self, *, is_cut: bool = False) -> None:
        """Close the connection at once, without telling the peer's TLS. Safe to call twice.

        Args:
            is_cut: Whatever the system has not sent yet is never sent.
        """
        ...


class TcpStream:
    """A TCP connection.

    Attributes:
        peer: The address at the other end.
        is_cut: False: TCP alone has no goodbye.
    """

    __slots__ = ("_fd", "_is_readable", "_reluctance", "_socket", "is_cut", "peer")

    def __init__(self, connected: trio.SocketStream) -> None:
        """Take over the socket of ``connected``, which can't be used afterwards."""
        trio_socket = connected.socket
        self.is_cut: bool = False
        self.peer: str | None = peer_of(trio_socket)
        family, kind, proto = trio_socket.family, trio_socket.type, trio_socket.proto
        # Detached: of two objects that own one descriptor, the second would close another file.
        self._socket = socket.socket(family, kind, proto, trio_socket.detach())
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        self._is_readable = _readable(self._socket)
        self._reluctance = 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. A checkpoint only if the peer is slow to take it."""
        sent = self.send_nowait(data)
        if sent < len(data):
            with memoryview(data) as view:
                while sent < len(data):
                    await trio.lowlevel.wait_writable(self._fd)
                    sent += self.send_nowait(view[sent:])

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send as much of ``data`` as fits in the socket's buffer."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def receive_soon(self) -> bytes | None:
        """Give way and return what has come then; None if nothing has, or if that was in vain lately."""
        if self._reluctance:
            self._reluctance -= 1
            return None
        await trio.lowlevel.checkpoint()
        try:
            return self._socket.recv(READ_BYTES)
        except BlockingIOError:
            self._reluctance = RELUCTANCE
            return None

    async def receive(self) -> bytes:
        """Wait until something has come and return it; empty at the end. Always a checkpoint."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:  # woken for nothing: select(2), BUGS
                continue

    def is_quiet(self) -> bool:
        """Return True if the socket has neither bytes nor its end to read."""
        return self._fd >= 0 and not self._is_readable()

    def session(self) -> None:
        """Return None: a TCP connection has no TLS session."""

    def close(self, *, is_cut: bool = False) -> None:
        """Close the socket."""
        if self._fd >= 0:
            if is_cut:
                _discard_unsent(self._socket)
            # First: a task that waits for the number would wait for whatever file gets it next.
            trio.lowlevel.notify_closing(self._fd)
            self._fd = -1
            self._socket.close()


class TrioStream:
    """One of Trio's streams: TLS, or in memory.

    Attributes:
        peer: The address at the other end, if there is one.
        is_cut: It has ended without the goodbye of the peer's TLS.
    """

    __slots__ = ("_close", "_is_quiet", "is_cut", "peer", "stream")

    def __init__(
        self, stream: trio.abc.Stream, *, close: Callable[[bool], None], is_quiet: Callable[[], bool], peer: str | None
    ) -> None:
        """Use ``stream``; ``close`` closes what is under it at once, told if it is cut; ``is_quiet`` looks at it."""
        self.stream: trio.abc.Stream = stream
        self.peer: str | None = peer
        self.is_cut: bool = False
        self._close = close
        self._is_quiet = is_quiet

    def send_nowait(self, data: bytes) -> int:
        """Send nothing and return 0: a stream can't send without waiting."""
        return 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Always a checkpoint."""
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _system_error(error) from error

    async def receive_soon(self) -> None:
        """Return None: a stream can't receive without waiting."""

    async def receive(self) -> bytes:
        """Wait for the next bytes; empty at the end. Always a checkpoint."""
        try:
            return bytes(await self.stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if is_cut(error):
                self.is_cut = True
                return b""
            raise _system_error(error) from error

    def is_quiet(self) -> bool:
        """Return the result of the ``is_quiet`` that the stream was made with."""
        return self._is_quiet()

    def session(self) -> ssl.SSLSession | None:
        """Return the TLS session, if the stream has one."""
        return self.stream.session if isinstance(self.stream, trio.SSLStream) else None

    def close(self, *, is_cut: bool = False) -> None:
        """Close the socket under the stream."""
        self._close(is_cut)


def is_cut(error: BaseException) -> bool:
    """Return True if a stream of TLS broke because the peer closed it without ``close_notify``."""
    return isinstance(error.__cause__, ssl.SSLEOFError)


def _discard_unsent(sock: socket.socket | trio.socket.SocketType) -> None:
    """Have the system forget, when a socket is closed, what it has not sent or what was not acknowledged.

    Else it goes on trying for minutes, and a request may come to its server long after it was cancelled.
    """
    with suppress(OSError):  # broken, or a Unix socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _readable(sock: socket.socket) -> Callable[[], object]:
    """Return a function that tells if a socket has bytes, or its end, to read; poll(2) costs a third of a peek."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return partial(poll.poll, 0)
    return lambda: select.select([sock], [], [], 0)[0]


def peer_of(connected: trio.socket.SocketType) -> str | None:
    """Return the address at the other end; None for a Unix socket."""
    peer = connected.getpeername()
    return str(peer[0]) if isinstance(peer, tuple) else None


def _system_error(error: BaseException) -> OSError:
    """Return the system's error behind Trio's."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__
    return found or ConnectionResetError(str(error) or "the connection is closed")


def client_context(*, verifies: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts what certifi trusts, or ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` if one is set.

    Args:
        verifies: Check certificates.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def start_tls(
    plain: trio.SocketStream, host: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> TrioStream:
    """Do the TLS handshake over ``plain`` and return the stream over TLS. A failure or cancelling closes ``plain``.

    Args:
        plain: A fresh connection.
        host: The name that the certificate must be for.
        context: Decides what is trusted.
        session: An earlier session with this server, of the same context, to resume (RFC 8446, 2.2); None: no session.

    Raises:
        ssl.SSLError: The handshake failed or the certificate was refused.
        OSError: The connection broke.
    """
    peer = peer_of(plain.socket)
    secure = trio.SSLStream(plain, context, server_hostname=host.rstrip("."))
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

    def close(is_cut: bool) -> None:
        if is_cut and plain.socket.fileno() >= 0:
            _discard_unsent(plain.socket)
        plain.socket.close()

    return TrioStream(secure, close=close, is_quiet=is_quiet, peer=peer)
