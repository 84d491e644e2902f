"""Bytes to and from a server.

Theory of operation: HTTP/1.1 is taken in turns, so a wire is never read and written at once, and what Trio's streams do
to guard against that (two conflict detectors, a checkpoint after each send) buys nothing here. :class:`TcpStream`
sends without giving way. Then everybody else has one turn, after which a busy program finds most answers there: waiting
for a socket costs three times as much as giving way, and needs a time limit besides. Where that fails, it is not tried
again for a while. Any other stream goes through :class:`TrioStream`.

The time limits of one exchange, kept by one cancel scope whose deadline moves.

Theory of operation: an exchange has one limit for the whole and one for each thing it waits for. A scope for each would
cost more than reading a small page; moving a deadline costs a third of a scope. So there is one scope, its deadline is
the earlier one of the two, and when it has passed the phase tells which limit it was. It is entered at the first wait:
an exchange whose answer is there without waiting needs no limit.

Scopes must be left in the reverse order in which they were entered, so :meth:`RequestDeadline.start` must not be called
inside a scope or nursery of the exchange's own.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from functools import partial
from math import inf
from types import TracebackType
from typing import Protocol, Self

import trio

from trawl.errors import ConnectTimeout, DownloadError, DownloadTimeout, ReadTimeout
from trawl.transport.settings import TransportSettings

__all__ = ["NetworkStream", "RequestDeadline", "TcpStream", "TrioStream", "peer_of"]

CONNECTING, SENDING, READING = range(3)


class RequestDeadline:
    """Limits an exchange; to be entered once, around the whole of it. Hot: mutable."""

    __slots__ = ("_connect", "_deadline", "_ends_at", "_limit", "_phase", "_read", "_scope")

    def __init__(self, now: float, limit: float, settings: TransportSettings) -> None:
        self._limit = limit
        self._connect = settings.download_connect_timeout
        self._read = settings.download_read_timeout
        self._ends_at = now + limit
        self._phase = SENDING
        self._deadline = now + self._read
        self._scope: trio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(kind, error, trace))

    def start(self) -> None:
        """Keep the limits from now on: something is about to be waited for."""
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=min(self._ends_at, self._deadline))
            self._scope.__enter__()

    @property
    def has_ended_it(self) -> bool:
        """Whether a limit has passed and cut the exchange off; :meth:`error` says which."""
        return self._scope is not None and self._scope.cancelled_caught

    def connecting(self, now: float) -> None:
        """From ``now`` on a connection is opened."""
        self._phase = CONNECTING
        self._move(now + self._connect)

    def sending(self, now: float) -> None:
        """From ``now`` on the server is to take something."""
        self._phase = SENDING
        self._move(now + self._read)

    def reading(self, now: float) -> None:
        """From ``now`` on the server is to send something."""
        self._phase = READING
        self._move(now + self._read)

    def writing(self) -> None:
        """What has come is written down: that is not the server's time, so only the limit for the whole holds."""
        self._move(inf)

    def still_reading(self) -> None:
        """Small things have just been sent: the deadline is right as it is, only the words are not."""
        self._phase = READING

    def _move(self, deadline: float) -> None:
        self._deadline = deadline
        if self._scope is not None:
            self._scope.deadline = min(self._ends_at, deadline)

    def error(self) -> DownloadError:
        """Which limit has passed."""
        if self._deadline >= self._ends_at:
            return DownloadTimeout(f"not done within {self._limit:g} s")
        if self._phase == CONNECTING:
            return ConnectTimeout(f"no connection within {self._connect:g} s")
        if self._phase == SENDING:
            return ReadTimeout(f"the server took nothing for {self._read:g} s")
        return ReadTimeout(f"nothing came for {self._read:g} s")


READ_BYTES = 65_536
"""The most that is read at once."""

RELUCTANCE = 4
"""Reads that wait at once, after one that gave way for nothing."""


class NetworkStream(Protocol):
    """An open connection. Its methods raise ``OSError`` when it breaks, and are used by one task at a time."""

    peer: str | None
    """The address at the other end, if there is one."""

    def send_nowait(self, data: bytes) -> int:
        """Send as much of ``data`` as is taken at once, and return how much that was."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Not always a checkpoint. When it is cancelled, the wire can only be closed."""
        ...

    async def receive_soon(self) -> bytes | None:
        """Return what has come when everybody else had a turn; empty at the end; None: it takes longer, or may.

        A checkpoint unless it returns None.
        """
        ...

    async def receive(self) -> bytes:
        """Return what has come, or wait for it; empty at the end. A checkpoint; cancelling loses nothing."""
        ...

    def is_quiet(self) -> bool:
        """Whether the wire is open and nothing has come that nobody asked for."""
        ...

    def session(self) -> ssl.SSLSession | None:
        """The TLS session, once something has been read, to go on with in another connection; None without TLS."""
        ...

    def close(self) -> None:
        """Close it at once, without a word to the peer. Safe to call twice."""
        ...


class TcpStream:
    """A TCP connection.

    Attributes:
        peer: The address at the other end.
    """

    __slots__ = ("_fd", "_is_readable", "_reluctance", "_socket", "peer")

    def __init__(self, connected: trio.SocketStream) -> None:
        """Take over the socket of ``connected``, which can't be used afterwards."""
        trio_socket = connected.socket
        self.peer: str | None = peer_of(trio_socket)
        family, kind, proto = trio_socket.family, trio_socket.type, trio_socket.proto
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
        """Give way and return what has come then, if anything has; None where that was of no use lately."""
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
        """Whether a look at the socket finds neither bytes nor its end."""
        return self._fd >= 0 and not self._is_readable()

    def session(self) -> None:
        """None: this is no TLS."""

    def close(self) -> None:
        """Close the socket."""
        if self._fd >= 0:
            trio.lowlevel.notify_closing(self._fd)
            self._fd = -1
            self._socket.close()


class TrioStream:
    """Any of Trio's streams: TLS, or in memory.

    Attributes:
        peer: The address at the other end, if there is one.
    """

    __slots__ = ("_close", "_is_quiet", "peer", "stream")

    def __init__(
        self, stream: trio.abc.Stream, *, close: Callable[[], None], is_quiet: Callable[[], bool], peer: str | None
    ) -> None:
        """Use ``stream``; ``close`` closes what is under it at once, ``is_quiet`` looks at it."""
        self.stream: trio.abc.Stream = stream
        self.peer: str | None = peer
        self._close = close
        self._is_quiet = is_quiet

    def send_nowait(self, data: bytes) -> int:
        """Nothing: a stream can't be asked without waiting."""
        return 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Always a checkpoint."""
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _system_error(error) from error

    async def receive_soon(self) -> None:
        """None: a stream can't be asked without waiting."""

    async def receive(self) -> bytes:
        """Return what comes next. Always a checkpoint."""
        try:
            return bytes(await self.stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise _system_error(error) from error

    def is_quiet(self) -> bool:
        """What the one who made the stream says."""
        return self._is_quiet()

    def session(self) -> ssl.SSLSession | None:
        """The TLS session, if the stream is one of TLS."""
        return self.stream.session if isinstance(self.stream, trio.SSLStream) else None

    def close(self) -> None:
        """Close what is under the stream."""
        self._close()


def _readable(sock: socket.socket) -> Callable[[], object]:
    """What says whether there are bytes, or the end, to be read from a socket; poll(2) costs a third of a peek."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return partial(poll.poll, 0)
    return lambda: select.select([sock], [], [], 0)[0]


def peer_of(connected: trio.socket.SocketType) -> str | None:
    """The address at the other end; None for a Unix socket."""
    peer = connected.getpeername()
    return str(peer[0]) if isinstance(peer, tuple) else None


def _system_error(error: BaseException) -> OSError:
    """What the system said behind Trio's error."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__
    return found or ConnectionResetError(str(error) or "the connection is closed")
