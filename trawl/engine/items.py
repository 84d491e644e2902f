"""Items: through the pipelines, to the feeds, and into the list of collected items.

Every item of a crawl passes through :meth:`ItemSender.put`, or through :meth:`ItemSender.put_nowait` if nothing must be
waited for. ``trawl.feeds.feed.Feed._add`` writes it to a file.
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

__all__ = ["ItemReceiver", "ItemSender", "Processor", "Writer"]

logger: logging.Logger = logging.getLogger("trawl.items")


class Writer(Protocol):
    """A task that writes items to their destination."""

    async def write(self) -> None:
        """Write items until :meth:`close` was called and all items are written."""

    def close(self) -> None:
        """Accept no more items, so that :meth:`write` finishes."""


class ItemReceiver(Writer, Protocol):
    """Takes finished items: the feeds, or a stream that a caller reads."""

    def put_nowait(self, item: object, page: str = "") -> None:
        """Take an item of ``page`` at once.

        Raises:
            trio.WouldBlock: If there is no room now.
            ItemLost: If the item can't be written.
        """

    async def put(self, item: object, page: str = "") -> None:
        """Take an item of ``page``, and wait for room.

        Raises:
            ItemLost: If the item can't be written.
        """


class Processor(Protocol):
    """The item pipelines, as one object."""

    @property
    def is_empty(self) -> bool:
        """True if items pass unchanged and at once."""

    async def process(self, item: object, spider: object) -> object:
        """Return the item after all pipelines.

        Raises:
            DropItem: If a pipeline drops the item.
        """

    def opened(self, spider: object) -> AbstractAsyncContextManager[None]:
        """Hold the pipelines open."""


_BROKEN = (FeedError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors of a receiver whose writer has failed."""


class ItemSender:
    """Takes the items of a crawl, and counts those that are scraped, lost or dropped, or on which a pipeline fails.

    They pass the pipelines and the limit, then the receivers in order, or the list ``collected``, or both. If
    ``is_buffered``, they are buffered until they are acknowledged, and counted then.
    """

    def __init__(
        self,
        processor: Processor,
        spider: object,
        receivers: Sequence[ItemReceiver],
        collected: list[object] | None,
        stats: Stats,
        limit: ItemLimit,
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
        self.waited: float = 0.0  # seconds for which a callback waited until items were stored
        self._tells = logger.isEnabledFor(logging.DEBUG)
        # A single receiver refuses an item before anything takes it. With two, the first would have taken it already.
        self._is_direct = processor.is_empty and len(self._receivers) <= 1 and not limit.is_needed

    @property
    def is_lasting(self) -> bool:
        """False, because the items do not outlive a kill. With a job they do, once they are acknowledged."""
        return False

    @property
    def position(self) -> int:
        """The number of items of ``start()`` that an earlier run has stored; 0 without a job."""
        return 0

    def begin(self) -> None:
        """Deliver the items that an earlier run withheld; without a job there are none."""

    def of(self, lease: object) -> ItemSender:
        """Return the sender for the items of one request: this object."""
        return self

    def given(self) -> Sequence[bytes]:
        """Return the items to store with an acknowledgement; none, because they are already delivered."""
        return ()

    def put_nowait(self, item: object, page: str = "") -> bool:
        """Take an item of ``page`` if that needs no waiting; returns False if it does. May raise ItemLost."""
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
        """Take an item, wait for the pipelines and for room, and return the processed item. A checkpoint.

        Dropped and failed items are counted in ``counts``; None: in the statistics, at once. Raises ItemLost for an
        item that can't be written, after counting it, and Full if all items that the limit allows were delivered.
        """
        counts = self._stats if counts is None else counts
        self._limit.check()  # pipelines need not see an item that will not be delivered
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
        self._limit.take()
        for receiver in self._receivers:
            try:
                await receiver.put(item, page)
            except ItemLost as error:
                self._limit.give_back()
                self._lost(item, error)
                raise
            except _BROKEN:
                # The writer has failed, and its failure is about to cancel the crawl. The callback must not get this
                # error.
                await trio.sleep_forever()
        self._limit.taken()
        self._taken(item, page)
        return item

    def tell_lost(self, item: object, error: ItemLost) -> None:
        """Emit an event for an item that no feed can write."""
        self._events.emit(ItemFailed(item, error))

    def _lost(self, item: object, error: ItemLost) -> None:
        self._stats.inc("item_lost_count")
        self.tell_lost(item, error)

    def _taken(self, item: object, page: str) -> None:
        if self._tells:
            logger.debug("item of %s: %.1000r", page or "start()", item)
        types, kind = self._stats.item_types, type(item)
        types[kind] = types.get(kind, 0) + 1
        if self._is_buffered:
            return
        self._stats.inc("item_scraped_count")
        if self._collected is not None:
            self._collected.append(item)


def _level(drop: DropItem) -> int:
    level = drop.log_level
    return level if isinstance(level, int) else logging.getLevelNamesMapping().get(str(level).upper(), logging.INFO)
