"""Byte streams to and from a server: over TCP, over TLS, or over any Trio stream.

HTTP/1.1 is half-duplex, so the conflict detectors and the checkpoint of each send in Trio's streams are not needed.
:class:`TcpStream` executes one checkpoint before it reads. In a busy program, most responses have arrived after it,
and waiting for a socket would take three times as long and need a timeout. If no bytes have arrived, the next few reads
skip the checkpoint. All other streams use :class:`TrioStream`.

TLS is Trio's ``SSLStream`` (RFC 8446). As in browsers, it does not wait for the peer's ``close_notify``, and treats a
connection that is closed without it as the end of the stream. If a body ends with the connection, an attacker may have
truncated it (RFC 9112, 9.8), so the missing ``close_notify`` is recorded.
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

from trawl.transport.base import system_error

__all__ = ["NetworkStream", "TcpStream", "TrioStream", "client_context", "is_cut", "peer_of", "start_tls"]

READ_BYTES = 65_536
"""Maximum number of bytes of one read."""

RELUCTANCE = 4
"""Number of reads that skip the checkpoint after a read that found no bytes."""


class NetworkStream(Protocol):
    """An open connection, used by one task at a time. The methods raise ``OSError`` if the connection fails."""

    peer: str | None
    """The address of the peer; None if it has none."""

    is_cut: bool
    """Whether the connection ended without the peer's TLS ``close_notify``."""

    def send_nowait(self, data: bytes) -> int:
        """Send as much of ``data`` as the system accepts without waiting, and return the number of bytes sent."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Not always a checkpoint. After a cancellation, ``close`` is the only valid call."""

    async def receive_soon(self) -> bytes | None:
        """Let other tasks run, then return the received bytes: empty at the end, None if no bytes have arrived.

        This is a checkpoint if it returns bytes. After a call that found none, the next calls may return None at once.
        """

    async def receive(self) -> bytes:
        """Wait for bytes and return them; empty at the end. Always a checkpoint. Cancelling loses no bytes."""

    def is_quiet(self) -> bool:
        """Return whether the connection is open and has no unexpected bytes."""

    def session(self) -> ssl.SSLSession | None:
        """Return the TLS session, so that another connection can resume it; None without TLS. Call it after a read."""

    def close(self, *, is_cut: bool = False) -> None:
        """Close the connection without waiting, and without a TLS ``close_notify``. Safe to call twice.

        With ``is_cut``, bytes that the system has not sent yet are discarded.
        """


class TcpStream:
    """A TCP connection. ``is_cut`` is always false, because TCP alone has no ``close_notify``."""

    __slots__ = ("_fd", "_is_readable", "_reluctance", "_socket", "is_cut", "peer")

    def __init__(self, connected: trio.SocketStream) -> None:
        """Take over the socket of ``connected``, which can't be used afterwards."""
        trio_socket = connected.socket
        self.is_cut: bool = False
        self.peer: str | None = peer_of(trio_socket)
        family, kind, proto = trio_socket.family, trio_socket.type, trio_socket.proto
        # Detach the descriptor from Trio's socket. If two objects owned it, the second close might close another file
        # that has received the same number.
        self._socket = socket.socket(family, kind, proto, trio_socket.detach())
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        self._is_readable = _readable(self._socket)
        self._reluctance = 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. A checkpoint only if the peer is slow to accept it."""
        sent = self.send_nowait(data)
        if sent < len(data):
            with memoryview(data) as view:
                while sent < len(data):
                    await trio.lowlevel.wait_writable(self._fd)
                    sent += self.send_nowait(view[sent:])

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send as much of ``data`` as fits into the socket's buffer."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def receive_soon(self) -> bytes | None:
        """Let other tasks run, then return the received bytes; None if this or a recent call found no bytes."""
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
        """Wait for bytes and return them; empty at the end. Always a checkpoint."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:  # a spurious wakeup: select(2), BUGS
                continue

    def is_quiet(self) -> bool:
        """Return whether the socket is open, has no bytes to read, and was not closed by the peer."""
        return self._fd >= 0 and not self._is_readable()

    def session(self) -> None:
        """Return None, because a TCP connection has no TLS session."""

    def close(self, *, is_cut: bool = False) -> None:
        """Close the socket."""
        if self._fd >= 0:
            if is_cut:
                _discard_unsent(self._socket)
            # Notify waiting tasks before closing, or they would wait for the next file with this descriptor.
            trio.lowlevel.notify_closing(self._fd)
            self._fd = -1
            self._socket.close()


class TrioStream:
    """A Trio stream: TLS, or in memory."""

    __slots__ = ("_close", "_is_quiet", "is_cut", "peer", "stream")

    def __init__(
        self, stream: trio.abc.Stream, *, close: Callable[[bool], None], is_quiet: Callable[[], bool], peer: str | None
    ) -> None:
        """Use ``stream``. ``close(is_cut)`` closes the socket below it, and ``is_quiet`` checks the socket."""
        self.stream: trio.abc.Stream = stream
        self.peer: str | None = peer
        self.is_cut: bool = False
        self._close = close
        self._is_quiet = is_quiet

    def send_nowait(self, data: bytes) -> int:
        """Send nothing and return 0, because a Trio stream can't send without waiting."""
        return 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Always a checkpoint."""
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _system_error(error) from error

    async def receive_soon(self) -> None:
        """Return None, because a Trio stream can't receive without waiting."""

    async def receive(self) -> bytes:
        """Wait for bytes and return them; empty at the end. Always a checkpoint."""
        try:
            return bytes(await self.stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if is_cut(error):
                self.is_cut = True
                return b""
            raise _system_error(error) from error

    def is_quiet(self) -> bool:
        """Return the result of the function ``is_quiet`` that was passed to the constructor."""
        return self._is_quiet()

    def session(self) -> ssl.SSLSession | None:
        """Return the TLS session; None if the stream has none."""
        return self.stream.session if isinstance(self.stream, trio.SSLStream) else None

    def close(self, *, is_cut: bool = False) -> None:
        """Close the socket below the stream."""
        self._close(is_cut)


def is_cut(error: BaseException) -> bool:
    """Return whether a TLS stream broke because the peer closed it without ``close_notify``."""
    return isinstance(error.__cause__, ssl.SSLEOFError)


def _discard_unsent(sock: socket.socket | trio.socket.SocketType) -> None:
    """Make the system discard unsent and unacknowledged bytes when a socket is closed.

    Otherwise, a request may reach its server minutes after it was cancelled.
    """
    with suppress(OSError):  # fails if the socket is broken or is a Unix socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _readable(sock: socket.socket) -> Callable[[], object]:
    """Return a function that checks if a socket is readable. poll(2) takes a third of the time of a peek."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return partial(poll.poll, 0)
    return lambda: select.select([sock], [], [], 0)[0]


def peer_of(connected: trio.socket.SocketType) -> str | None:
    """Return the address of the peer; None for a Unix socket."""
    peer = connected.getpeername()
    return str(peer[0]) if isinstance(peer, tuple) else None


def _system_error(error: BaseException) -> OSError:
    """Return the system error that caused a Trio error."""
    return system_error(error) or ConnectionResetError(str(error) or "the connection is closed")


def client_context(*, verifies: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts certifi's certificates, or those of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def start_tls(
    plain: trio.SocketStream, host: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> TrioStream:
    """Do the TLS handshake over ``plain`` and return the TLS stream. A failure or a cancellation closes ``plain``.

    ``session`` is an earlier session with this server and this context, which the handshake resumes (RFC 8446, 2.2).

    Raises:
        ssl.SSLError: If the handshake fails or the certificate is refused.
        OSError: If the connection broke.
    """
    peer = peer_of(plain.socket)
    secure = trio.SSLStream(plain, context, server_hostname=host.rstrip("."))
    try:
        if session is not None:
            secure.session = session
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        plain.socket.close()
        raise _system_error(error) from error
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
