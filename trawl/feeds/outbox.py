"""The feeds of a job: items go through its outbox, and are in every feed exactly once, whatever ends the process.

Theory of operation. ::

    callback ends ──► one transaction: acknowledgement, requests, items ──► outbox, numbered
                                                                               │ copied in order, in batches
    recorded in one transaction: "all feeds have the items up to n;            ▼
    feed a ends at byte x, feed b at byte y" ◄── the files are synced ◄── the feeds, flushed

A kill at any point leaves files that hold at least what is recorded. The next process cuts each back to its recorded
byte and copies from item n + 1 on: what was written twice is cut away once, and a half record with it. A file is synced
before its position is recorded, so that it is true of a machine that lost its power too.

Standard output, a pipe and a device can't be cut. There the items of a batch that was written and not recorded come
twice after a kill, and never get lost.

What is beyond the limit of a run (``CLOSESPIDER_ITEMCOUNT``) comes into the outbox too, and is *withheld*: it is not
copied. From which item on is kept with the first of them, in one transaction, so that the next run knows which items
nobody has counted; it releases them first, as far as its own limit goes.

Without a job none of this is in the way: :class:`trawl.feeds.Feeds` takes the items as they come.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
import trio

from trawl.blocking import Blocking
from trawl.errors import FeedError
from trawl.feeds.settings import FeedsSettings
from trawl.feeds.stored import from_stored, to_stored
from trawl.feeds.writer import Counts, Feeds, open_feeds
from trawl.frontier import JobStore, OutboxItem, Section, damaged

__all__ = ["COPY_INTERVAL", "MOST_BEHIND", "Outbox", "open_outbox"]

COPY_INTERVAL = 0.25
"""Seconds that items gather in the outbox before they are copied: each batch syncs the files once."""

MOST_BEHIND = 10_000
"""Items that may wait in the outbox before acknowledgements wait for the feeds: a pipe that nobody reads stops us."""

_BATCH = 1000
_BATCH_BYTES = 1 << 20

logger: logging.Logger = logging.getLogger("trawl.feeds")


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one feed was written.

    Attributes:
        position: The end of its last whole record, in bytes; of a table in rows.
        columns: The fields that it can write, where its first item told them.
        batch: The number of the batch that the position is in, and how many items that has.
    """

    position: Annotated[int, msgspec.Meta(ge=0)]
    columns: tuple[str, ...] | None = None
    batch: tuple[int, int] | None = None


MARKS: Section[dict[str, Mark]] = Section("feeds", dict[str, Mark])
"""What a job keeps of its feeds, by the places that they go to: absolute, so that ``-o`` may be spelled otherwise."""

WITHHELD: Section[int] = Section("withheld", int)
"""What a job keeps of the items beyond a limit: the position of the last item before them."""


class Outbox:
    """Encodes items for the outbox, and copies what is in it to the feeds.

    Args:
        job: Whose outbox it is.
        feeds: Open, and cut back to where they were recorded.
        blocking: How blocking work is done.
        stats: Where ``feed_item_errors`` is counted.
        is_idle: The job has feeds, and none of them is given in this run: what waits for them stays.
    """

    def __init__(
        self, job: JobStore, feeds: Feeds, blocking: Blocking, stats: Counts | None = None, *, is_idle: bool = False
    ) -> None:
        self._job = job
        self._feeds = feeds
        self._blocking = blocking
        self._stats = stats
        self._classes = tuple(dict.fromkeys([one for feed in feeds.all for one in feed.picker.classes]))
        self._filtered = [feed.picker for feed in feeds.all if feed.picker.accepts is not None]
        self._copied = job.outbox_start
        self._expected = job.outbox_end
        before = WITHHELD.read(job)  # where it can't be read, all are delivered
        self._until = self._expected if before is None else min(self._expected, max(before, self._copied))
        if before is not None and self._until == self._expected:  # a kill came before the items that it was kept for
            job.keep(WITHHELD.name, None)
        self._released = (self._until, self._until)
        self._collected: list[object] | None = None
        self._is_idle = is_idle
        self._most = _BATCH
        self._is_closed = False
        self._error: FeedError | None = None
        self._some = trio.Event()
        self._urgent = trio.Event()
        self._room = trio.Event()
        if self._until > self._copied:
            self._some.set()

    @property
    def is_empty(self) -> bool:
        """Whether there is no feed at all, so that nothing need be stored."""
        return self._feeds.is_empty

    def encode(self, item: object) -> bytes | None:
        """An item as it is stored; None for one that can't be written, which is logged and counted."""
        try:
            return to_stored(item, self._classes, self._answers(item) if self._filtered else None)
        except (TypeError, ValueError) as error:
            self._failed(type(item).__name__, error)
            return None

    def _answers(self, item: object) -> dict[str, bool]:
        """What the filters of the feeds say of an item: they see the item itself, not what is stored."""
        answers: dict[str, bool] = {}
        for picker in self._filtered:
            try:
                answer = picker.answer(item)
            except ValueError as error:
                self._failed(type(item).__name__, error)
                answer = False
            if answer is not None:
                answers[picker.place] = answer
        return answers

    @property
    def withheld(self) -> int:
        """Items in the outbox that were beyond the limit of an earlier run, or of this one; 0 if none can be copied."""
        return 0 if self._is_idle else self._expected - self._until

    def acknowledged(self, count: int, withheld: int = 0) -> None:
        """Say that ``count`` items came into the outbox with an acknowledgement, the last of them for a later run."""
        self._expected += count
        self._until += count - withheld
        if self._until < self._expected:
            WITHHELD.keep(self._job, self._until)
        self._some.set()
        if self.is_behind:
            self._urgent.set()

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the feeds that :meth:`room` would wait."""
        return self._until - self._copied > MOST_BEHIND and not self._is_idle

    def release(self, count: int, collected: list[object] | None) -> None:
        """Copy ``count`` of those withheld after all, and put them into ``collected`` too, if given, as plain dicts."""
        self._released = (self._until, self._until + count)
        self._collected = collected
        self._until += count
        if self._until < self._expected:
            WITHHELD.keep(self._job, self._until)
        else:
            self._job.keep(WITHHELD.name, None)
        self._some.set()

    async def room(self) -> None:
        """Return when the feeds are not too far behind. A checkpoint only if they are.

        Raises:
            FeedError: A feed can't be written any more.
        """
        while self.is_behind and self._error is None and not self._is_closed:
            await self._room.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Say that nothing more is acknowledged; :meth:`write` then copies the rest and ends."""
        self._is_closed = True
        self._some.set()
        self._urgent.set()

    async def write(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Copy what comes until :meth:`close`, then end the feeds. The one writer task of a crawl.

        Cancelling it closes the feeds where they are; the next process of the job goes on from what is recorded.

        Raises:
            FeedError: A feed can't be written.
            JobError: The job can't be.
        """
        task_status.started()  # at once: it is started shielded, and who is cancelled meanwhile would wait for it
        try:
            await self._feeds.start()
            self._record()  # where each feed begins, before anything is written to it
            await self._job.commit()
            while not self._is_closed:
                await self._gathered()
                await self._copy()
            await self._job.commit()
            await self._copy()
            await self._feeds.finish()
            self._record()
            await self._job.commit()
        except FeedError as error:
            self._error = error
            raise
        finally:
            self._is_closed = True
            self._room.set()
            await self._feeds.aclose()  # noqa: ASYNC102 - shielded and limited

    async def _gathered(self) -> None:
        await self._some.wait()
        with trio.move_on_after(COPY_INTERVAL):
            await self._urgent.wait()
        if not self._is_closed:
            self._some = trio.Event()
            self._urgent = trio.Event()

    async def _copy(self) -> None:
        while self._copied < self._until and not self._is_idle:
            most = min(self._most, self._until - self._copied)
            items = await self._job.outbox_after(self._copied, most)
            if not items:  # acknowledged, and not in the database yet
                await self._job.commit()
                items = await self._job.outbox_after(self._copied, most)
                if not items:
                    return
            for one in items:
                self._add(one)
            for feed in self._feeds.all:
                await feed.flush(self._blocking)
            for feed in self._feeds.all:
                await feed.sync(self._blocking)
            self._copied = items[-1].position
            self._record()
            self._job.outbox_done(self._copied)
            mean = sum([len(one.item) for one in items]) // len(items)
            self._most = max(1, min(_BATCH, _BATCH_BYTES // (mean + 1)))
            self._room.set()
            self._room = trio.Event()

    def _add(self, item: OutboxItem) -> None:
        try:
            stored = from_stored(item.item)
        except (msgspec.DecodeError, TypeError) as error:
            raise damaged(self._job.directory, f"its item {item.position} can't be read: {error}") from error
        except ValueError as error:
            self._failed("an acknowledged request", error)
            return
        try:
            if self._collected is not None and self._released[0] < item.position <= self._released[1]:
                self._collected.append(stored.fields)
            for feed in self._feeds.all:
                feed.add_stored(stored)
        except (TypeError, ValueError) as error:
            self._failed("an acknowledged request", error)

    def _record(self) -> None:
        earlier = MARKS.read(self._job) or {}
        now = {feed.place: Mark(feed.position, feed.columns, feed.batch) for feed in self._feeds.all}
        MARKS.keep(self._job, {**earlier, **now})

    def _failed(self, what: str, error: Exception) -> None:
        logger.error("feeds: an item of type %s is left out: %s", what, error)
        if self._stats is not None:
            self._stats.inc("feed_item_errors")


async def open_outbox(
    settings: FeedsSettings,
    blocking: Blocking,
    job: JobStore,
    *,
    spider_name: str,
    started_utc: datetime,
    stats: Counts | None = None,
) -> tuple[Feeds, Outbox]:
    """The feeds of a job, each cut back to where it was recorded, and what copies to them.

    Args:
        settings: Which feeds, and how they are written.
        blocking: How blocking work is done.
        job: Its outbox and what it has recorded.
        spider_name: What ``%(name)s`` in a path stands for.
        started_utc: When the job began: what ``%(time)s`` in a path stands for, in each of its runs.
        stats: Where ``feed_item_errors`` is counted.

    Raises:
        FeedError: A feed can't be opened, or is shorter than what was written to it.
        JobError: What the job recorded of its feeds can't be read: going on would write items twice.
    """
    marks = MARKS.read(job)
    if marks is None and MARKS.name in job.kept:
        raise damaged(job.directory, "what it recorded of its feeds can't be read")
    marks = marks or {}
    feeds = await open_feeds(
        settings,
        blocking,
        spider_name=spider_name,
        started_utc=started_utc,
        stats=stats,
        positions={place: mark.position for place, mark in marks.items()},
        columns={place: mark.columns for place, mark in marks.items() if mark.columns},
        batches={place: mark.batch for place, mark in marks.items() if mark.batch},
        is_durable=True,
    )
    _tell(job, feeds, marks)
    return feeds, Outbox(job, feeds, blocking, stats, is_idle=feeds.is_empty and bool(marks))


def _tell(job: JobStore, feeds: Feeds, marks: Mapping[str, Mark]) -> None:
    """Warn of feeds that this run was not given."""
    given = [feed.place for feed in feeds.all]
    for place in marks:
        if place not in given:
            logger.warning("job %s: its feed %s is none of this run: it gets no items", job.directory, place)
    waiting = job.outbox_end - job.outbox_start
    if waiting and not given:
        logger.warning("job %s: %d items wait for a feed, and this run has none", job.directory, waiting)
