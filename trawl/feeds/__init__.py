"""Feeds: items written to files and to standard output while the crawl runs, whole records only."""

from trawl.feeds.base import End, FeedReport, Format, NotThisFormat, OneFeed
from trawl.feeds.batches import BatchedFeed
from trawl.feeds.feed import Feed
from trawl.feeds.formats import make_format
from trawl.feeds.item_filter import ItemFilter
from trawl.feeds.options import FORMATS, STANDARD_OUTPUT, FeedOptions, feed_entry, feed_options, with_attributes
from trawl.feeds.outbox import OutboxWriter, open_outbox
from trawl.feeds.settings import ExportArguments, FeedMapping, FeedsSettings
from trawl.feeds.table import Table, TableFeed
from trawl.feeds.targets import FileTarget, StreamTarget, Target
from trawl.feeds.to_json import to_json, written_fields
from trawl.feeds.writer import Feeds, open_feeds

__all__ = [
    "FORMATS",
    "STANDARD_OUTPUT",
    "BatchedFeed",
    "End",
    "ExportArguments",
    "Feed",
    "FeedMapping",
    "FeedOptions",
    "FeedReport",
    "Feeds",
    "FeedsSettings",
    "FileTarget",
    "Format",
    "NotThisFormat",
    "OneFeed",
    "OutboxWriter",
    "ItemFilter",
    "StreamTarget",
    "Table",
    "TableFeed",
    "Target",
    "feed_entry",
    "feed_options",
    "make_format",
    "open_feeds",
    "open_outbox",
    "to_json",
    "with_attributes",
    "written_fields",
]
