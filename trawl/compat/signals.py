"""Scrapy's signals, for code that connects to them: each is sent where its event is told, or the crawl begins and ends.

Theory of operation. A receiver of ``spider_opened``, ``engine_started``, ``spider_idle`` and those of the end may be
``async``, and is waited for. All others are called where their event happens, at once and in place, as Scrapy calls
them, so they may not wait: who wants to wait reads the event in a watcher. A crawl that nobody connects to makes no
event for it.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from trawl.errors import CloseSpider, DontCloseSpider, DropItem, UsageError
from trawl.events import (
    Event,
    Events,
    ItemDropped,
    ItemFailed,
    ItemScraped,
    RequestDropped,
    RequestScheduled,
    RequestSent,
    ResponseReceived,
    SpiderError,
)
from trawl.migration import Absent

__all__ = ["AT_ENDS", "IDLE", "SCRAPYS", "TOLD", "CrawlerSignals", "Failure"]

SCRAPYS: frozenset[str] = frozenset(
    (
        *("engine_started", "engine_stopped", "scheduler_empty", "spider_opened", "spider_idle", "spider_closed"),
        *("spider_error", "request_scheduled", "request_dropped", "request_reached_downloader"),
        *("request_left_downloader", "response_received", "response_downloaded", "headers_received"),
        *("bytes_received", "item_scraped", "item_dropped", "item_error", "feed_slot_closed"),
        *("feed_exporter_closed", "memusage_warning_reached", "robots_parsed"),
    )
)
"""The names of Scrapy's signals, sent here or not; each is an attribute of :mod:`trawl.signals`."""

AT_ENDS: frozenset[str] = frozenset({"engine_started", "engine_stopped", "spider_closed", "spider_opened"})
"""The signals that are sent as the crawl begins and as it ends."""

IDLE = "spider_idle"
"""The signal that is sent when nothing is pending: who hears it may give more, or keep the crawl from ending."""

logger: logging.Logger = logging.getLogger("trawl.spiders")


@attrs.frozen
class Failure:
    """An error as receivers of ``spider_error`` and ``item_error`` know it from Twisted.

    Attributes:
        value: The error.
    """

    value: BaseException

    def check(self, *kinds: type[BaseException]) -> type[BaseException] | None:
        """The first of ``kinds`` that it is, or None."""
        return next((kind for kind in kinds if isinstance(self.value, kind)), None)

    @property
    def type(self) -> Any:
        """Its class."""
        return self.value.__class__

    def getErrorMessage(self) -> str:
        """What it says."""
        return str(self.value)

    def getTraceback(self) -> str:
        """Where it comes from, as Python prints it."""
        return "".join(traceback.format_exception(self.value))


TOLD: Mapping[str, tuple[type[Event], Callable[[Any], Mapping[str, object]]]] = {
    "item_dropped": (
        ItemDropped,
        lambda event: {"item": event.item, "exception": DropItem(event.reason), "response": None},
    ),
    "item_error": (
        ItemFailed,
        lambda event: {"item": event.item, "failure": Failure(event.error), "response": None},
    ),
    "item_scraped": (ItemScraped, lambda event: {"item": event.item, "response": event.response}),
    "request_dropped": (RequestDropped, lambda event: {"request": event.request}),
    "request_reached_downloader": (RequestSent, lambda event: {"request": event.request}),
    "request_scheduled": (RequestScheduled, lambda event: {"request": event.request}),
    **dict.fromkeys(
        ("response_downloaded", "response_received"),
        (ResponseReceived, lambda event: {"request": event.response.request, "response": event.response}),
    ),
    "spider_error": (
        SpiderError,
        lambda event: {"failure": Failure(event.error), "response": event.response},
    ),
}
"""The signals that are sent where an event is told: which, and what receivers are given besides ``spider``."""

_ENDLESS = "give the spider an endless start(): it is read whenever there is room, and may wait for work"
_CUT_OFF = "DOWNLOAD_MAXSIZE and meta `download_maxsize` end a download that is too long"
_WHOLE = "feeds are whole when trawl.run() returns"

NOT_SENT: Mapping[str, str] = {
    "bytes_received": _CUT_OFF,
    "feed_exporter_closed": _WHOLE,
    "feed_slot_closed": _WHOLE,
    "headers_received": _CUT_OFF,
    "memusage_warning_reached": "MEMUSAGE_WARNING_MB logs a warning",
    "request_left_downloader": "response_received is sent, and a watcher (WATCHERS) reads"
    " crawl.events(ResponseReceived, RequestFailed)",
    "robots_parsed": "`await spider.fetch(...)` fetches a robots.txt like any page",
    "scheduler_empty": _ENDLESS,
}
"""Scrapy's other signals: what to do in place of connecting to them."""


class CrawlerSignals:
    """Scrapy's signals as ``from_crawler`` connects to them: of :data:`AT_ENDS`, of :data:`TOLD`, and :data:`IDLE`."""

    __slots__ = ("_events", "_receivers", "_spider")
    if not TYPE_CHECKING:
        send_catch_log = Absent("signals of one's own are not sent: call whoever is to hear of it")
        send_catch_log_async = send_catch_log_deferred = send_catch_log

    def __init__(self) -> None:
        self._receivers: list[tuple[str, Callable[..., Any]]] = []
        self._events: Events | None = None
        self._spider: object = None

    def connect(self, receiver: Callable[..., Any], signal: object = None, **options: object) -> None:
        """Have ``receiver`` called when a signal is sent, with as many of the signal's arguments as it takes.

        Args:
            receiver: What it raises is logged. It may be ``async`` for :data:`IDLE` and the signals of :data:`AT_ENDS`.
            signal: One of ``trawl.signals``: ``signals.spider_opened``, ``signals.item_scraped``, ...
            options: Scrapy's others, which are not looked at.

        Raises:
            UsageError: It is a signal that is not sent here, or the receiver is ``async`` where nobody waits for it;
                the sentence says what to write instead.
        """
        if isinstance(signal, str) and signal in NOT_SENT:
            raise UsageError(f"the signal {signal} is not sent here: {NOT_SENT[signal]}")
        if not isinstance(signal, str) or signal not in AT_ENDS | TOLD.keys() | {IDLE}:
            known = ", ".join(sorted(AT_ENDS | TOLD.keys() | {IDLE}))
            raise UsageError(
                f"there is no signal {signal}: there are {known}; for others a watcher (WATCHERS) reads"
                " crawl.events(ItemScraped, ...); the guide 'Watch a crawl' has the whole list"
            )
        if signal in TOLD and inspect.iscoroutinefunction(receiver):
            raise UsageError(
                f"a receiver of {signal} is no async function, because nobody waits for it: a watcher (WATCHERS) that"
                f" reads crawl.events({TOLD[signal][0].__name__}) may await what it likes"
            )
        self._receivers.append((signal, receiver))
        if self._events is not None and signal in TOLD:
            self._listen(self._events, signal, receiver)

    def disconnect(self, receiver: Callable[..., Any], signal: object = None) -> None:
        """Call ``receiver`` no more for ``signal``."""
        self._receivers = [pair for pair in self._receivers if pair != (signal, receiver)]

    def disconnect_all(self, signal: object = None) -> None:
        """Call nobody any more for ``signal``."""
        self._receivers = [pair for pair in self._receivers if pair[0] != signal]

    def bind(self, events: Events, spider: object) -> None:
        """Name the crawl's events and its spider, before the first event is told."""
        self._events, self._spider = events, spider
        for signal, receiver in self._receivers:
            if signal in TOLD:
                self._listen(events, signal, receiver)

    async def send(self, signal: str, **given: object) -> None:
        """Call those that are connected to a signal of :data:`AT_ENDS`, in order. A checkpoint only where one is."""
        for wanted, receiver in list(self._receivers):
            if wanted != signal:
                continue
            try:
                result = receiver(**_taken(receiver, {"signal": signal, "sender": self, **given}))
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("what is connected to %s failed: %r", signal, receiver)

    def is_heard(self, signal: str) -> bool:
        """Whether something is connected to a signal."""
        return any(wanted == signal for wanted, _ in self._receivers)

    async def ask_idle(self, spider: object) -> Exception | None:
        """Call those that are connected to :data:`IDLE`, in order, and wait for them.

        What one of them says about the end: ``DontCloseSpider``, which is the stronger, ``CloseSpider`` or None.
        """
        said: Exception | None = None
        for wanted, receiver in list(self._receivers):
            if wanted != IDLE:
                continue
            try:
                result = receiver(**_taken(receiver, {"signal": IDLE, "sender": self, "spider": spider}))
                if inspect.isawaitable(result):
                    await result
            except DontCloseSpider as error:
                said = error
            except CloseSpider as error:
                said = said or error
            except Exception:
                logger.exception("what is connected to %s failed: %r", IDLE, receiver)
        return said

    def _listen(self, events: Events, signal: str, receiver: Callable[..., Any]) -> None:
        kind, arguments = TOLD[signal]

        def hear(event: Event) -> None:
            if (signal, receiver) not in self._receivers:
                return
            given = {**arguments(event), "spider": self._spider, "signal": signal, "sender": self}
            try:
                receiver(**_taken(receiver, given))
            except Exception:
                logger.exception("what is connected to %s failed: %r", signal, receiver)

        events.listen(kind, hear)


def _taken(receiver: Callable[..., Any], given: Mapping[str, object]) -> Mapping[str, object]:
    """Those of ``given`` that a function takes by name."""
    parameters = inspect.signature(receiver).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}
