"""The feeds of a job. Items go through the job's outbox, so each file has every item exactly once, even after a kill.

Theory of operation. ::

    callback ends ──► one transaction: acknowledgement, requests, items ──► outbox, numbered
                                                                               │ copied in order, in batches
    recorded in one transaction: "all feeds have the items up to n;            ▼
    feed a ends at byte x, feed b at byte y" ◄── the files are synced ◄── the feeds, flushed

If the process is killed at any point, the files have at least the recorded content. The next process truncates each
file to its recorded byte and copies the items from n + 1 on. So a partial record, and items that would be written
twice, are removed first. This also works after a power cut, which may lose the job's last transactions. A file and its
name are synced before its position is recorded, and a batch is synced before the next batch starts. The start position
of each feed is on the disk before an item is written to the feed.

A feed is identified by its absolute path. If the job has no feed with that path, the feed is identified by its path
relative to the job's directory, so that a job can be moved or copied together with its feeds. If an unknown file is at
the path of a feed, and one of the job's files is missing, the unknown file may be the missing file. The feed is then
refused, because items after the recorded byte would be written twice. If a feed was copied before the job was copied,
the copy lacks records, so it is refused too.

Standard output, a pipe and a device can't be truncated. If a batch was written to such a destination but not recorded
before a kill, the batch is written again. No items are lost.

Items beyond the limit of a run (``CLOSESPIDER_ITEMCOUNT``) enter the outbox too, but they are *withheld*, that is, not
copied to the feeds. The position of the last item within the limit is saved in the same transaction, so that the next
run knows which items were not counted. The next run first copies withheld items, as many as its own limit allows.

A job in a server may have several processes. One of these processes copies the items of all processes. The server's
response to each step of this process contains the position of the last item of all processes. The other processes have
no feeds, and only store items. With several processes no item is withheld, because the items of all processes are
mixed, so that one position could not separate the items beyond a limit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from trawl.blocking import Blocking
from trawl.errors import FeedError, ItemLost
from trawl.feeds.base import FeedState
from trawl.feeds.item_errors import Counts, ItemErrors, ItemOrigin, reason_of
from trawl.feeds.job_item import from_stored, to_stored
from trawl.feeds.options import feed_options, fill_path
from trawl.feeds.settings import FeedsSettings
from trawl.feeds.writer import Feeds, WriterWakeup, open_feeds
from trawl.frontier import OutboxItem
from trawl.frontier.sections import Section
from trawl.tracebacks import contained

if TYPE_CHECKING:
    from trawl.frontier.job import Job

__all__ = ["COPY_INTERVAL", "MAX_BEHIND", "OutboxWriter", "open_outbox"]

COPY_INTERVAL = 0.25
"""Seconds for which items are collected in the outbox before they are copied. The files are synced once per copy."""

MAX_BEHIND = 10_000
"""Maximum number of items that wait for the feeds.

Above it, acknowledgements wait, so a pipe without a reader stops the crawl.
"""

_COMPARED_BYTES = 1 << 16
_END_BYTES = 16
_BATCH = 1000
_BATCH_BYTES = 1 << 20

logger: logging.Logger = logging.getLogger("trawl.feeds")

_Refusal = tuple[str, ItemOrigin, Exception]  # the feed that refuses an item, the item's origin, and the reason

FEED_STATES: Section[dict[str, FeedState]] = Section("feeds", dict[str, FeedState])
"""States of a job's feeds by destination. It is an absolute path, so a later ``-o`` may write the path differently."""

WITHHELD: Section[int] = Section("withheld", int)
"""Position of the last item within the limit of the last run. Later items are withheld."""


class OutboxWriter:
    """Encodes items for the outbox, and copies them from the outbox to the feeds."""

    def __init__(self, job: Job, feeds: Feeds, stats: Counts | None, states: Mapping[str, FeedState]) -> None:
        self._job = job
        self._feeds = feeds
        self._item_errors = ItemErrors(stats)
        self._classes = tuple(dict.fromkeys([one for feed in feeds.all for one in feed.item_filter.classes]))
        self._is_exact = any(feed.takes_items for feed in feeds.all)
        self._filtered = [feed.item_filter for feed in feeds.all if feed.item_filter.accepts is not None]
        self._copied = job.outbox_start
        self._expected = job.outbox_end
        before = WITHHELD.read(job)  # None if the value can't be read; then all items are copied
        self._until = self._expected if before is None else min(self._expected, max(before, self._copied))
        if before is not None and self._until == self._expected:
            # The last process was killed before it stored the withheld items.
            job.keep(WITHHELD.name, None)
        self._released = (self._until, self._until)
        self._collected: list[object] | None = None
        # If this process has no feeds, but another run or process may have some, the pending items must stay.
        self._is_idle = feeds.is_empty and (bool(states) or job.session is not None)
        self._states = dict(states)
        self._moved = {old: destination for destination, state in self._states.items() for old in state.earlier}
        self._batch_items = _BATCH
        self._error: FeedError | None = None
        self._wakeup = WriterWakeup(COPY_INTERVAL)
        if self._until > self._copied:
            self._wakeup.add()

    @property
    def is_empty(self) -> bool:
        """True if no process of the job can have feeds, so that items need not be stored."""
        return self._feeds.is_empty and self._job.session is None

    def encode(self, item: object, page: str = "", counts: Counts | None = None) -> bytes:
        """Encode an item for the outbox, or raise ItemLost, if it can't be written or each filter failed.

        Refusals are logged, and counted in ``counts``, or immediately in the crawl's statistics if that is None.
        """
        answers = self._answers(item, page, counts) if self._filtered else None
        try:
            with contained:
                return to_stored(item, self._classes, answers, page, is_exact=self._is_exact)
        except Exception as error:  # a library that defines items or values may raise any exception
            origin = ItemOrigin(page, type(item).__name__)
            self._item_errors.refused(self._feeds.all[0].uri if self._feeds.all else "-", origin, error, counts)
            raise ItemLost(f"{origin} is left out: {reason_of(error)}") from error

    def _answers(self, item: object, page: str, counts: Counts | None) -> dict[str, bool]:
        """Return the results of the feeds' filters. They receive the item itself, not its stored form."""
        origin = ItemOrigin(page, type(item).__name__)
        answers: dict[str, bool] = {}
        failures: list[str] = []
        for feed in self._feeds.all:
            item_filter = feed.item_filter
            try:
                answer = item_filter.answer(item)
            except ValueError as error:
                self._item_errors.refused(feed.uri, origin, error, counts)
                failures.append(f"feed {feed.uri}: {error}")
                answer = False
            if answer is not None:
                answers[item_filter.destination] = answer
        filters = (feed.item_filter for feed in self._feeds.all)
        if failures and not any(answers.get(f.destination, f.accepts is None and f.takes(item)) for f in filters):
            raise ItemLost(f"{origin} is left out: {'; '.join(failures)}")
        return answers

    @property
    def withheld(self) -> int:
        """Number of items beyond the limit of this run or an earlier run; 0 if this process copies no items."""
        return 0 if self._is_idle else self._expected - self._until

    def acknowledged(self, count: int, withheld: int = 0) -> None:
        """Record that an acknowledgement has added ``count`` items, the last ``withheld`` of them for a later run."""
        self._expected += count
        self._until += count - (withheld if self._job.is_alone else 0)
        if self._until < self._expected:
            WITHHELD.keep(self._job, self._until)
        self._wakeup.add(is_urgent=self.is_behind)

    def others_gave(self, end: int) -> None:
        """Record that the outbox has items of other processes, up to the position ``end``."""
        self._until = max(self._until, end)
        self._expected = max(self._expected, end)
        self._wakeup.add(is_urgent=self.is_behind)

    @property
    def is_behind(self) -> bool:
        """True if too many items wait for the feeds, so that :meth:`room` would wait."""
        return self._until - self._copied > MAX_BEHIND and not self._is_idle

    def release(self, count: int, collected: list[object] | None) -> None:
        """Copy ``count`` withheld items to the feeds, and append them to the list ``collected`` as plain dicts."""
        self._released = (self._until, self._until + count)
        self._collected = collected
        self._until += count
        if self._until < self._expected:
            WITHHELD.keep(self._job, self._until)
        else:
            self._job.keep(WITHHELD.name, None)
        self._wakeup.add()

    async def room(self) -> None:
        """Wait while too many items wait for the feeds, and raise a feed's error. A checkpoint only if it waits."""
        while self.is_behind and self._error is None and not self._wakeup.is_closed:
            await self._wakeup.room()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Record that no more items will be acknowledged. :meth:`write` then copies the remaining items and ends."""
        self._wakeup.close()

    async def write(self) -> None:
        """Copy items until :meth:`close` is called, then end the feeds. Run this as the only writer task of a crawl.

        If this is cancelled, the feeds are closed without copying more. The next process continues from the recorded
        positions.
        """
        try:
            await self._feeds.start()
            self._record()  # record the start position of each feed before writing to the feed
            # Without this sync, a power cut could leave items in a feed whose job seems to be new.
            await self._job.sync()
            while not self._wakeup.is_closed:
                await self._wakeup.wait()
                await self._copy()
            await self._job.commit()
            if self._job.session is not None and not self._job.session.works:
                self.others_gave(self._job.outbox_end)  # the processes that this one leads may have left since
            await self._copy()
            await self._feeds.finish()
            self._record()
            await self._job.commit()
        except FeedError as error:
            self._error = error
            raise
        finally:
            self._wakeup.end()
            await self._feeds.aclose()  # noqa: ASYNC102 - shielded and limited

    async def _copy(self) -> None:
        if not self._job.is_alone and not self._is_idle:
            # The response to this step contains the position of the last item of all processes.
            await self._job.commit()
            self._expected = self._until = self._job.outbox_end
        while self._copied < self._until and not self._is_idle:
            limit = min(self._batch_items, self._until - self._copied)
            items = await self._job.outbox_after(self._copied, limit)
            if not items:  # the items are acknowledged, but not in the database yet
                await self._job.commit()
                items = await self._job.outbox_after(self._copied, limit)
                if not items:
                    return
            lease = self._job.lease
            if lease is not None and trio.current_time() >= lease.until:
                # Another process may copy the items now. In that case this session has ended, and commit() fails.
                await self._job.commit()
            refusals = [refusal for one in items for refusal in self._add(one)]
            await self._feeds.sync()
            # Count lost items now, so that the transaction that removes them from the outbox also stores the counts.
            self._tell(refusals)
            self._copied = items[-1].position
            self._record()
            self._job.outbox_done(self._copied)
            mean = sum([len(one.item) for one in items]) // len(items)
            self._batch_items = max(1, min(_BATCH, _BATCH_BYTES // (mean + 1)))
            self._wakeup.made_room()

    def _add(self, item: OutboxItem) -> list[_Refusal]:
        """Add an item to the feeds, and return the refusals."""
        try:
            stored = from_stored(item.item)
            if self._moved:
                stored = stored.moved(self._moved)
        except (msgspec.DecodeError, TypeError) as error:
            raise self._job.damaged(f"its item {item.position} can't be read: {error}") from error
        except ValueError as error:
            return [("-", ItemOrigin(kind=""), error)]
        origin = ItemOrigin(stored.page, stored.kind)
        if self._collected is not None and self._released[0] < item.position <= self._released[1]:
            self._collected.append(stored.fields)
        refusals: list[_Refusal] = []
        for feed in self._feeds.all:
            try:
                with contained:
                    origin.feeds += feed.add_stored(stored, origin) > 0
            except FeedError:
                raise
            except Exception as error:
                refusals.append((feed.uri, origin, error))
        return refusals

    def _tell(self, refusals: Sequence[_Refusal]) -> None:
        """Log and count items that feeds have refused, when the items were added or when they were written."""
        lost = {id(origin): origin for _, origin, _ in refusals if not origin.feeds}
        for uri, origin, error in refusals:
            self._item_errors.refused(uri, origin, error)
        for _ in lost:
            self._item_errors.count_lost()
        for feed in self._feeds.all:
            self._item_errors.refused_late(feed.uri, feed.take_refused())

    def _record(self) -> None:
        if self._is_idle:  # another process may have recorded later positions
            return
        for feed in self._feeds.all:
            destination = feed.destination
            earlier = self._states[destination].earlier if destination in self._states else ()
            relative = _relative(destination, self._job.directory)
            self._states[destination] = msgspec.structs.replace(feed.state, relative=relative, earlier=earlier)
        FEED_STATES.keep(self._job, self._states)


async def open_outbox(
    settings: FeedsSettings,
    blocking: Blocking,
    job: Job,
    *,
    spider_name: str,
    started_utc: datetime,
    stats: Counts | None = None,
) -> tuple[Feeds, OutboxWriter]:
    """Open the feeds of a job, and create the writer, which truncates each feed to its recorded position at its start.

    The start of the job, ``started_utc``, is the value of ``%(time)s`` in all runs. Without the saved positions, items
    would be written twice, so JobError is raised if they can't be read.
    """
    states = FEED_STATES.read(job)
    if states is None and FEED_STATES.name in job.kept:
        raise job.damaged("the saved positions of its feeds can't be read")
    options = feed_options(settings, spider_name=spider_name, started_utc=started_utc)
    states = await blocking.run(_located, states or {}, [one.destination for one in options], job.directory, job.name)
    # Pass no statistics, because a run after a kill adds some items again, and would count their errors twice.
    feeds = await open_feeds(settings, blocking, spider_name=spider_name, started_utc=started_utc, states=states)
    _tell(job, feeds, states)
    return feeds, OutboxWriter(job, feeds, stats, states)


def _located(
    states: Mapping[str, FeedState], destinations: Sequence[str], directory: Path | None, job: str
) -> dict[str, FeedState]:
    """Return the states of the feeds by current destination. FeedError for a moved file or an older copy. Blocks."""
    found = dict(states)
    for destination in destinations:
        relative = _relative(destination, directory)
        if destination in found or relative is None:
            continue
        for old, state in states.items():
            if state.relative != relative or old in destinations or old not in found:
                continue
            if _may_be(destination, old, state):
                found[destination] = msgspec.structs.replace(found.pop(old), earlier=(*state.earlier, old))
                break
            if _has_same_start(destination, old, state):
                raise FeedError(
                    f"feed {destination}: it lacks records that job {job} has written to {old}: it is an older copy of"
                    f" that file. Copy the job first and its feeds afterwards",
                    destination,
                )
    missing = [(old, state) for old, state in found.items() if old not in destinations and _is_missing(old, state)]
    for destination in destinations:
        if destination in found or not os.path.isabs(destination):
            continue
        for old, state in missing:
            if _size(destination, state):
                raise FeedError(
                    f"feed {destination}: job {job} does not know this file, and its file {old} is missing: if that was"
                    f" moved, move it back, or move the job's directory too; otherwise use a file that does not exist",
                    destination,
                )
    return found


def _relative(destination: str, directory: Path | None) -> str | None:
    """Return a file's path relative to the job's directory; None if it is not a file or the job has no directory."""
    return os.path.relpath(destination, directory.resolve()) if directory and os.path.isabs(destination) else None


def _is_missing(destination: str, state: FeedState) -> bool:
    """Return whether a feed's file has records, but is missing at its destination."""
    is_written = state.position or (state.batch is not None and state.batch[0] > 1)
    return bool(is_written) and os.path.isabs(destination) and _size(destination, state) is None


def _may_be(destination: str, old: str, state: FeedState) -> bool:
    """Return whether ``old`` may have been moved or copied to a file: ``old`` is missing, or both files end equally."""
    if _size(old, state) is None:
        return True
    start = max(0, state.position - _COMPARED_BYTES)
    return _is_same(destination, old, state, start, state.position - start)


def _has_same_start(destination: str, old: str, state: FeedState) -> bool:
    """Return whether a file starts like the file of an old destination."""
    # Ignore the last bytes, because a complete file ends with the closing of its format, for example of a JSON array.
    length = max(0, min(state.position, _size(destination, state) or 0, _COMPARED_BYTES) - _END_BYTES)
    return _is_same(destination, old, state, 0, length)


def _is_same(destination: str, old: str, state: FeedState, start: int, length: int) -> bool:
    """Return whether two files of a feed can be read, and have the same ``length`` bytes from ``start``."""
    parts = []
    for each in (destination, old):
        with suppress(OSError), _path(each, state).open("rb") as file:
            file.seek(start)
            parts.append(file.read(length))
    return len(parts) == 2 and parts[0] == parts[1]


def _path(destination: str, state: FeedState) -> Path:
    """Return the path of a feed's file. For a feed with batches, this is the last batch."""
    return Path(fill_path(destination, batch=state.batch[0]) if state.batch is not None else destination)


def _size(destination: str, state: FeedState) -> int | None:
    """Return the size of a feed's file in bytes; None if the file is missing."""
    try:
        return _path(destination, state).stat().st_size
    except OSError:
        return None


def _tell(job: Job, feeds: Feeds, states: Mapping[str, FeedState]) -> None:
    """Warn about feeds of the job that are missing in this run."""
    given = [feed.destination for feed in feeds.all]
    for destination in states:
        if destination not in given and (given or job.session is None):
            logger.warning(
                "job %s: its feed %s is not in the settings of this run and gets no items", job.name, destination
            )
    waiting = job.outbox_end - job.outbox_start
    if waiting and not given and job.session is None:
        logger.warning("job %s: %d items wait for a feed, and this run has none", job.name, waiting)
