"""The events of a running crawl. Read them with ``crawl.events()``. They correspond to Scrapy's signals.

Theory of operation. The crawl creates an event only if its kind has a reader, so an unread kind costs one lookup in an
empty dict. Each reader has a bounded buffer. A slow reader loses the oldest events, which are counted, and never slows
down the crawl. Events are put into buffers when they happen, in order, and another task reads them later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import attrs
import trio

from trawl.http import Request, Response

__all__ = [
    "MAX_UNREAD",
    "Event",
    "EventStream",
    "Events",
    "ItemDropped",
    "ItemFailed",
    "ItemScraped",
    "RequestDropped",
    "RequestFailed",
    "RequestScheduled",
    "RequestSent",
    "ResponseAccepted",
    "ResponseParsed",
    "ResponseReceived",
    "ScopeBackedOff",
    "SpiderError",
    "Steered",
]

MAX_UNREAD = 1000
"""The default size of a reader's buffer. When it is full, the oldest events are dropped and counted."""


@attrs.frozen(kw_only=True)
class Event:
    """The base class of events.

    Attributes:
        at: The time on Trio's clock, in seconds.
    """

    at: float = attrs.field(factory=trio.current_time)


@attrs.frozen
class RequestScheduled(Event):
    """A request was admitted and will be sent when its scopes allow it: a new request, a redirect's target or a retry.

    Attributes:
        request: The request.
    """

    request: Request


@attrs.frozen
class RequestDropped(Event):
    """A request was dropped without a response.

    Attributes:
        request: The request.
        reason: The key of the statistic: ``dupefilter_filtered``, ``offsite_filtered``, ``robots_forbidden``, ...
    """

    request: Request
    reason: str


@attrs.frozen
class RequestSent(Event):
    """A request was sent: a page, robots.txt, a redirect, a retry or a direct fetch.

    Attributes:
        request: The request.
        scopes: The ids of the request's throttling scopes.
    """

    request: Request
    scopes: Sequence[str]


@attrs.frozen
class ResponseReceived(Event):
    """A response with any status code arrived. Its callback has not been called yet.

    Attributes:
        response: The response.
        was_sent: True if its request was sent; False if the cache or middleware responded.
    """

    response: Response
    was_sent: bool = True


@attrs.frozen
class ResponseAccepted(Event):
    """A response has passed the middleware, so that no redirect or retry replaces it. Its callback is called next.

    Attributes:
        response: The response.
    """

    response: Response


@attrs.frozen
class ResponseParsed(Event):
    """The callback of a response (or the errback for its status code) has ended. Its outputs are about to be stored.

    Attributes:
        response: The response, with complete ``times``.
        scope: The scope that opened last before the send; "" without a scope.
        limit: The limit of this scope that opened last, such as ``delay``; "" if no limit had closed the scope.
    """

    response: Response
    scope: str = ""
    limit: str = ""


@attrs.frozen
class RequestFailed(Event):
    """A request failed without a response, after all its retries.

    Attributes:
        request: The request.
        error: The error.
    """

    request: Request
    error: Exception


@attrs.frozen
class SpiderError(Event):
    """A callback raised an exception.

    Attributes:
        request: The request of the callback.
        error: The exception.
        response: The response; None for an errback without a response.
    """

    request: Request
    error: BaseException
    response: Response | None = None


@attrs.frozen
class ItemScraped(Event):
    """An item passed the pipelines.

    Attributes:
        item: The item that goes to the feeds.
        response: The response whose callback yielded the item; None for an item of ``start()``.
    """

    item: Any
    response: Response | None


@attrs.frozen
class ItemDropped(Event):
    """A pipeline dropped an item.

    Attributes:
        item: The item before the pipelines.
        reason: The message of the pipeline's ``DropItem``.
    """

    item: Any
    reason: str


@attrs.frozen
class ItemFailed(Event):
    """A pipeline failed on an item, or no feed could write it.

    Attributes:
        item: The item as passed to the pipelines, or to the feeds.
        error: The exception of the pipeline, or :class:`trawl.exceptions.ItemLost` from the feeds.
    """

    item: Any
    error: Exception


@attrs.frozen
class ScopeBackedOff(Event):
    """A scope took a backoff step, or rampup reduced its rate, because a server refused requests.

    Attributes:
        scope: The scope's id.
        step: Number of the step, starting at 1.
        delay: The new delay, in seconds.
        concurrency: The new concurrency, in requests.
        reason: The response that caused the step: ``429 of https://a.example/``.
    """

    scope: str
    step: int
    delay: float
    concurrency: float
    reason: str


@attrs.frozen(kw_only=True)
class Steered(Event):
    """A user has changed the crawl from outside: paused it, set limits, added or dropped requests.

    Attributes:
        order: The name of the order: ``pause``, ``resume``, ``stop``, ``set``, ``add`` or ``drop``.
        effect: The effect of the order, in one sentence.
        source: Where the order came from: ``panel``, ``socket`` or ``store``.
    """

    order: str
    effect: str
    source: str


KINDS: tuple[type[Event], ...] = (
    RequestScheduled,
    RequestDropped,
    RequestSent,
    ResponseReceived,
    ResponseAccepted,
    ResponseParsed,
    RequestFailed,
    SpiderError,
    ItemScraped,
    ItemDropped,
    ItemFailed,
    ScopeBackedOff,
    Steered,
)
EventT = TypeVar("EventT", bound=Event)


class EventStream(Generic[EventT]):
    """The events of some kinds from now to the end of the crawl. A context manager that returns an async iterator.

    ::

        with crawl.events(ItemScraped, RequestDropped) as events:
            async for event in events:
                ...

    Several tasks may share a stream. Each event goes to one of these tasks. The loop ends after the crawl. The block
    then has :data:`trawl.engine.run.EVENTS_GRACE` seconds to read the remaining events and to end.

    Attributes:
        dropped: Number of events that were dropped because the reader was too slow.
        is_read: True if a task has iterated over the stream, so that the end of the crawl waits for this task.
    """

    def __init__(self, events: Events, kinds: Sequence[type[EventT]], most: int) -> None:
        self._events = events
        self._kinds = kinds
        self._unread: deque[EventT] = deque(maxlen=most)
        self._news = trio.Event()
        self.dropped: int = 0
        self.is_read: bool = False

    def __enter__(self) -> EventStream[EventT]:
        self._events.add(self, self._kinds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._events.remove(self)

    def put(self, event: EventT) -> None:
        """Put an event into the buffer. A full buffer drops its oldest event."""
        if len(self._unread) == self._unread.maxlen:
            self.dropped += 1
        self._unread.append(event)
        self._news.set()

    def unread(self) -> list[EventT]:
        """Return the events in the buffer, and empty it, without waiting. The crawl does not wait for such a reader."""
        events = list(self._unread)
        self._unread.clear()
        return events

    def wake(self) -> None:
        """Wake the reader, so that it notices the end of the crawl."""
        self._news.set()

    def __aiter__(self) -> EventStream[EventT]:
        return self

    async def __anext__(self) -> EventT:
        if not self._events.is_open_for(self):
            raise RuntimeError("events are read inside their block: `with crawl.events() as events:`")
        self.is_read = True
        await trio.lowlevel.checkpoint()
        while not self._unread:
            if self._events.is_over:
                raise StopAsyncIteration
            if self._news.is_set():  # otherwise, another task may wait for this event
                self._news = trio.Event()
            await self._news.wait()
        return self._unread.popleft()


class Events:
    """The readers of one crawl's events.

    Attributes:
        wanted: Functions to call with each event, by kind. Check this before creating an event.
        is_over: True if the crawl has ended, so that no more events follow.
    """

    __slots__ = ("_left", "_streams", "is_over", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[type[Event], list[Callable[[Any], None]]] = {}
        self.is_over: bool = False
        self._streams: list[EventStream[Any]] = []
        self._left = trio.Event()

    def stream(self, kinds: Sequence[type[EventT]], most: int) -> EventStream[EventT]:
        """Return a stream of events of ``kinds`` (by default all) with a buffer of ``most`` events.

        Raises:
            TypeError: If one of ``kinds`` is not an event class.
            ValueError: If ``most`` is less than 1 or infinite.
        """
        for kind in kinds:
            if kind not in KINDS:
                known = ", ".join(each.__name__ for each in KINDS)
                raise TypeError(f"{kind!r} is not a kind of event; choose from {known}")
        if most < 1 or most == math.inf:
            raise ValueError(f"most must be a finite number of events of at least 1, not {most}")
        return EventStream(self, kinds or KINDS, most)  # type: ignore[arg-type]

    def add(self, stream: EventStream[Any], kinds: Sequence[type[Event]]) -> None:
        """Put events of these kinds into a stream from now on."""
        self._streams.append(stream)
        for kind in kinds:
            self.wanted.setdefault(kind, []).append(stream.put)

    def listen(self, kind: type[Event], hear: Callable[[Any], None]) -> None:
        """Call ``hear`` with each event of ``kind`` immediately, in the task of the event. ``hear`` must not raise."""
        self.wanted.setdefault(kind, []).append(hear)

    def remove(self, stream: EventStream[Any]) -> None:
        """Put no more events into a stream."""
        self._streams.remove(stream)
        for kind, readers in list(self.wanted.items()):
            if stream.put in readers:
                readers.remove(stream.put)
                if not readers:
                    del self.wanted[kind]
        self._left.set()

    def is_open_for(self, stream: EventStream[Any]) -> bool:
        """Return True while the stream's block is open."""
        return stream in self._streams

    def emit(self, event: Event) -> None:
        """Pass an event to the readers of its kind, without waiting."""
        for put in self.wanted.get(type(event), ()):
            put(event)

    async def end(self) -> None:
        """Notify the readers of the end, and wait until they have left their blocks. A checkpoint."""
        self.is_over = True
        for stream in self._streams:
            stream.wake()
        await trio.lowlevel.checkpoint()
        while any(stream.is_read for stream in self._streams):
            self._left = trio.Event()
            await self._left.wait()
