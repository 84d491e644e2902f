"""The fast transport: trawl's requests and responses over HTTP/1.1, directly on httptools.

A connection is either in the pool or held by one request, which returns it in a clean state or closes it. One
``except`` handles all errors and cancellations that end a request early, so the pool is consistent at every await.
"""

from __future__ import annotations

import logging
import ssl

import trio

from trawl.address_guard import AddressGuard
from trawl.errors import DownloadError, ResponseBroken
from trawl.http import SAFE_METHODS, Headers, Outcome, Request, Response
from trawl.transport.base import ROOM_PAUSE, OnSent, Room, needs_new_connection, tell_written, wait_to_send, words_of
from trawl.transport.body import ResponseLimits
from trawl.transport.connect import ConnectOptions
from trawl.transport.content_encoding import accept_encoding
from trawl.transport.http11.connection import Connect, Connection, RequestDeadline, read_response
from trawl.transport.http11.message import Message, message_of
from trawl.transport.http11.parser import ConnectionClosedError
from trawl.transport.http11.pool import ConnectionFactory, FileLimitError, Origin, Pool, room_for_idle
from trawl.transport.resolver import Resolve
from trawl.transport.settings import BindAddress, TransportSettings

__all__ = ["Connect", "Http11Transport"]

logger: logging.Logger = logging.getLogger("trawl.transport")


class Http11Transport:
    """Sends requests over HTTP/1.1, with TLS verified, within the limits of ``settings``.

    Args:
        settings: Timeouts and limits.
        resolve: Looks up names; None for the system's lookup in threads.
        ssl_context: Decides which servers are trusted; None for the certificates of certifi or ``SSL_CERT_FILE``.
        connect: Opens connections; None for TCP and TLS.
        max_idle: Maximum number of idle connections; None to compute it from the limit of open files.
        guard: Decides to which addresses the crawl may connect; None for all.
        room: Closes an idle connection of another transport. Called if this transport has no idle connection. None if
            there is no other transport.
        keeps_received: Whether outcomes have the received bytes (:attr:`trawl.http.Outcome.received`), for an archive.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        connect: Connect | None = None,
        max_idle: int | None = None,
        guard: AddressGuard | None = None,
        room: Room | None = None,
        keeps_received: bool = False,
    ) -> None:
        self._settings = settings
        self._keeps_received = keeps_received
        self._room = room
        self._limits = ResponseLimits.of(settings)
        self._connect: Connect = connect or ConnectionFactory(
            resolve,
            ssl_context,
            verifies=settings.download_verify_certificates,
            guard=guard,
            options=ConnectOptions(settings.bind_address),
        )
        keepalive = settings.download_keepalive_timeout
        self._pool = Pool(keepalive=keepalive, max_idle=room_for_idle() if max_idle is None else max_idle)
        codings = accept_encoding() if settings.compression_enabled else ""
        self._defaults = Headers({"Accept-Encoding": codings}) if codings else None

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once and read the whole response. A failure is the outcome's error.

        If the server closed a kept connection instead of responding (RFC 9112, 9.3.1), a request with a safe method is
        sent again on a new connection, provided that ``on_sent`` allows it. Cancelling drops the connection. Always a
        checkpoint.
        """
        now = trio.current_time()
        outcome = Outcome(request, started_at=now)
        limit = float(request.meta_get("download_timeout") or self._settings.download_timeout)
        deadline = RequestDeadline(now, limit, self._settings)
        failure: DownloadError | None = None
        with deadline:
            try:
                outcome.response = await self._exchange(request, outcome, on_sent, deadline)
            except DownloadError as error:
                failure = error
            except OSError as error:
                failure = ResponseBroken(f"the connection broke: {words_of(error)}")
                failure.__cause__ = error
        if deadline.has_passed:
            failure = deadline.error()
        if failure is not None:
            failure.url, failure.method = request.url, request.method
            outcome.error = failure
        if outcome.response is None:
            outcome.ended_at = trio.current_time()
        return outcome

    async def aclose(self) -> None:
        """Close idle connections now, and all others when their requests end. Safe to call twice. A checkpoint."""
        self._pool.close()
        await trio.lowlevel.checkpoint()

    async def _exchange(  # noqa: PLR0912 - further functions would cost time in each request
        self, request: Request, outcome: Outcome, on_sent: OnSent, deadline: RequestDeadline
    ) -> Response | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        url = request.url
        end = url.find("/", 8)  # skip "https://"
        try:
            origin = self._pool.origin(url[:end] if end > 0 else url, "", BindAddress.for_request(request))
        except DownloadError:
            await trio.lowlevel.checkpoint()  # noqa: ASYNC120 - always a checkpoint
            raise
        message = message_of(request, origin, self._defaults)
        connection, may_be_dead = self._kept(origin, on_sent, outcome.started_at)
        while True:
            if connection is None:
                connection = await self._open(origin, outcome, deadline)
                if connection is None:
                    return None
            try:
                if outcome.sent_at is None:
                    # With a kept connection, sending started without delay. A new connection took time to open.
                    outcome.sent_at = outcome.started_at if connection.requests else trio.current_time()
                    if (answer := on_sent()) and await self._waits(on_sent, answer, outcome, deadline, connection):
                        await self._unsent(origin, connection, outcome)
                        return None
                    # If the request waited here, the connection was idle during the wait and may be dead.
                    may_be_dead = not needs_new_connection(on_sent) if answer else may_be_dead
                body = request.body
                data = message.head + body if body and not message.expects else message.head
                sent = connection.ask_nowait(data, is_head=request.method == "HEAD")
                try:
                    if sent < len(data) or (message.expects and body):
                        deadline.start()
                        await self._send_rest(connection, data[sent:], message, body, deadline)
                finally:
                    tell_written(on_sent)
                if body:
                    deadline.reading(trio.current_time())
                else:
                    deadline.still_reading()
                response = await read_response(connection, outcome, self._limits.for_request(request), deadline)
            except ConnectionClosedError as error:
                connection.close()
                if not may_be_dead or request.method not in SAFE_METHODS:
                    raise ResponseBroken(str(error)) from error
                connection, may_be_dead = None, False
                outcome.sent_at = None  # the next attempt counts as another send
            except BaseException:
                connection.cut(outcome)  # drop unsent bytes too, because another process may own the host now
                raise
            else:
                self._put_back(origin, connection, message, outcome.ended_at)
                return response

    def _kept(self, origin: Origin, on_sent: OnSent, now: float) -> tuple[Connection | None, bool]:
        """Take a kept connection out of the pool. Also returns whether it may turn out to be dead."""
        connection = self._pool.take(origin, now)
        if connection is None or not needs_new_connection(on_sent):
            return connection, connection is not None
        if connection.requests:
            connection.close()
            return None, False
        return connection, False  # the request that opened it had to wait and did not use it

    async def _open(self, origin: Origin, outcome: Outcome, deadline: RequestDeadline) -> Connection | None:
        """Open a connection, or return None if too many files are open."""
        deadline.start()
        while True:
            now = trio.current_time()
            deadline.connecting(now)
            # Start again in each round, because waiting for another connection to close is not the server's latency.
            if outcome.sent_at is None:
                outcome.started_at = now
            try:
                connection = Connection(await self._connect(origin))
            except FileLimitError:
                if self._pool.make_room() or (self._room is not None and await self._room()):
                    continue
                logger.debug("%r waits: too many files are open (ulimit -n)", outcome.request)
                await trio.sleep(ROOM_PAUSE)  # no event reports that a file was closed
                return None
            if self._keeps_received:
                connection.received = bytearray()
            deadline.sending(trio.current_time())
            return connection

    async def make_room(self) -> bool:
        """Close the connection that has been idle longest and return True, or return False if there is none."""
        return self._pool.make_room()

    async def _send_rest(
        self, connection: Connection, rest: bytes, message: Message, body: bytes, deadline: RequestDeadline
    ) -> None:
        """Send the rest. After ``Expect: 100-continue``, only if the server agrees or does not respond in time."""
        if rest:
            await connection.send(rest)
        if message.expects and body:
            await connection.receive_word()
            if connection.parser.has_head:
                # Close the connection after the response, because the server still expects the body (RFC 9110, 10.1.1).
                message.is_last = True
            else:
                deadline.sending(trio.current_time())
                await connection.send(body)

    async def _waits(
        self, on_sent: OnSent, answer: bool | float, outcome: Outcome, deadline: RequestDeadline, connection: Connection
    ) -> bool:
        """Wait with an open connection, not counted as latency, and return whether the request must not be sent."""
        began_at = trio.current_time()
        # On a new TLS connection, unexpected data may be session tickets (RFC 8446, 4.6.1), so don't treat it as a
        # closed connection.
        is_telling = connection.requests or not outcome.request.url.startswith("https:")
        is_open = connection.wire.is_quiet if is_telling else None
        if await wait_to_send(on_sent, answer, deadline.put_off, is_open):
            return True
        now = trio.current_time()
        outcome.started_at += now - began_at
        outcome.sent_at = now
        return False

    async def _unsent(self, origin: Origin, connection: Connection, outcome: Outcome) -> None:
        """Return the unused connection to the pool. A checkpoint."""
        outcome.sent_at = None
        self._pool.give(origin, connection, trio.current_time())
        # Shield the checkpoint, because a cancellation would close a connection that is already in the pool.
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _put_back(self, origin: Origin, connection: Connection, message: Message, now: float) -> None:
        if message.is_last or not connection.is_reusable:
            connection.close()
            return
        if connection.requests == 1:  # only once, because Python takes 100 us to copy a session
            origin.session = connection.wire.session()
        self._pool.give(origin, connection, now)
