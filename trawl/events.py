"""What happens in a crawl, as values that whoever wants to reads while it runs: in the place of Scrapy's signals.

Theory of operation. A part of the crawl asks whether anybody wants an event of a kind before it makes one, so that
what nobody reads costs a look into an empty dict. A reader has a bounded buffer of its own: one that is slow loses the
oldest events, which are counted, and never slows the crawl down. Events are told where they happen, in their order;
they are read later, by another task.
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
    "ResponseParsed",
    "ResponseReceived",
    "ScopeBackedOff",
    "SpiderError",
]

MAX_UNREAD = 1000
"""Events that wait for their reader, where it does not say otherwise; of more, the oldest are dropped and counted."""


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        at: When, on Trio's clock, in seconds.
    """

    at: float = attrs.field(factory=trio.current_time)


@attrs.frozen
class RequestScheduled(Event):
    """A request was let in: it is new, and is to be sent when its turn comes.

    Attributes:
        request: The request.
    """

    request: Request


@attrs.frozen
class RequestDropped(Event):
    """A request is not sent, or not any further.

    Attributes:
        request: The request.
        reason: Why, as the statistics name it: ``dupefilter_filtered``, ``offsite_filtered``, ``robots_forbidden``, ...
    """

    request: Request
    reason: str


@attrs.frozen
class RequestSent(Event):
    """A request went to the wire: pages, robots.txt, redirects, retries and direct fetches, each time.

    Attributes:
        request: The request.
        scopes: The throttling scopes that it counts for.
    """

    request: Request
    scopes: Sequence[str]


@attrs.frozen
class ResponseReceived(Event):
    """A response has come, of any status, from the wire or the cache; its callback was not called yet.

    Attributes:
        response: The response.
    """

    response: Response


@attrs.frozen
class ResponseParsed(Event):
    """The callback of a response (or the errback, for its status) has ended; what it gave is about to be stored.

    Attributes:
        response: The response; its ``times`` are whole now.
    """

    response: Response


@attrs.frozen
class RequestFailed(Event):
    """A request has come to its end without a response, after all its retries.

    Attributes:
        request: The request.
        error: What went wrong.
    """

    request: Request
    error: Exception


@attrs.frozen
class SpiderError(Event):
    """A callback failed.

    Attributes:
        request: The request that it was called for.
        error: What it raised.
        response: What it was given; None if it was an errback, and there was no response.
    """

    request: Request
    error: BaseException
    response: Response | None = None


@attrs.frozen
class ItemScraped(Event):
    """An item has passed the pipelines.

    Attributes:
        item: As it goes to the feeds.
        response: The page whose callback gave it; None for those of ``start()``.
    """

    item: Any
    response: Response | None


@attrs.frozen
class ItemDropped(Event):
    """A pipeline dropped an item.

    Attributes:
        item: As it came to the pipelines.
        reason: What the pipeline said.
    """

    item: Any
    reason: str


@attrs.frozen
class ItemFailed(Event):
    """A pipeline failed on an item, or no feed can write it.

    Attributes:
        item: As it came to the pipelines, or as they gave it to the feeds.
        error: What the pipeline raised; :class:`trawl.exceptions.ItemLost` of the feeds.
    """

    item: Any
    error: Exception


@attrs.frozen
class ScopeBackedOff(Event):
    """A server asked for less, and its scope took a step of backoff (or of rampup).

    Attributes:
        scope: The scope's id.
        step: The number of the step, from 1.
        delay: The delay in force from now on, in seconds.
        concurrency: The concurrency in force from now on, in requests.
        reason: The answer that was the reason: ``429 of https://a.example/``.
    """

    scope: str
    step: int
    delay: float
    concurrency: float
    reason: str


KINDS: tuple[type[Event], ...] = (
    RequestScheduled,
    RequestDropped,
    RequestSent,
    ResponseReceived,
    ResponseParsed,
    RequestFailed,
    SpiderError,
    ItemScraped,
    ItemDropped,
    ItemFailed,
    ScopeBackedOff,
)
EventT = TypeVar("EventT", bound=Event)


class EventStream(Generic[EventT]):
    """The events of some kinds, from now to the end of the crawl: a context manager, and inside it an async iterator.

    ::

        with crawl.events(ItemScraped, RequestDropped) as events:
            async for event in events:
                ...

    Several tasks may share one; each event goes to one of them. The loop ends when the crawl has. Who is still in the
    block then has :data:`trawl.engine.run.EVENTS_GRACE` seconds to read what is left and to come to an end.

    Attributes:
        dropped: Events that were dropped, because the reader was too slow.
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
        """Keep an event for the reader; the oldest makes room if it must."""
        if len(self._unread) == self._unread.maxlen:
            self.dropped += 1
        self._unread.append(event)
        self._news.set()

    def wake(self) -> None:
        """Have the reader look whether the crawl is over."""
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
            if self._news.is_set():  # else another task waits for it, and would for ever
                self._news = trio.Event()
            await self._news.wait()
        return self._unread.popleft()


@attrs.frozen
class _Listener:
    """Hears events at once.

    Attributes:
        put: Called with each.
    """

    put: Callable[[Any], None]


class Events:
    """The readers of one crawl's events.

    Attributes:
        wanted: The kinds that somebody reads, each with its readers; look here before an event is made.
        is_over: No more events come.
    """

    __slots__ = ("_left", "_streams", "is_over", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[type[Event], list[EventStream[Any] | _Listener]] = {}
        self.is_over: bool = False
        self._streams: list[EventStream[Any]] = []
        self._left = trio.Event()

    def stream(self, kinds: Sequence[type[EventT]], most: int) -> EventStream[EventT]:
        """A stream of events of ``kinds``, of all kinds if there are none, that keeps at most ``most`` unread.

        Raises:
            TypeError: One of them is no kind of event.
            ValueError: ``most`` is less than one.
        """
        for kind in kinds:
            if kind not in KINDS:
                known = ", ".join(each.__name__ for each in KINDS)
                raise TypeError(f"{kind!r} is no kind of event: there are {known}")
        if most < 1 or most == math.inf:
            raise ValueError(f"at least one event is kept for the reader, and a bounded number, not {most}")
        return EventStream(self, kinds or KINDS, most)  # type: ignore[arg-type]

    def add(self, stream: EventStream[Any], kinds: Sequence[type[Event]]) -> None:
        """Tell a stream events of these kinds from now on."""
        self._streams.append(stream)
        for kind in kinds:
            self.wanted.setdefault(kind, []).append(stream)

    def listen(self, kind: type[Event], hear: Callable[[Any], None]) -> None:
        """Have ``hear`` called with each event of ``kind``, at once and where it happens; it raises nothing."""
        self.wanted.setdefault(kind, []).append(_Listener(hear))

    def remove(self, stream: EventStream[Any]) -> None:
        """Tell it none any more."""
        self._streams.remove(stream)
        for kind, streams in list(self.wanted.items()):
            if stream in streams:
                streams.remove(stream)
                if not streams:
                    del self.wanted[kind]
        self._left.set()

    def is_open_for(self, stream: EventStream[Any]) -> bool:
        """Whether its block is open."""
        return stream in self._streams

    def tell(self, event: Event) -> None:
        """Give an event to those who read its kind; waits for nobody."""
        for stream in self.wanted.get(type(event), ()):
            stream.put(event)

    async def end(self) -> None:
        """Say that no more events come, and wait until those who read them have left their blocks. A checkpoint."""
        self.is_over = True
        for stream in self._streams:
            stream.wake()
        await trio.lowlevel.checkpoint()
        while any(stream.is_read for stream in self._streams):
            self._left = trio.Event()
            await self._left.wait()
