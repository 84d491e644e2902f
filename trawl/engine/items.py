"""Items: through the pipelines, into the feeds, and into the list of collected items.

Every item of a crawl passes here: in :meth:`ItemSender.put`, or in :meth:`ItemSender.put_nowait` where there is
nothing to wait for. It is put into a file by ``trawl.feeds.feed.Feed._add``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import trio

from trawl.engine.limits import ItemLimit
from trawl.engine.state import in_pipelines
from trawl.errors import DropItem, FeedError, ItemLost
from trawl.events import Events, ItemDropped, ItemFailed
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.feeds.item_errors import Counts

__all__ = [
    "ItemReceiver",
    "ItemSender",
    "Processor",
    "Writer",
]

logger: logging.Logger = logging.getLogger("trawl.items")


class Writer(Protocol):
    """A task that moves items on to where they go."""

    async def write(self) -> None:
        """Move items on until :meth:`close` was called and all are there."""
        ...

    def close(self) -> None:
        """Say that no more items come."""
        ...


class ItemReceiver(Writer, Protocol):
    """Takes finished items: the feeds, or a stream that a caller reads."""

    def put_nowait(self, item: object, page: str = "") -> None:
        """Take an item of ``page`` at once.

        Raises:
            trio.WouldBlock: There is no room now.
            ItemLost: It can't be written.
        """
        ...

    async def put(self, item: object, page: str = "") -> None:
        """Take an item of ``page``, waiting for room.

        Raises:
            ItemLost: It can't be written.
        """
        ...


class Processor(Protocol):
    """The item pipelines, as one."""

    @property
    def is_empty(self) -> bool:
        """True if items pass unchanged and at once."""
        ...

    async def process(self, item: object, spider: object) -> object:
        """The item as it goes on.

        Raises:
            DropItem: It does not go on.
        """
        ...

    def opened(self, spider: object) -> AbstractAsyncContextManager[None]:
        """Hold the pipelines open."""
        ...


_BROKEN = (FeedError, trio.BrokenResourceError, trio.ClosedResourceError)
"""What a receiver says whose writer has failed."""


class ItemSender:
    """Takes the items of a crawl.

    Args:
        processor: The pipelines.
        spider: What pipelines are told besides the item.
        receivers: Where finished items go, one after the other.
        collected: Keeps every finished item too, if given.
        stats: Counts ``item_scraped_count``, ``item_lost_count``, ``item_dropped_count`` and ``item_error_count``.
        limit: Lets items through between the pipelines and the receivers; None: all.
        is_buffered: Items are buffered until they are acknowledged, and counted then.
        events: Told of items that do not go on.

    Attributes:
        waited: Seconds for which a callback waited until items were stored: always 0.
    """

    __slots__ = (
        "_collected",
        "_events",
        "_is_buffered",
        "_is_direct",
        "_limit",
        "_processor",
        "_receivers",
        "_spider",
        "_stats",
        "_tells",
        "waited",
    )

    def __init__(
        self,
        processor: Processor,
        spider: object,
        receivers: Sequence[ItemReceiver],
        collected: list[object] | None,
        stats: Stats,
        limit: ItemLimit | None = None,
        *,
        is_buffered: bool = False,
        events: Events | None = None,
    ) -> None:
        self._events = Events() if events is None else events
        self._processor = processor
        self._spider = spider
        self._receivers = tuple(receivers)
        self._collected = collected
        self._stats = stats
        self._limit = limit
        self._is_buffered = is_buffered
        self.waited: float = 0.0
        self._tells = logger.isEnabledFor(logging.DEBUG)
        # One receiver refuses an item before anything has taken it; of two, the first would have it already.
        self._is_direct = processor.is_empty and len(self._receivers) <= 1 and limit is None

    @property
    def is_lasting(self) -> bool:
        """False: what a callback gives does not outlive a kill. With a job it does, from its acknowledgement on."""
        return False

    @property
    def position(self) -> int:
        """The number of items of ``start()`` that an earlier run has stored: none, without a job."""
        return 0

    def begin(self) -> None:
        """Deliver what an earlier run has left: nothing."""

    def of(self, lease: object) -> ItemSender:
        """The writer for the items of one request: this one."""
        return self

    def given(self) -> Sequence[bytes]:
        """The items that are to go with an acknowledgement: none, they are gone already."""
        return ()

    def put_nowait(self, item: object, page: str = "") -> bool:
        """Take an item of ``page`` if that needs no waiting; False when it does.

        Raises:
            ItemLost: It can't be written; it is counted as that.
        """
        if not self._is_direct:
            return False
        if self._receivers:
            try:
                self._receivers[0].put_nowait(item, page)
            except (trio.WouldBlock, *_BROKEN):
                return False
            except ItemLost as error:
                self._lost(item, error)
                raise
        self._taken(item, page)
        return True

    async def put(self, item: object, page: str = "", counts: Counts | None = None) -> object | None:
        """Take an item, waiting for the pipelines and for room in the receivers; the item as it went on. A checkpoint.

        Args:
            item: Of any kind.
            page: The URL of the page it was found on; "" for one of ``start()``.
            counts: Where it is counted that an item does not go on; None: in the statistics, at once.

        Raises:
            ItemLost: It can't be written; it is counted as that.
            Full: It is one more than the crawl is to deliver.
        """
        limit = self._limit
        counts = self._stats if counts is None else counts
        if limit is not None:
            limit.check()  # the pipelines need not see what will not be delivered
        if not self._processor.is_empty:
            token = in_pipelines.set(True)
            try:
                item = await self._processor.process(item, self._spider)
            except DropItem as drop:
                logger.log(_level(drop), "item dropped: %s (of %s)", drop, page or "start()", extra={"url": page})
                counts.inc("item_dropped_count")
                self._events.emit(ItemDropped(item, str(drop)))
                return None
            except Exception as error:
                logger.exception("a pipeline failed on an item of %s", page or "start()", extra={"url": page})
                counts.inc("item_error_count")
                self._events.emit(ItemFailed(item, error))
                return None
            finally:
                in_pipelines.reset(token)
        if limit is not None:
            limit.take()
        for receiver in self._receivers:
            try:
                await receiver.put(item, page)
            except ItemLost as error:
                if limit is not None:
                    limit.give_back()
                self._lost(item, error)
                raise
            except _BROKEN:
                # The writer has failed, and its failure is about to cancel the crawl: not this callback's error.
                await trio.sleep_forever()
        if limit is not None:
            limit.taken()
        self._taken(item, page)
        return item

    def tell_lost(self, item: object, error: ItemLost) -> None:
        """Tell of an item that no feed can write."""
        self._events.emit(ItemFailed(item, error))

    def _lost(self, item: object, error: ItemLost) -> None:
        self._stats.inc("item_lost_count")
        self.tell_lost(item, error)

    def _taken(self, item: object, page: str) -> None:
        if self._tells:
            logger.debug("item of %s: %.1000r", page or "start()", item)
        if self._is_buffered:
            return
        self._stats.inc("item_scraped_count")
        if self._collected is not None:
            self._collected.append(item)


def _level(drop: DropItem) -> int:
    level = drop.log_level
    return level if isinstance(level, int) else logging.getLevelNamesMapping().get(str(level).upper(), logging.INFO)
