"""Items in a job, held until their request is acknowledged.

So a kill leaves neither half of a page's items nor two of each. A callback's items pass the pipelines as it gives them,
are encoded, and come into the job's outbox in the transaction that acknowledges the request. Memory holds at most
:data:`MAX_ITEMS` of one callback, or :data:`MAX_BYTES`; what is more is spilled to the job's disk, where it waits for
the same transaction, and is forgotten if that never comes (C4).

Where a limit is in force (``CLOSESPIDER_ITEMCOUNT``), the items beyond it come into the outbox like all others, and
wait there: the next run delivers and counts them first, be there a feed or not.

Items of ``start()`` belong to no request. They wait in memory until it has ended, and come into the outbox in the
transaction that notes that. When they are too many to wait they come there earlier, in a transaction that also stores
how many ``start()`` has given so far: a later run, which reads it from its beginning, leaves out as many.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

import trio

from trawl.engine.items import ItemSender
from trawl.engine.limits import ItemLimit
from trawl.errors import FeedError, ItemLost
from trawl.frontier import Frontier, Record
from trawl.frontier.sections import START_ITEMS
from trawl.observe import Stats

if TYPE_CHECKING:
    from trawl.feeds.outbox import OutboxWriter
    from trawl.frontier.job import Job

__all__ = ["MAX_BYTES", "MAX_ITEMS", "CallbackItems", "JobItems"]

logger: logging.Logger = logging.getLogger("trawl.engine")

MAX_ITEMS = 1000
"""Items of one callback that are held in memory."""

MAX_BYTES = 1 << 20
"""Bytes of them."""


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
            logger.info("job %s: %d items beyond the limit of an earlier run come first", self.job.name, count)
            self.stats.inc("item_scraped_count", count)
            self.store.release(count, self.collected)

    def of(self, lease: Record | None) -> CallbackItems:
        """Make what holds the items of a request's callback; of ``start()`` where there is no request."""
        return CallbackItems(self, lease)


class CallbackItems:
    """The items of one callback: taken as long as it runs.

    Attributes:
        position: Of ``start()``: how many items it gave, those included that an earlier run has stored.
        waited: Seconds for which the callback waited until items were stored, or written to the feeds.
    """

    __slots__ = (
        "_bytes",
        "_count",
        "_counts",
        "_finished",
        "_items",
        "_job_items",
        "_lease",
        "_spilled",
        "position",
        "waited",
    )

    def __init__(self, job_items: JobItems, lease: Record | None) -> None:
        self._job_items = job_items
        self._lease = lease
        self._items: list[bytes] = []
        self._finished: list[object] = []
        self._bytes = 0
        self._count = 0
        self._counts: dict[str, float] = {}  # a page that comes again after a kill is counted once
        self._spilled = 0
        self.waited: float = 0.0
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
            await self._timed(job_items.store.room())
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
            await self._timed(self._spill())
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

    async def _timed(self, waiting: Awaitable[None]) -> None:
        """Wait for the store or the feeds, and add up how long that took."""
        began_at = trio.current_time()
        await waiting
        self.waited += trio.current_time() - began_at

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
