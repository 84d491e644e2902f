"""Items in a job, held until their request is acknowledged.

A kill therefore leaves neither half of a page's items nor any item twice. The items of a callback pass the pipelines as
it yields them, are encoded, and enter the job's outbox in the transaction that acknowledges the request. Memory holds
at most :data:`MAX_ITEMS` items of one callback, or :data:`MAX_BYTES`. Further items are spilled to the job's disk. They
enter the outbox in the same transaction, or are deleted if the request is never acknowledged.

With a limit (``CLOSESPIDER_ITEMCOUNT``), the items beyond it enter the outbox like all others and wait there. The next
run delivers and counts them first, with or without a feed.

Items of ``start()`` belong to no request. They wait in memory until ``start()`` has ended, and enter the outbox in the
transaction that records its end. If there are too many of them, an earlier transaction stores them, and with them the
number of items that ``start()`` has yielded. A later run, which reads ``start()`` again, skips this number of items.
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
"""Maximum number of items of one callback in memory."""

MAX_BYTES = 1 << 20
"""Maximum bytes of these items."""


class JobItems:
    """Creates the holder for the items of each callback."""

    def __init__(
        self,
        sender: ItemSender,
        store: OutboxWriter,
        frontier: Frontier,
        job: Job,
        stats: Stats,
        collected: list[object] | None,
        limit: ItemLimit,
    ) -> None:
        self.sender: ItemSender = sender  # the pipelines, and the receivers other than the job
        self.store: OutboxWriter = store  # encodes items
        self.frontier: Frontier = frontier  # spills items
        self.job: Job = job
        self.stats: Stats = stats  # counts items at their acknowledgement
        self.collected: list[object] | None = collected  # also receives acknowledged items
        self.limit: ItemLimit = limit  # decides how many items of a page are delivered

    def begin(self) -> None:
        """Deliver the items that an earlier run withheld, as far as this run's limit allows."""
        withheld = self.store.withheld
        if count := self.limit.take_some(withheld):
            logger.info("job %s: %d items beyond the limit of an earlier run come first", self.job.name, count)
            self.stats.inc("item_scraped_count", count)
            self.store.release(count, self.collected)

    def of(self, lease: Record | None) -> CallbackItems:
        """Return the holder for the items of a request's callback; of ``start()`` if there is no request."""
        return CallbackItems(self, lease)


class CallbackItems:
    """The items of one callback, held while it runs."""

    def __init__(self, job_items: JobItems, lease: Record | None) -> None:
        self._job_items = job_items
        self._lease = lease
        self._items: list[bytes] = []
        self._finished: list[object] = []
        self._bytes = self._count = 0
        # Counted with the acknowledgement, so that a page repeated after a kill counts once.
        self._counts: dict[str, float] = {}
        self._spilled = 0
        self.waited: float = 0.0  # seconds for which the callback waited until items were stored, or written to feeds
        # Number of items that start() has yielded, including items that an earlier run has stored.
        self.position: int = 0 if lease is not None else START_ITEMS.read(job_items.job) or 0

    @property
    def is_lasting(self) -> bool:
        """True, because acknowledged items outlive a kill."""
        return True

    def put_nowait(self, item: object, page: str = "") -> bool:
        """Take an item of ``page`` if that needs no waiting; returns False if it does. May raise ItemLost."""
        job_items = self._job_items
        # Only `put` stops a page at the limit.
        if self._is_full or job_items.limit.is_needed or job_items.store.is_behind:
            return False
        if not job_items.sender.put_nowait(item, page):
            return False
        self.position += 1
        self._hold(item, page)
        return True

    async def put(self, item: object, page: str = "") -> object | None:
        """Take an item, and wait for the pipelines, the disk and slow feeds. A checkpoint.

        Returns the processed item; None if it was dropped or failed. Raises ItemLost for an item that can't be written,
        after counting it, and Full if the page has yielded so many items that it is probably endless.
        """
        job_items = self._job_items
        try:
            await self._timed(job_items.store.room())
        except FeedError:
            await trio.sleep_forever()  # noqa: ASYNC120 - the writer has failed, and that is about to cancel the crawl
        finished = await job_items.sender.put(item, page, self)
        self.position += 1
        if finished is None:
            return None
        if self._lease is not None:
            job_items.limit.check_page(self._count + 1, self._lease.request.url)
        self._hold(finished, page)
        if self._is_full:
            await self._timed(self._spill())
        return finished

    def given(self) -> Sequence[bytes]:
        """Return the items to store with the acknowledgement, and count them as scraped. Call it just before that.

        Items beyond the limit are stored too. The run that delivers them counts them.
        """
        job_items = self._job_items
        for key, n in self._counts.items():
            job_items.stats.inc(key, n)
        if self._count:
            if count := job_items.limit.take_some(self._count):
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
        if not job_items.store.is_empty or job_items.limit.is_needed:
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
        await trio.lowlevel.checkpoint_if_cancelled()  # do not await until items and position are handed in
        self._items = items
        START_ITEMS.keep(self._job_items.job, self.position)
        await self._job_items.job.give(self.given())
        self._items, self._finished, self._count, self._counts = [], [], 0, {}
