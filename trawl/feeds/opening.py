"""The feed that a feed's options ask for."""

from __future__ import annotations

from datetime import datetime

from trawl.errors import FeedError
from trawl.feeds.base import OneFeed
from trawl.feeds.batches import BatchedFeed
from trawl.feeds.feed import Feed
from trawl.feeds.naming import names_in
from trawl.feeds.options import TABLES, FeedOptions
from trawl.feeds.table import TableFeed

__all__ = ["make_feed", "refuse_for_job"]


def make_feed(options: FeedOptions, *, started_utc: datetime) -> OneFeed:
    """The feed, not open yet.

    Args:
        options: How it is written.
        started_utc: The wall time now.

    Raises:
        SettingsError: It needs what is not installed.
    """
    if options.is_batched:
        return BatchedFeed(options, _one_file, started_utc=started_utc)
    return _one_file(options)


def refuse_for_job(options: FeedOptions) -> None:
    """Refuse a feed that no later run of a job could go on with.

    Raises:
        FeedError: It is one.
    """
    why = ""
    if options.format == "parquet":
        why = "a parquet file can't be continued; write sqlite or jsonl"
    elif options.is_remote:
        why = "what is in a store can't be continued; write to a file and copy it when the job is finished"
    elif options.is_batched and "batch_time" in names_in(options.uri):
        why = "the times of batches are not those of the run before; number them: %(batch)05d"
    if why:
        raise FeedError(f"feed {options.uri}: can't be a feed of a job: {why}", options.uri)


def _one_file(options: FeedOptions) -> OneFeed:
    return TableFeed(options) if options.format in TABLES else Feed(options)
