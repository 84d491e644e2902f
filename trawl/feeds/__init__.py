"""Feeds. They write items to files or to standard output during the crawl, always as whole records."""

from trawl.feeds.base import End, FeedState, Format, FormatConflict
from trawl.feeds.options import FORMATS, STANDARD_OUTPUT, FeedOptions, feed_entry, with_attributes
from trawl.feeds.settings import ExportArguments, FeedMapping, FeedsSettings
from trawl.feeds.to_json import to_json, written_fields
from trawl.feeds.writer import Feeds, open_feeds

__all__ = [
    "FORMATS",
    "STANDARD_OUTPUT",
    "End",
    "ExportArguments",
    "FeedMapping",
    "FeedOptions",
    "FeedState",
    "Feeds",
    "FeedsSettings",
    "Format",
    "FormatConflict",
    "feed_entry",
    "open_feeds",
    "to_json",
    "with_attributes",
    "written_fields",
]
