"""The simulated transport. A web describes its servers, and the run clock provides its times.

Theory of operation. An exchange has the following steps, and each step takes time::

    connect (new connection only) ──► send: on_sent, limits, handler ──► headers ──► last byte
       or a connection error             or refused                       or an error instead

At the send, the transport computes the duration of the exchange and whether a timeout ends it. One sleep covers the
duration, so a request needs one timer and no task, unless its handler is async. After a complete response, the
connection becomes idle. It can be reused until its ``keep_alive`` ends. The connection that was used last is reused
first. The settings of the real transport provide the timeouts and the maximum size of bodies.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import attrs
import trio

from trawl.clock import WallClock
from trawl.errors import (
    BodyTooLarge,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    UnsupportedScheme,
)
from trawl.http import Outcome, Request, Response, host_scope, origin_of, without_fragment
from trawl.testing.clock import sleep_until
from trawl.testing.hosts import Failure, Host, Outage, SimulatedResponse, draw_seconds, make_failure
from trawl.testing.limits import TokenBucket
from trawl.testing.sends import SendLog, SendRecord, rounded
from trawl.tracebacks import contained
from trawl.transport.base import OnSent, wait_to_send
from trawl.transport.body import sink_for, write_to_sink
from trawl.transport.warc import response_head

if TYPE_CHECKING:
    from trawl.testing.web import SimulatedWeb
    from trawl.transport import TransportSettings

__all__ = ["WALL_START_UTC", "SimulatedTransport", "Timeouts"]


@attrs.frozen(kw_only=True)
class Timeouts:
    """The client's limits."""

    connect: float = math.inf  # seconds for a new connection
    read: float = math.inf  # seconds until the next bytes
    whole: float = 180.0  # seconds for the whole exchange
    keep_alive: float = math.inf  # seconds that an idle connection is kept
    max_bytes: float = math.inf  # the maximum size of a body
    truncates: bool = False  # whether to cut off a larger body instead of failing

    @classmethod
    def from_settings(cls, settings: TransportSettings | None) -> Timeouts:
        """Return the limits in the settings, or the defaults if ``settings`` is None."""
        if settings is None:
            return cls()
        return cls(
            connect=settings.download_connect_timeout,
            read=settings.download_read_timeout,
            whole=settings.download_timeout,
            keep_alive=settings.download_keepalive_timeout,
            max_bytes=settings.download_maxsize or math.inf,
        )

    def for_request(self, request: Request) -> Timeouts:
        """Return the limits for a request with its meta keys ``download_timeout`` and ``download_maxsize``."""
        timeout = request.meta_get("download_timeout")
        max_bytes = request.meta_get("download_maxsize")
        if timeout is None and max_bytes is None:
            return self
        return attrs.evolve(
            self,
            whole=self.whole if timeout is None else float(timeout) or math.inf,
            max_bytes=self.max_bytes if max_bytes is None else float(max_bytes) or math.inf,
            truncates=bool(request.meta_get("download_truncate")),
        )

    def cut(self, started_at: float, now: float) -> tuple[type[DownloadError], str, float]:
        """Return the error, its cause and its time for an exchange that times out at ``now``."""
        if now < started_at + self.whole:
            return ReadTimeout, f"nothing came for {self.read:g} s", now
        return DownloadTimeout, f"not done within {self.whole:g} s", now


WALL_START_UTC = datetime(2025, 1, 1, tzinfo=UTC)
"""The wall time at the start of every simulation."""


class _HostState:
    """One host in one run: its buckets, idle connections and random generator."""

    __slots__ = ("buckets", "host", "idle", "random")

    def __init__(self, host: Host, seed: int | str) -> None:
        self.host = host
        self.buckets = [TokenBucket(limit) for limit in host.limit]
        self.idle: dict[str, list[float]] = {}  # by origin: time of the last use of each idle connection
        self.random = random.Random(f"{seed}:{host.name}")

    def reuse(self, origin: str, now: float, longest: float) -> bool:
        """Take a connection to ``origin`` that was idle for at most ``longest`` seconds. Returns False without one."""
        idle = self.idle.get(origin)
        if not idle:
            return False
        if now - idle.pop() <= min(self.host.keep_alive, longest):
            return True
        idle.clear()  # the most recent connection has expired, so the other connections have expired too
        return False

    def keep(self, origin: str, now: float) -> None:
        """Make a connection idle."""
        if self.host.keep_alive > 0.0:
            self.idle.setdefault(origin, []).append(now)


class _RequestState:
    """One request in progress."""

    __slots__ = ("deadline", "origin", "request", "row", "sent_at", "site", "started_at", "timeouts")

    def __init__(self, request: Request, site: _HostState, timeouts: Timeouts, now: float) -> None:
        self.request = request
        self.site = site
        self.timeouts = timeouts
        self.origin = origin_of(request.url)
        self.started_at = now
        self.deadline = now + timeouts.whole
        self.sent_at: float | None = None
        self.row: SendRecord | None = None

    def put_off(self, seconds: float) -> None:
        """Extend the deadline by the seconds that the exchange waited before the send."""
        self.deadline += seconds

    def failed(self, failure: Failure, cause: str, now: float) -> Outcome:
        """Return the outcome of an exchange that ended at ``now`` without a response."""
        error = make_failure(failure, cause, self.request.url, self.request.method)
        if self.row is not None:
            self.row.ended_at = now
            self.row.error = type(error).__name__
        return Outcome(self.request, error=error, started_at=self.started_at, sent_at=self.sent_at, ended_at=now)


class SimulatedTransport:
    """Sends the requests of one run to a simulated web. Holds the run's buckets, connections and sends.

    Attributes:
        send_log: The sends.
        begun_at: The time of the start of the run, on the run clock; None before the first send.
        on_bug: Called with an error of a handler, to end the crawl, before the error is raised. Otherwise, only that
            request would fail.
    """

    def __init__(
        self,
        web: SimulatedWeb,
        settings: TransportSettings | None = None,
        *,
        seed: int | str = 0,
        begun_at: float | None = None,
    ) -> None:
        self.send_log: SendLog = SendLog()
        self.begun_at = begun_at
        self.unknown: dict[str, DownloadError] = {}
        self.on_bug: Callable[[Exception], None] | None = None
        self._web = web
        self._timeouts = Timeouts.from_settings(settings)
        self._seed = seed
        self._sites: dict[str, _HostState] = {}

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request``. Simulated errors of the server are in the outcome. A checkpoint.

        Raises:
            TypeError: If a handler does not return a ``SimulatedResponse``.
            Exception: If a handler or latency function raises an error other than a download error, which is a bug in
                the test.
        """
        try:
            with contained:
                return await self._sent(request, on_sent)
        except Exception as error:
            if self.on_bug is not None:
                self.on_bug(error)
            raise

    async def _sent(self, request: Request, on_sent: OnSent) -> Outcome:
        now = trio.current_time()
        if self.begun_at is None:
            self.begun_at = now
        site = self._site(request)
        if isinstance(site, DownloadError):
            await trio.lowlevel.checkpoint()
            return Outcome(request, error=site, started_at=now, ended_at=now)
        exchange = _RequestState(request, site, self._timeouts.for_request(request), now)
        if not site.reuse(exchange.origin, now, self._timeouts.keep_alive):
            failed = await self._connect(exchange)
            if failed is not None:
                return failed
        answer = self._report(exchange, on_sent)
        if answer:
            began_at = trio.current_time()
            if await wait_to_send(lambda: self._report(exchange, on_sent), answer, exchange.put_off):
                site.keep(exchange.origin, trio.current_time())
                await trio.lowlevel.checkpoint()
                return Outcome(request, started_at=now, ended_at=trio.current_time())
            exchange.started_at += trio.current_time() - began_at
        row = cast("SendRecord", exchange.row)
        try:
            return await self._answered(exchange)
        finally:
            if row.ended_at is None:  # the request was cancelled, or the handler raised an error
                row.ended_at = trio.current_time()

    async def aclose(self) -> None:
        """Close the idle connections. A checkpoint."""
        for site in self._sites.values():
            site.idle.clear()
        await trio.lowlevel.checkpoint()

    def _site(self, request: Request) -> _HostState | DownloadError:
        url = request.url
        if not url.startswith(("http://", "https://")):
            scheme = url.partition(":")[0]
            return UnsupportedScheme(f"the scheme {scheme!r} is not fetched", url=url, method=request.method)
        host = self._web.host_of(url)
        if host is None:
            unresolved = self._web.unresolved(request)
            self.unknown.setdefault(host_scope(url), unresolved)
            return unresolved
        site = self._sites.get(host.name)
        if site is None:
            site = self._sites[host.name] = _HostState(host, self._seed)
        return site

    def _since_begin(self, now: float) -> float:
        assert self.begun_at is not None
        return rounded(now - self.begun_at)

    async def _connect(self, exchange: _RequestState) -> Outcome | None:
        """Open a new connection. Returns the outcome if that fails. A checkpoint only if this takes time or fails."""
        host, request = exchange.site.host, exchange.request
        duration = draw_seconds(host.connect, request, exchange.site.random)
        failure = host.connect_error
        if failure is not None and not isinstance(failure, DownloadError | type):
            failure = failure(request)
        outage = host.outage(self._since_begin(exchange.started_at))
        if outage is not None and outage.is_connecting:
            failure = outage.error
            duration = duration if outage.latency is None else outage.latency
        cause = "the simulated host refuses connections"
        limit = min(exchange.timeouts.connect, exchange.timeouts.whole)
        if duration > limit:
            failure, cause, duration = ConnectTimeout, f"no connection within {limit:g} s", limit
        if duration > 0.0:
            await sleep_until(exchange.started_at + duration)
        elif failure is not None:
            await trio.lowlevel.checkpoint()
        return None if failure is None else exchange.failed(failure, cause, trio.current_time())

    def _report(self, exchange: _RequestState, on_sent: OnSent) -> bool | float | None:
        """Record the send and return the result of ``on_sent``. The send counts only if the result is falsy."""
        exchange.sent_at = now = trio.current_time()
        exchange.row = row = SendRecord(exchange.request.url, exchange.request.method, now)
        self.send_log.sending = row
        try:
            answer = on_sent()
        finally:
            self.send_log.sending = None
        if not answer:
            self.send_log.rows.append(row)
        return answer

    async def _answered(self, exchange: _RequestState) -> Outcome:
        assert exchange.sent_at is not None
        answer, latency, fields = self._refusal(exchange, exchange.sent_at)
        if answer is None:
            answer = await self._content(exchange)
            if answer is None:
                return exchange.failed(*exchange.timeouts.cut(exchange.started_at, trio.current_time()))
        now = trio.current_time()  # an async handler may have taken some time
        if latency is None:
            latency = answer.latency or draw_seconds(exchange.site.host.latency, exchange.request, exchange.site.random)
        first_byte = latency if answer.first_byte is None else min(answer.first_byte, latency)
        error, cause, until = self._fate(exchange, answer, now, first_byte, latency)
        await sleep_until(until)
        ended_at = trio.current_time()
        if error is not None:
            outcome = exchange.failed(error, cause, ended_at)
            if error is answer.error:  # keep the bytes before the error for an archive
                outcome.received = response_head(answer.protocol, answer.status, answer.headers), answer.body
            return outcome
        outcome = self._whole(exchange, answer, fields, now + first_byte, ended_at)
        sink = sink_for(exchange.request, answer.status)
        if sink is not None and outcome.response is not None:
            try:
                outcome.response = await write_to_sink(outcome.response, sink)
            except DownloadError as failure:
                return exchange.failed(failure, failure.cause, trio.current_time())
        return outcome

    def _refusal(
        self, exchange: _RequestState, sent_at: float
    ) -> tuple[SimulatedResponse | None, float | None, dict[str, str]]:
        """Return the response of an outage or limit, or None, with its latency and the headers of limits."""
        site = exchange.site
        if not site.buckets and not site.host.outages:
            return None, None, {}
        since_begin = self._since_begin(sent_at)
        outage = site.host.outage(since_begin)
        if outage is not None:
            return _down(outage), outage.latency, {}
        refusing = next((bucket for bucket in site.buckets if not bucket.has_one(since_begin)), None)
        if refusing is None:
            for bucket in site.buckets:
                bucket.take(since_begin)
        fields: dict[str, str] = {}
        now_utc = WallClock(WALL_START_UTC, self.begun_at or 0.0).to_utc(sent_at)
        for bucket in site.buckets:
            fields.update(bucket.fields(since_begin, now_utc, is_refusal=bucket is refusing))
        if refusing is None:
            return None, None, fields
        limit = refusing.limit
        return SimulatedResponse(limit.status, limit.body), limit.latency, fields

    async def _content(self, exchange: _RequestState) -> SimulatedResponse | None:
        """Return the host's response; None if its handler takes longer than the timeout."""
        web, host, request = self._web, exchange.site.host, exchange.request
        page = web.page_at(request.url)
        if page is not None:
            return page
        if request.url.endswith("/robots.txt") and request.url == f"{exchange.origin}/robots.txt":
            return host.robots
        if host.handler is None:
            return host.answer
        try:
            answer = host.handler(request)
            if inspect.isawaitable(answer):
                with trio.move_on_at(min(exchange.deadline, trio.current_time() + exchange.timeouts.read)):
                    return _checked(await answer, host)
                return None
        except DownloadError as error:
            return SimulatedResponse(error=error)
        return _checked(answer, host)

    def _fate(
        self, exchange: _RequestState, answer: SimulatedResponse, now: float, first_byte: float, latency: float
    ) -> tuple[Failure | None, str, float]:
        """Return the end of a response that starts at ``now``: an error or None, its cause, and the time."""
        timeouts = exchange.timeouts
        error, cause, until = answer.error, "the simulated server broke off", now + latency
        is_too_large = len(answer.body) > timeouts.max_bytes and not timeouts.truncates
        if answer.error is None and is_too_large and exchange.request.method != "HEAD":
            until = now + first_byte
            cause = f"the body of {len(answer.body)} bytes passes the limit of {timeouts.max_bytes}"
            error = BodyTooLarge
        if first_byte > timeouts.read and until > now + timeouts.read:
            error, cause, until = ReadTimeout, f"nothing came for {timeouts.read:g} s", now + timeouts.read
        if until > exchange.deadline:
            return timeouts.cut(exchange.started_at, exchange.deadline)
        return error, cause, until

    def _whole(
        self,
        exchange: _RequestState,
        answer: SimulatedResponse,
        fields: dict[str, str],
        first_byte_at: float,
        now: float,
    ) -> Outcome:
        request, row = exchange.request, cast("SendRecord", exchange.row)
        headers = answer.headers.copy()
        for name, value in fields.items():
            headers[name] = value
        row.ended_at = now
        row.status = answer.status
        latency = first_byte_at - exchange.started_at
        body = b"" if request.method == "HEAD" else answer.body
        flags = answer.flags
        if len(body) > exchange.timeouts.max_bytes:
            body, flags = body[: int(exchange.timeouts.max_bytes)], (*flags, "truncated")
        url = without_fragment(request.url)
        response = Response(url, answer.status, headers, body, request, flags, latency, protocol=answer.protocol)
        exchange.site.keep(exchange.origin, now)
        return Outcome(request, response, None, exchange.started_at, exchange.sent_at, first_byte_at, now)


def _down(outage: Outage) -> SimulatedResponse:
    headers = None if outage.retry_after is None else {"Retry-After": str(outage.retry_after)}
    error: Failure | None = outage.error
    if error is not None and outage.is_connecting:  # the request was sent on an open connection
        error = ResponseBroken("the simulated server closed the connection")
    return SimulatedResponse(outage.status, "", headers, error=error)


def _checked(answer: object, host: Host) -> SimulatedResponse:
    if isinstance(answer, SimulatedResponse):
        return answer
    name = getattr(host.handler, "__qualname__", repr(host.handler))
    raise TypeError(f"the handler {name} of {host.name} returned {answer!r}: it must return a SimulatedResponse")
