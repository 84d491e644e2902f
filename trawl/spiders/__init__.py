"""Spiders of all kinds, and the running crawl as they see it."""

from typing import TYPE_CHECKING, Any

from trawl import scrapy_names
from trawl.spiders.crawl_spider import CrawlSpider, Rule
from trawl.spiders.feed_spider import CSVFeedSpider, Enclosure, FeedEntry, FeedSpider, XMLFeedSpider
from trawl.spiders.item_check import ItemCheck, SpidersSettings, item_check
from trawl.spiders.sitemap_spider import SitemapSpider
from trawl.spiders.spider import CustomSettings, ItemT, Output, Outputs, Spider, make_spider

if TYPE_CHECKING:
    from trawl.compat.crawler import Crawler

__all__ = [
    "CSVFeedSpider",
    "CrawlSpider",
    "Crawler",
    "CustomSettings",
    "Enclosure",
    "FeedEntry",
    "FeedSpider",
    "ItemCheck",
    "ItemT",
    "Output",
    "Outputs",
    "Rule",
    "SitemapSpider",
    "Spider",
    "SpidersSettings",
    "XMLFeedSpider",
    "item_check",
    "make_spider",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Crawler":  # used by this package in annotations only; compat is above it
            from trawl.compat.crawler import Crawler  # noqa: PLC0415

            return Crawler
        return scrapy_names.submodule(__name__, name)
