"""Items: through the pipelines, into the feeds, and into the list of collected items.

Every item of a crawl passes here: in :meth:`ItemSender.put`, or in :meth:`ItemSender.put_nowait` where there is
nothing to wait for. It is put into a file by ``trawl.feeds.feed.Feed._add``.

With a job, items are held until their request is acknowledged, so that a kill leaves neither half of them nor two each.
A callback's items pass the pipelines as it gives them, are encoded, and come into the job's outbox in the transaction
that acknowledges the request. Memory holds at most :data:`MAX_ITEMS` of one callback, or :data:`MAX_BYTES`; what is
more is spilled to the job's disk, where it waits for the same transaction, and is forgotten if that never comes (C4).

Where a limit is in force (``CLOSESPIDER_ITEMCOUNT``), the items beyond it come into the outbox like all others, and
wait there: the next run delivers and counts them first, be there a feed or not.

Items of ``start()`` belong to no request. They wait in memory until it has ended, and come into the outbox in the
transaction that notes that. When they are too many to wait they come there earlier, in a transaction that also stores
how many ``start()`` has given so far: a later run, which reads it from its beginning, leaves out as many.
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
from trawl.frontier import Frontier, Record
from trawl.frontier.sections import START_ITEMS
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.feeds.item_errors import Counts
    from trawl.feeds.outbox import OutboxWriter
    from trawl.frontier.job import Job

__all__ = [
    "MAX_BYTES",
    "MAX_ITEMS",
    "CallbackItems",
    "ItemReceiver",
    "ItemSender",
    "JobItems",
    "Processor",
    "Writer",
]

logger: logging.Logger = logging.getLogger("trawl.items")
job_logger: logging.Logger = logging.getLogger("trawl.engine")

MAX_ITEMS = 1000
"""Items of one callback that are held in memory."""

MAX_BYTES = 1 << 20
"""Bytes of them."""


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
        is_held: Items are held until they are acknowledged, and counted then.
        events: Told of items that do not go on.
    """

    __slots__ = (
        "_collected",
        "_events",
        "_is_direct",
        "_is_held",
        "_limit",
        "_processor",
        "_receivers",
        "_spider",
        "_stats",
        "_tells",
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
        is_held: bool = False,
        events: Events | None = None,
    ) -> None:
        self._events = Events() if events is None else events
        self._processor = processor
        self._spider = spider
        self._receivers = tuple(receivers)
        self._collected = collected
        self._stats = stats
        self._limit = limit
        self._is_held = is_held
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
                self._events.tell(ItemDropped(item, str(drop)))
                return None
            except Exception as error:
                logger.exception("a pipeline failed on an item of %s", page or "start()", extra={"url": page})
                counts.inc("item_error_count")
                self._events.tell(ItemFailed(item, error))
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
        self._events.tell(ItemFailed(item, error))

    def _lost(self, item: object, error: ItemLost) -> None:
        self._stats.inc("item_lost_count")
        self.tell_lost(item, error)

    def _taken(self, item: object, page: str) -> None:
        if self._tells:
            logger.debug("item of %s: %.1000r", page or "start()", item)
        if self._is_held:
            return
        self._stats.inc("item_scraped_count")
        if self._collected is not None:
            self._collected.append(item)


def _level(drop: DropItem) -> int:
    level = drop.log_level
    return level if isinstance(level, int) else logging.getLevelNamesMapping().get(str(level).upper(), logging.INFO)


class JobItems:
    """Makes what holds the items of each callback.

    Args:
        sender: The pipelines, and where else items go.
        store: Encodes items.
        frontier: Spills items.
        job: Whose outbox it is.
        stats: Counts what became of the items with the acknowledgement.
        collected: Keeps acknowledged items too, if given.
        limit: Says how many items of a page are delivered when it is acknowledged; None: all.
    """

    def __init__(
        self,
        sender: ItemSender,
        store: OutboxWriter,
        frontier: Frontier,
        job: Job,
        stats: Stats,
        collected: list[object] | None,
        limit: ItemLimit | None = None,
    ) -> None:
        self.sender: ItemSender = sender
        self.store: OutboxWriter = store
        self.frontier: Frontier = frontier
        self.job: Job = job
        self.stats: Stats = stats
        self.collected: list[object] | None = collected
        self.limit: ItemLimit | None = limit

    def begin(self) -> None:
        """Deliver first what an earlier run has left over its limit, as far as this one's goes."""
        withheld = self.store.withheld
        count = withheld if self.limit is None else self.limit.take_some(withheld)
        if count:
            job_logger.info("job %s: %d items beyond the limit of an earlier run come first", self.job.name, count)
            self.stats.inc("item_scraped_count", count)
            self.store.release(count, self.collected)

    def of(self, lease: Record | None) -> CallbackItems:
        """Make what holds the items of a request's callback; of ``start()`` where there is no request."""
        return CallbackItems(self, lease)


class CallbackItems:
    """The items of one callback: taken as long as it runs.

    Attributes:
        position: Of ``start()``: how many items it gave, those included that an earlier run has stored.
    """

    __slots__ = ("_bytes", "_count", "_counts", "_finished", "_items", "_job_items", "_lease", "_spilled", "position")

    def __init__(self, job_items: JobItems, lease: Record | None) -> None:
        self._job_items = job_items
        self._lease = lease
        self._items: list[bytes] = []
        self._finished: list[object] = []
        self._bytes = 0
        self._count = 0
        self._counts: dict[str, float] = {}  # a page that comes again after a kill is counted once
        self._spilled = 0
        self.position: int = 0 if lease is not None else START_ITEMS.read(job_items.job) or 0

    @property
    def is_lasting(self) -> bool:
        """True: what the callback gives outlives a kill, from its acknowledgement on."""
        return True

    def put_nowait(self, item: object, page: str = "") -> bool:
        """Take an item of ``page`` if that needs no waiting; False when it does.

        Raises:
            ItemLost: It can't be written; it is counted as that.
        """
        job_items = self._job_items
        # A page may be cut off at the limit, which `put` alone does.
        if (
            len(self._items) >= MAX_ITEMS
            or self._bytes >= MAX_BYTES
            or job_items.limit is not None
            or job_items.store.is_behind
        ):
            return False
        if not job_items.sender.put_nowait(item, page):
            return False
        self.position += 1
        self._hold(item, page)
        return True

    async def put(self, item: object, page: str = "") -> object | None:
        """Take an item, waiting for the pipelines, for the disk and for feeds that are behind. A checkpoint.

        Returns:
            The item as it goes on; None where it does not.

        Raises:
            ItemLost: It can't be written; it is counted as that.
            Full: The page has given so many that it must be one without an end.
        """
        job_items = self._job_items
        limit = job_items.limit
        try:
            await job_items.store.room()
        except FeedError:
            await trio.sleep_forever()  # noqa: ASYNC120 - the writer has failed, and that is about to cancel the crawl
        finished = await job_items.sender.put(item, page, self)
        self.position += 1
        if finished is None:
            return None
        if limit is not None and self._lease is not None:
            limit.check_page(self._count + 1, self._lease.request.url)
        self._hold(finished, page)
        if self._is_full:
            await self._spill()
        return finished

    def given(self) -> Sequence[bytes]:
        """The items that go with the acknowledgement, counted as scraped from here on: call it just before that.

        Those beyond the limit go too, and are counted by the run that delivers them.
        """
        job_items = self._job_items
        for key, n in self._counts.items():
            job_items.stats.inc(key, n)
        if self._count:
            limit = job_items.limit
            count = self._count if limit is None else limit.take_some(self._count)
            if count:
                job_items.stats.inc("item_scraped_count", count)
            if job_items.collected is not None:
                job_items.collected += self._finished[:count]
            stored = len(self._items) + self._spilled
            job_items.store.acknowledged(stored, max(0, stored - count))
        return self._items

    def inc(self, key: str, n: float = 1) -> None:
        """Count ``n`` under ``key`` with the acknowledgement."""
        self._counts[key] = self._counts.get(key, 0) + n

    @property
    def _is_full(self) -> bool:
        return len(self._items) >= MAX_ITEMS or self._bytes >= MAX_BYTES

    def _hold(self, item: object, page: str) -> None:
        job_items = self._job_items
        if not job_items.store.is_empty or job_items.limit is not None:
            try:
                encoded = job_items.store.encode(item, page, self)
            except ItemLost as error:
                self.inc("item_lost_count")
                job_items.sender.tell_lost(item, error)
                raise
            self._items.append(encoded)
            self._bytes += len(encoded)
        self._count += 1
        if job_items.collected is not None:
            self._finished.append(item)

    async def _spill(self) -> None:
        items, self._items, self._bytes = self._items, [], 0
        if self._lease is not None:
            await self._job_items.frontier.spill(self._lease, items)
            self._spilled += len(items)
            return
        await trio.lowlevel.checkpoint_if_cancelled()  # from here on nothing waits until all of it is handed in
        self._items = items
        START_ITEMS.keep(self._job_items.job, self.position)
        await self._job_items.job.give(self.given())
        self._items, self._finished, self._count, self._counts = [], [], 0, {}
