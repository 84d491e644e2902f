"""Metrics for Prometheus, from the status of running crawls, and spans for OpenTelemetry.

A scrape reads :meth:`trawl.engine.Crawl.status` and the statuses of the scopes, so metrics cost nothing between two
scrapes, except for the task that keeps the status up to date. A thread makes the page, from values that never change,
because the page of 100 scopes among 10,000 takes 5 ms. Names follow the conventions of Prometheus. The histogram of
latencies has the name of OpenTelemetry's semantic conventions for HTTP clients, ``http.client.request.duration``. It is
the sum over all methods and servers, because a histogram of each server would be two thirds of the page.

The server sends one response per connection, of a page that it made itself, so it needs no framework.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from ipaddress import ip_address
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import trio

from trawl.errors import UsageError
from trawl.events import Event, RequestFailed, ResponseParsed
from trawl.http import Times
from trawl.observe import CrawlStatus, ScopeStatus, without_passwords
from trawl.observe.status import LATENCY_BOUNDS
from trawl.transport.base import words_of

if TYPE_CHECKING:
    from trawl.engine import Crawl

__all__ = ["MAX_SCOPES", "MetricsCollector", "MetricsServer", "Snapshot", "metrics_page", "trace_requests"]

logger: logging.Logger = logging.getLogger("trawl.telemetry")

MAX_SCOPES = 100
"""Default maximum number of scopes in the metrics, the busiest first. The other scopes are summed up as ``other``."""

OTHER = "other"
"""The label of all scopes that are not among the busiest."""

MAX_HEAD = 8192
"""Maximum size of a scraper's request, in bytes."""

SCRAPE_SECONDS = 10.0
"""Seconds after which the connection of a slow scraper is closed."""

SPAN_PAUSE = 0.5
"""Seconds between two batches of spans."""

MAX_SPANS = 10_000
"""Maximum number of ended requests that wait for their span. The oldest requests are left out."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_FIGURES: Sequence[tuple[str, str, str, Callable[[CrawlStatus], float]]] = (
    ("counter", "trawl_pages", "Complete responses.", attrgetter("pages")),
    ("counter", "trawl_items", "Items that were scraped.", attrgetter("items")),
    ("counter", "trawl_errors", "Errors of user code, failed requests and lost items.", attrgetter("errors")),
    ("gauge", "trawl_queued_requests", "Pending requests.", attrgetter("queued")),
    ("gauge", "trawl_in_flight_requests", "Requests in flight.", attrgetter("in_flight")),
    ("gauge", "trawl_held_requests", "Requests that wait for more than a free slot.", attrgetter("held")),
    ("gauge", "trawl_start_time_seconds", "Start of the crawl, in seconds since the epoch.", attrgetter("since")),
    ("gauge", "trawl_loop_lateness_seconds", "Lateness of the event loop.", attrgetter("health.lateness")),
    ("gauge", "trawl_memory_bytes", "Memory of the process.", attrgetter("health.memory")),
    ("gauge", "trawl_unwritten_bytes", "Bytes of items that are not written yet.", attrgetter("health.backlog")),
    ("gauge", "trawl_running_callbacks", "Callbacks that are running.", attrgetter("health.callbacks")),
    ("gauge", "trawl_scopes", "Scopes in memory.", attrgetter("health.scopes")),
)
"""The metrics of a crawl: type, name, help text and value."""

_COUNTS: Sequence[tuple[str, str, str, str, Callable[[CrawlStatus], Mapping[str, int]]]] = (
    ("counter", "trawl_responses", "Responses by status code.", "status", attrgetter("statuses")),
    ("counter", "trawl_items_by_type", "Items by type.", "type", attrgetter("item_types")),
    ("gauge", "trawl_waiting_requests", "Requests that wait, by the limit.", "limit", attrgetter("limits")),
)
"""The metrics of a crawl with one more label: type, name, help text, label and values."""

_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "error")


Snapshot = Sequence[tuple[CrawlStatus, Mapping[str, ScopeStatus]]]
"""The status of each crawl, and the statuses of its scopes."""


class MetricsCollector:
    """The metrics of crawls at one point in time, for a registry of prometheus_client.

    Each crawl has at most ``max_scopes`` scopes, the busiest first. The others are summed up as ``other``. Raises
    UsageError without prometheus_client (extra ``metrics``).
    """

    def __init__(self, snapshot: Snapshot = (), max_scopes: int = MAX_SCOPES) -> None:
        try:
            import prometheus_client.core as core  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415, PLR0402
        except ImportError as error:
            raise UsageError("metrics need the extra metrics: pip install 'trawl-crawler[metrics]'") from error
        self._snapshot = snapshot
        self._max_scopes = max_scopes
        self._kinds: dict[str, Any] = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        self._histogram: Any = core.HistogramMetricFamily

    def collect(self) -> Iterator[Any]:
        """Yield the metric families. Called by the registry at each scrape."""
        statuses = [status for status, _ in self._snapshot]
        info = self._kinds["gauge"]("trawl_crawl_info", "The state of a crawl.", labels=["spider", "state"])
        for status in statuses:
            info.add_metric([status.spider, status.state], 1)
        yield info
        for kind, name, text, value in _FIGURES:
            family = self._kinds[kind](name, text, labels=["spider"])
            for status in statuses:
                family.add_metric([status.spider], value(status))
            yield family
        for kind, name, text, label, values in _COUNTS:
            family = self._kinds[kind](name, text, labels=["spider", label])
            for status in statuses:
                for key, count in values(status).items():
                    family.add_metric([status.spider, key], count)
            yield family
        end = self._kinds["gauge"]("trawl_estimated_end_seconds", "Until the last pending request.", labels=["spider"])
        last = self._kinds["gauge"](
            "trawl_scope_estimated_end_seconds", "The scopes that end last.", labels=["spider", "scope"]
        )
        latency = self._histogram(
            "http_client_request_duration_seconds", "Seconds from connecting to the headers.", labels=["spider"]
        )
        for status in statuses:
            end.add_metric([status.spider], 0.0 if status.estimate is None else status.estimate.seconds)
            for scope in () if status.estimate is None else status.estimate.scopes:
                last.add_metric([status.spider, scope.scope], scope.seconds)
            bounds = [*map(str, LATENCY_BOUNDS), "+Inf"]
            counts = accumulate(status.latency or [0] * len(bounds))
            latency.add_metric([status.spider], list(zip(bounds, counts, strict=True)), status.latency_seconds)
        yield from (end, last, latency)
        yield from self._scopes()

    def _scopes(self) -> Iterator[Any]:
        """Yield few families, because a Prometheus server stores each of them for each scope."""
        gauge, labels = self._kinds["gauge"], ["spider", "scope"]
        delay = gauge("trawl_scope_delay_seconds", "The effective delay.", labels=labels)
        queued = gauge("trawl_scope_queued_requests", "Pending requests.", labels=labels)
        words = "Responses by class of status code, and requests without a response as error."
        responses = self._kinds["counter"]("trawl_scope_responses", words, labels=[*labels, "status"])
        for crawl, by_scope in self._snapshot:
            busiest = nlargest(self._max_scopes, by_scope.values(), key=attrgetter("sends"))
            rows = [(scope.scope, scope.queued, scope.statuses) for scope in busiest]
            for scope in busiest:
                delay.add_metric([crawl.spider, scope.scope], scope.delay)
            if len(by_scope) > len(busiest):
                names = {scope.scope for scope in busiest}
                rest = [scope for scope in by_scope.values() if scope.scope not in names]
                counts = [*map(sum, zip(*[scope.statuses for scope in rest], strict=True))]
                rows.append((OTHER, sum([scope.queued for scope in rest]), counts))
            for name, pending, statuses in rows:
                queued.add_metric([crawl.spider, name], pending)
                for status, count in zip(_CLASSES, statuses, strict=False):
                    if count:
                        responses.add_metric([crawl.spider, name, status], count)
        yield from (delay, queued, responses)


async def metrics_page(crawls: Sequence[Crawl], accept: str = "", max_scopes: int = MAX_SCOPES) -> tuple[bytes, str]:
    """Return the metrics of running crawls, at least one, and their content type. A checkpoint.

    ``accept`` is the scraper's ``Accept`` header, which chooses the format. Otherwise like :class:`MetricsCollector`.
    """
    snapshot = [(crawl.status(), crawl.status_keeper.scopes) for crawl in crawls]
    return await crawls[0].blocking.run(_encoded, snapshot, max_scopes, accept)


def _encoded(snapshot: Snapshot, max_scopes: int, accept: str) -> tuple[bytes, str]:
    """Return a page of metrics and its content type. Called in a thread."""
    collector = MetricsCollector(snapshot, max_scopes)
    from prometheus_client import CollectorRegistry  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    from prometheus_client.exposition import choose_encoder  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(collector)
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class MetricsServer:
    """Serves ``/metrics`` of the crawls of this process.

    Args:
        address: ``PORT``, or ``HOST:PORT``. Without a host, only this machine can connect.
        max_scopes: Maximum number of scopes for each crawl.

    Raises:
        UsageError: If the address is malformed or in use, or prometheus_client is not installed.
    """

    def __init__(self, address: str, max_scopes: int = MAX_SCOPES) -> None:
        MetricsCollector()  # raises an error if prometheus_client is missing
        self._names = {*_LOOPBACK_NAMES, address.rpartition(":")[0].lower() or "localhost"}
        self._crawls: list[Crawl] = []
        self._max_scopes = max_scopes
        self._socket = _listening(address)
        self._lock = trio.Lock()

    @property
    def port(self) -> int:
        """The port."""
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Close the port."""
        self._socket.close()

    async def watch(self, crawl: Crawl) -> None:
        """Serve the metrics of a crawl until cancelled. This is a watcher.

        If there are several crawls, one watcher serves all metrics. When its crawl ends, another watcher continues.
        """
        self._crawls.append(crawl)
        crawl.status()  # starts reading the scopes before the first scrape
        try:
            async with self._lock:
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket.dup()))
                await trio.serve_listeners(self._respond, [listener])
        finally:
            self._crawls.remove(crawl)

    async def _respond(self, stream: trio.SocketStream) -> None:
        with trio.move_on_after(SCRAPE_SECONDS), suppress(trio.BrokenResourceError):
            async with stream:
                head = b""
                while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
                    received = await stream.receive_some(MAX_HEAD)
                    if not received:
                        return
                    head += received
                try:
                    response = await self._response(head)
                except Exception:
                    logger.exception("a request for metrics failed")
                    response = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                await stream.send_all(response)
                with suppress(trio.BrokenResourceError):
                    await stream.send_eof()

    async def _response(self, head: bytes) -> bytes:
        line, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        method, _, rest = line.partition(" ")
        status, body, kind = "200 OK", b"", "text/plain; charset=utf-8"
        if not self._is_ours(fields.get("host", "").lower()):
            status = "421 Misdirected Request"
        elif method not in ("GET", "HEAD"):
            status = "405 Method Not Allowed"
        elif rest.partition(" ")[0].partition("?")[0] != "/metrics":
            status = "404 Not Found"
        else:
            body, kind = await metrics_page(self._crawls, fields.get("accept", ""), self._max_scopes)
        headers = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\n"
        answer = f"HTTP/1.1 {status}\r\n{headers}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        return answer if method == "HEAD" else answer + body

    def _is_ours(self, host: str) -> bool:
        """Return whether a ``Host`` header names this machine, so that no page in a browser can read the metrics."""
        own: str = self._socket.getsockname()[0]
        return not ip_address(own).is_loopback or not self._names.isdisjoint((host, host.rpartition(":")[0]))


def _listening(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--metrics takes PORT or HOST:PORT, not {address!r}")
    try:
        return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(f"--metrics {address}: {words_of(error)}") from error


async def trace_requests(crawl: Crawl) -> None:
    """Make a span for each request when it ends. This is a watcher, for the setting ``WATCHERS``.

    The span lasts from the start of connecting to the last byte of the body. Attributes contain the seconds of the
    waits before the span and of the callback after it. The sampler of the program's OpenTelemetry SDK decides which
    spans are kept.

    Raises:
        UsageError: If opentelemetry-api is not installed (extra ``otel``).
    """
    try:
        from opentelemetry import trace  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("spans need the extra otel: pip install 'trawl-crawler[otel]'") from error
    tracer, kind = trace.get_tracer("trawl"), trace.SpanKind.CLIENT
    offset = time.time() - trio.current_time()
    with crawl.events(ResponseParsed, RequestFailed, most=MAX_SPANS) as events:
        try:
            while True:
                await trio.sleep(SPAN_PAUSE)
                for event in events.unread():
                    _make_span(tracer, kind, event, offset)
        finally:
            for event in events.unread():
                _make_span(tracer, kind, event, offset)


def _make_span(tracer: Any, kind: Any, event: Event, offset: float) -> None:
    response = event.response if isinstance(event, ResponseParsed) else None
    request = event.request if isinstance(event, RequestFailed) else None if response is None else response.request
    if request is None:
        return
    times = Times() if response is None or response.times is None else response.times
    url = without_passwords(request.url)
    parts = urlsplit(url)
    attributes = {"http.request.method": request.method, "url.full": url, "server.address": parts.hostname or ""}
    ended = event.at + offset - times.parsing
    started = ended - times.fetching - times.connecting
    span = tracer.start_span(request.method, kind=kind, attributes=attributes, start_time=_nanoseconds(started))
    if span.is_recording():
        for name in ("queued", "throttled", "connecting", "parsing"):
            span.set_attribute(f"trawl.{name}", getattr(times, name))
        if isinstance(event, ResponseParsed) and event.limit and times.throttled > 0.0:
            span.set_attributes({"trawl.scope": event.scope, "trawl.limit": event.limit})
        if parts.port is not None:
            span.set_attribute("server.port", parts.port)
        if response is not None:
            span.set_attribute("http.response.status_code", response.status)
        elif isinstance(event, RequestFailed):
            span.set_attribute("error.type", type(event.error).__name__)
    span.end(_nanoseconds(ended))


def _nanoseconds(seconds: float) -> int:
    return math.floor(seconds * 1e9)
