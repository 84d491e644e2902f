"""The crawl in the form that Scrapy's spiders expect: ``self.crawler``, the argument of ``from_crawler``, and signals.

The crawler exists before the crawl runs. While the crawl runs, the crawler forwards calls to the :class:`~trawl.Crawl`.

Code written for Scrapy connects its receivers to :class:`CrawlerSignals`, ``crawler.signals``. Receivers of
``engine_started``, ``spider_opened``, ``spider_idle``, ``spider_closed`` and ``engine_stopped`` may be ``async`` and
are awaited. As in Scrapy, all other receivers are called immediately when their event happens, so they can't await. Use
a watcher that reads the events if you need to await. Events without a receiver are not created.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import trio
from w3lib.url import canonicalize_url

from trawl.errors import CloseSpider, DontCloseSpider, DropItem, TrawlError, UsageError
from trawl.events import (
    Event,
    Events,
    ItemDropped,
    ItemFailed,
    ItemScraped,
    RequestDropped,
    RequestScheduled,
    RequestSent,
    ResponseAccepted,
    ResponseReceived,
    SpiderError,
)
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.scrapy_names import Unsupported
from trawl.spiders.running_crawl import RunningCrawl
from trawl.tracebacks import contained

__all__ = [
    "BEGIN_AND_END",
    "EVENT_SIGNALS",
    "IDLE",
    "SCRAPYS",
    "Crawler",
    "CrawlerEngine",
    "CrawlerSignals",
    "Failure",
    "RequestFingerprinter",
    "accepted",
    "fingerprint",
    "status_words",
]

_GIVE = "yield the request from a callback, or from start(), which may wait for work"
_PAUSE = "`spider.crawl.throttling.set(scope, delay=...)` slows a site down, and the throttle backs off automatically"
_PARTS = "it has no counterpart: `spider.crawl` shows what the crawl does"
_MADE = "keep a reference to your own object, and pass it to the code that needs it"

BEGIN_AND_END: frozenset[str] = frozenset({"engine_started", "engine_stopped", "spider_closed", "spider_opened"})
"""The signals that are sent when the crawl starts and when it ends."""

IDLE = "spider_idle"
"""The signal that is sent when nothing is pending. A receiver may add requests, or keep the crawl from ending."""

logger: logging.Logger = logging.getLogger("trawl.spiders")

_FAILED = "a receiver of %s failed: %r"


class Failure(TrawlError):
    """An error with the interface of Twisted's Failure, for errbacks, ``spider_error`` and ``item_error``.

    If ``process_spider_input`` raised the error, ``response`` is the response for which it did; otherwise it is None.
    """

    def __init__(self, value: BaseException, response: Response | None = None) -> None:
        super().__init__(str(value))
        self._value = value
        self.response: Response | None = response

    @property
    def value(self) -> BaseException:
        """The error."""
        return self._value


EVENT_SIGNALS: Mapping[str, tuple[type[Event], Callable[[Any], Mapping[str, object]]]] = {
    "item_dropped": (
        ItemDropped,
        lambda event: {"item": event.item, "exception": DropItem(event.reason), "response": None},
    ),
    "item_error": (ItemFailed, lambda event: {"item": event.item, "failure": Failure(event.error), "response": None}),
    "item_scraped": (ItemScraped, lambda event: {"item": event.item, "response": event.response}),
    "request_dropped": (RequestDropped, lambda event: {"request": event.request}),
    "request_reached_downloader": (RequestSent, lambda event: {"request": event.request}),
    "request_scheduled": (RequestScheduled, lambda event: {"request": event.request}),
    **{
        signal: (event, lambda event: {"request": event.response.request, "response": event.response})
        for signal, event in (("response_downloaded", ResponseReceived), ("response_received", ResponseAccepted))
    },
    "spider_error": (SpiderError, lambda event: {"failure": Failure(event.error), "response": event.response}),
}
"""Signals that are sent for an event. The values are the event's class, and a function that returns the arguments of
receivers, except ``spider``.
"""

_CUT_OFF = "DOWNLOAD_MAXSIZE and meta `download_maxsize` end a download that is too large"
_WHOLE = "feeds are complete when trawl.run() returns"

NOT_SENT: Mapping[str, str] = {
    "bytes_received": _CUT_OFF,
    "feed_exporter_closed": _WHOLE,
    "feed_slot_closed": _WHOLE,
    "headers_received": _CUT_OFF,
    "memusage_warning_reached": "MEMUSAGE_WARNING_MB logs a warning",
    "request_left_downloader": "use response_received, or a watcher (WATCHERS) that reads"
    " crawl.events(ResponseReceived, RequestFailed)",
    "robots_parsed": "`await spider.fetch(...)` fetches robots.txt like any page",
    "scheduler_empty": "write an endless start(), which may wait for work",
}
"""Signals of Scrapy that trawl does not send, with their replacements."""

SCRAPYS: frozenset[str] = frozenset({*BEGIN_AND_END, IDLE, *EVENT_SIGNALS, *NOT_SENT})
"""The names of all Scrapy signals, including signals that trawl does not send. Each is in :mod:`trawl.signals`."""


class CrawlerSignals:
    """The signals of one crawl: :data:`BEGIN_AND_END`, :data:`EVENT_SIGNALS` and :data:`IDLE`.

    As in Scrapy, receivers that were connected with ``pydispatch.dispatcher`` are called too. Receivers get the
    crawler as ``sender``.
    """

    __slots__ = ("_events", "_receivers", "_sender", "_spider")
    if not TYPE_CHECKING:
        send_catch_log = Unsupported("your own signals are not sent: call the receivers yourself")
        send_catch_log_async = send_catch_log_deferred = send_catch_log

    def __init__(self, sender: object = None) -> None:
        self._sender = sender
        self._receivers: list[tuple[str, Callable[..., Any]]] = []
        self._events: Events | None = None
        self._spider: object = None

    def connect(self, receiver: Callable[..., Any], signal: object = None, **options: object) -> None:
        """Call ``receiver`` when a signal is sent, with the arguments of the signal that it accepts.

        Args:
            receiver: The function to call. Errors that it raises are logged. It may be ``async`` for the signals in
                :data:`IDLE` and :data:`BEGIN_AND_END`.
            signal: A name in ``trawl.signals``: ``signals.spider_opened``, ``signals.item_scraped``, ...
            options: Scrapy's other options, which are ignored.

        Raises:
            UsageError: If trawl does not send the signal, or the receiver is ``async`` for a signal whose receivers are
                not awaited. The message names the replacement.
        """
        _check_sent(signal)
        if not isinstance(signal, str) or signal not in SCRAPYS:
            known = ", ".join(sorted(SCRAPYS - NOT_SENT.keys()))
            raise UsageError(
                f"there is no signal {signal}: use one of {known}, or a watcher (WATCHERS) that reads"
                " crawl.events(ItemScraped, ...); see the guide 'Watch a crawl'"
            )
        _check_plain(signal, receiver)
        self._receivers.append((signal, receiver))
        if self._events is not None and signal in EVENT_SIGNALS:
            self._listen(self._events, signal, receiver)

    def disconnect(self, receiver: Callable[..., Any], signal: object = None) -> None:
        """Stop calling ``receiver`` for ``signal``."""
        self._receivers = [pair for pair in self._receivers if pair != (signal, receiver)]

    def disconnect_all(self, signal: object = None) -> None:
        """Stop calling any receiver for ``signal``."""
        self._receivers = [pair for pair in self._receivers if pair[0] != signal]

    def bind(self, events: Events, spider: object) -> None:
        """Set the events and the spider of the crawl. Must be called before the first event is sent.

        Receivers of ``pydispatch`` are checked like those of :meth:`connect`.
        """
        self._events, self._spider = events, spider
        for signal, receiver in self._receivers:
            if signal in EVENT_SIGNALS:
                self._listen(events, signal, receiver)
        for signal in (*NOT_SENT, *EVENT_SIGNALS) if "pydispatch.dispatcher" in sys.modules else ():
            for receiver in self._dispatched(signal):
                _check_sent(signal)
                _check_plain(signal, receiver)
            if signal in EVENT_SIGNALS:
                self._listen(events, signal, None)

    async def send(self, signal: str, **given: object) -> list[Exception]:
        """Call the receivers of a signal in order, and wait until they return. A checkpoint only if a receiver awaits.

        Returns their errors. All are logged, except ``CloseSpider`` and ``DontCloseSpider`` for :data:`IDLE`.
        """
        errors: list[Exception] = []
        own = [receiver for wanted, receiver in self._receivers if wanted == signal]
        for receiver in (*own, *self._dispatched(signal)):
            try:
                with contained:
                    result = receiver(**accepted(receiver, {"signal": signal, "sender": self._sender, **given}))
                    if inspect.isawaitable(result):
                        await result
            except Exception as error:
                errors.append(error)
                if signal != IDLE or not isinstance(error, CloseSpider | DontCloseSpider):
                    logger.exception(_FAILED, signal, receiver)
        return errors

    def is_heard(self, signal: str) -> bool:
        """Return whether a signal has a receiver."""
        return any(wanted == signal for wanted, _ in self._receivers) or bool(self._dispatched(signal))

    def _dispatched(self, signal: str) -> list[Callable[..., Any]]:
        """Return the receivers of ``pydispatch`` for a signal; none if no code has imported that package."""
        dispatcher: Any = sys.modules.get("pydispatch.dispatcher")
        found = () if dispatcher is None else dispatcher.getAllReceivers(self._sender, signal)
        return list(dispatcher.liveReceivers(found)) if found else []

    def _listen(self, events: Events, signal: str, connected: Callable[..., Any] | None) -> None:
        """Call a receiver at each event of a signal. None stands for all receivers of ``pydispatch``."""
        kind, arguments = EVENT_SIGNALS[signal]

        def hear(event: Event) -> None:
            if connected is None:
                receivers = self._dispatched(signal)
            else:
                receivers = [connected] if (signal, connected) in self._receivers else []
            if isinstance(event, ResponseReceived) and not event.was_sent:
                return  # Scrapy's downloader did not see it
            for receiver in receivers:
                given = {**arguments(event), "spider": self._spider, "signal": signal, "sender": self._sender}
                try:
                    with contained:
                        _check_plain(signal, receiver)  # pydispatch may have connected it during the crawl
                        receiver(**accepted(receiver, given))
                except Exception:
                    logger.exception(_FAILED, signal, receiver)

        events.listen(kind, hear)


def _check_plain(signal: str, receiver: Callable[..., Any]) -> None:
    """Raise a UsageError if a receiver is ``async``, for a signal whose receivers are not awaited."""
    if signal in EVENT_SIGNALS and inspect.iscoroutinefunction(receiver):
        raise UsageError(
            f"a receiver of {signal} can't be async, because it is not awaited: use a watcher (WATCHERS) that"
            f" reads crawl.events({EVENT_SIGNALS[signal][0].__name__}), which may await"
        )


def _check_sent(signal: object) -> None:
    """Raise a UsageError with the replacement of a signal that trawl does not send."""
    if isinstance(signal, str) and signal in NOT_SENT:
        raise UsageError(f"trawl does not send the signal {signal}: {NOT_SENT[signal]}")


def accepted(receiver: Callable[..., Any], given: Mapping[str, object]) -> Mapping[str, object]:
    """Return the items of ``given`` that a function accepts by name."""
    parameters = inspect.signature(receiver).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


def fingerprint(
    request: Request, *, include_headers: Iterable[bytes | str] | None = None, keep_fragments: bool = False
) -> bytes:
    """Return Scrapy's fingerprint of a request (20 bytes), for data that was stored under such fingerprints.

    It depends on the method, URL and body, the headers named by ``include_headers`` and, if wanted, the URL's fragment.
    The crawl distinguishes requests by :func:`trawl.http.fingerprint` instead.
    """
    names = sorted(name.decode() if isinstance(name, bytes) else name for name in include_headers or ())
    headers = {
        name.lower().encode().hex(): [
            value.encode("latin-1").hex() for value in map(str, request.headers.getlist(name))
        ]
        for name in names
        if name in request.headers
    }
    url = canonicalize_url(request.url, keep_fragments=keep_fragments)
    data = {"method": request.method, "url": url, "body": request.body.hex(), "headers": headers}
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()


def status_words(status: int) -> str:
    """Return a status code with its reason phrase, such as ``404 Not Found``."""
    known = status in HTTPStatus._value2member_map_
    return f"{status} {HTTPStatus(status).phrase if known else 'Unknown Status'}"


class RequestFingerprinter:
    """Scrapy's ``crawler.request_fingerprinter``, unless ``REQUEST_FINGERPRINTER_CLASS`` names another class."""

    def __init__(self, crawler: Crawler | None = None) -> None:
        """Create the fingerprinter. ``crawler`` is not used."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the fingerprinter for a crawl."""
        return cls(crawler)

    def fingerprint(self, request: Request) -> bytes:
        """Return the :func:`fingerprint` of a request."""
        return fingerprint(request)


class CrawlerEngine:
    """The methods of Scrapy's engine that spiders use. They end the crawl, fetch, and add requests when it is idle."""

    __slots__ = ("_crawl", "_given")
    if not TYPE_CHECKING:
        schedule = Unsupported(_GIVE)
        pause = Unsupported(_PAUSE)
        unpause = Unsupported(_PAUSE)
        stop = Unsupported("`close_spider(spider, reason)` ends the crawl")
        spider_is_idle = Unsupported("use `spider.crawl.is_idle`")
        downloader = Unsupported(_PARTS)
        scraper = Unsupported(_PARTS)
        slot = Unsupported(_PARTS)

    def __init__(self) -> None:
        self._crawl: RunningCrawl | None = None
        self._given: list[Request] | None = None

    def bind(self, crawl: RunningCrawl) -> None:
        """Set the running crawl."""
        self._crawl = crawl

    def close_spider(self, spider: object = None, reason: str = "cancelled") -> None:
        """Send no new requests, finish the requests in flight, and end the crawl with ``reason``."""
        self._running().shutdown(reason)

    def crawl(self, request: Request, spider: object = None) -> None:
        """Add a request to the crawl. Only receivers of ``spider_idle`` may call this.

        The request is added after all receivers have returned.

        Raises:
            RuntimeError: If no receiver of ``spider_idle`` is running. Other code must yield its requests.
            TypeError: If ``request`` is not a request.
        """
        if not isinstance(request, Request):
            raise TypeError(f"engine.crawl() takes a Request, not {request!r}")
        if self._given is None:
            raise RuntimeError(f"engine.crawl() is for receivers of the signal spider_idle: {_GIVE}")
        self._given.append(request)

    @contextmanager
    def taking(self) -> Generator[list[Request], None, None]:
        """Collect the requests that are passed to :meth:`crawl` inside the block."""
        given: list[Request] = []
        self._given = given
        try:
            yield given
        finally:
            self._given = None

    async def download(self, request: Request) -> Response:
        """Return the response to ``request``, with throttling. A checkpoint. Raises the errors of ``spider.fetch``."""
        return await self._running().fetch(request)

    async def download_async(self, request: Request) -> Response:
        """Do the same as :meth:`download`, under Scrapy's newer name. A checkpoint."""
        return await self._running().fetch(request)

    def _running(self) -> RunningCrawl:
        if self._crawl is None:
            raise RuntimeError("the crawl is not running yet: its engine exists from start() on")
        return self._crawl


class Crawler:
    """A crawl in the form that Scrapy's spiders expect: ``crawler.settings``, ``crawler.stats``, ``crawler.engine``.

    >>> class Counted:
    ...     def __init__(self, stats, most):
    ...         self.stats, self.most = stats, most
    ...
    ...     @classmethod
    ...     def from_crawler(cls, crawler):
    ...         return cls(crawler.stats, crawler.settings.getint("CLOSESPIDER_ITEMCOUNT"))
    ...
    ...     def process_item(self, item, spider):
    ...         self.stats.inc_value("counted/items")
    ...         return item

    Attributes:
        settings: The settings by their upper-case names.
        stats: The statistics, which also have Scrapy's methods (``inc_value``, ``get_value``, ...).
        spidercls: The spider's class.
        spider: The spider; None until it is created.
        engine: Object with Scrapy's methods that end the crawl and fetch requests.
        signals: Object that sends most of Scrapy's signals. Connecting to another signal raises an error that names a
            replacement.
        request_fingerprinter: Object whose method ``fingerprint`` returns Scrapy's fingerprint of a request.
    """

    if not TYPE_CHECKING:
        crawl = crawl_async = Unsupported("use `await trawl.crawl(Spider)` or `trawl.run(Spider)`")
        logformatter = Unsupported("use LOG_FORMAT")
        extensions = Unsupported(_MADE)
        addons = get_addon = Unsupported("there are no add-ons")
        get_downloader_middleware = Unsupported(_MADE)
        get_extension = Unsupported(_MADE)
        get_item_pipeline = Unsupported(_MADE)
        get_spider_middleware = Unsupported(_MADE)

    def __init__(self, settings: Mapping[str, Any], stats: Stats, spidercls: type[Any]) -> None:
        self.settings: Mapping[str, Any] = settings
        self.stats: Stats = stats
        self.spidercls: type[Any] = spidercls
        self.spider: Any = None
        self.engine: CrawlerEngine = CrawlerEngine()
        self.signals: CrawlerSignals = CrawlerSignals(self)
        self.request_fingerprinter: Any = RequestFingerprinter(self)

    def _create_spider(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new spider. The tests of Scrapy's plug-ins call this method by its name."""
        return self.spidercls.from_crawler(self, *args, **kwargs)

    def bind(self, crawl: RunningCrawl) -> None:
        """Set the running crawl."""
        self.engine.bind(crawl)

    def stop(self) -> None:
        """Send no new requests, finish the requests in flight, and end the crawl with ``shutdown``."""
        self.engine.close_spider(self.spider, "shutdown")

    async def stop_async(self) -> None:
        """Do the same as :meth:`stop`, under Scrapy's newer name. A checkpoint, which does not wait for the end."""
        await trio.lowlevel.checkpoint()
        self.stop()
