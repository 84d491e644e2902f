"""A job made ready for one run: opened, known to be this spider's, with its frontier and its feeds."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import attrs
import trio

from trawl.blocking import Blocking
from trawl.clock import WallClock
from trawl.engine.holding import ItemStore
from trawl.engine.idling import is_asked_when_idle
from trawl.engine.note import Note, note_of
from trawl.engine.outlet import Writer
from trawl.feeds import Feeds, FeedsSettings, open_outbox
from trawl.frontier import Frontier, JobStore
from trawl.observe import Stats
from trawl.spiders import Spider

__all__ = ["Durable", "open_durable"]

logger: logging.Logger = logging.getLogger("trawl")


class Outbox(ItemStore, Writer, Protocol):
    """Encodes items, and is the writer task that copies them to the feeds."""


@attrs.frozen
class Durable:
    """A job in this run.

    Attributes:
        job: Where all is stored.
        note: What the job says of itself.
        frontier: Its pending requests.
        feeds: Its feeds, open.
        outbox: What copies its items to them.
    """

    job: JobStore
    note: Note
    frontier: Frontier
    feeds: Feeds
    outbox: Outbox


@asynccontextmanager
async def open_durable(
    directory: str,
    spider: Spider,
    *,
    wall: WallClock,
    blocking: Blocking,
    feeds: FeedsSettings,
    depth_first: bool,
    stats: Stats,
) -> AsyncGenerator[Durable, None]:
    """Hold a job for one run; leaving the block writes what was kept, and gives the job free for the next process.

    Args:
        directory: Where it is, or is to be.
        spider: Whose job it is.
        wall: Wall time.
        blocking: How blocking work is done.
        feeds: Where items go.
        depth_first: The newest of equals goes first.
        stats: Where ``feed_item_errors`` is counted.

    Raises:
        JobError: It is in use, damaged, of a newer release, or can't be written.
        UsageError: It belongs to another spider; the directory holds something else; a feed can't be opened.
    """
    from trawl.frontier.job import open_job  # noqa: PLC0415  # a crawl without a job needs no sqlite3
    from trawl.frontier.sqlite import open_frontier  # noqa: PLC0415

    job = await open_job(directory, blocking)
    try:
        note = note_of(job, spider, wall.to_utc(trio.current_time()))
        frontier = await open_frontier(job, spider, wall, depth_first=depth_first)
        opened, outbox = await open_outbox(
            feeds, blocking, job, spider_name=spider.name, started_utc=note.begun_utc, stats=stats
        )
        _tell(job, note, frontier, job.last_words, goes_on=is_asked_when_idle(spider))
        async with opened:
            yield Durable(job, note, frontier, opened, outbox)
    finally:
        await job.aclose()  # noqa: ASYNC102 - it shields itself


def _tell(job: JobStore, note: Note, frontier: Frontier, last_words: str, *, goes_on: bool) -> None:
    """Say in one line how far the job is."""
    if job.is_new:
        logger.info("job %s: new", job.directory)
        return
    pending = frontier.statistics().pending
    waiting = job.outbox_end - job.outbox_start
    is_finished = note.is_started and not pending and not goes_on
    if is_finished and waiting:
        words = "job %s: nothing is pending, so nothing will be sent; items that wait for its feeds: %d"
        logger.info(words, job.directory, waiting)
        return
    if is_finished:
        logger.warning(
            "job %s is finished: nothing is pending, so nothing will be sent; to crawl again, give another directory",
            job.directory,
        )
        return
    how = last_words or note.last_reason or "killed"
    words = "job %s: run %d, %d requests pending; the last run ended: %s"
    logger.info(words, job.directory, note.runs + 1, pending, how)
