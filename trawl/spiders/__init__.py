"""Spiders of all kinds, and the interface of the running crawl for spiders."""

from typing import TYPE_CHECKING, Any

from trawl import scrapy_names
from trawl.spiders.crawl_spider import CrawlSpider, Rule
from trawl.spiders.crawler import Crawler
from trawl.spiders.feed_spider import CSVFeedSpider, Enclosure, FeedEntry, FeedSpider, XMLFeedSpider
from trawl.spiders.item_check import ItemCheck, SpidersSettings, item_check
from trawl.spiders.running_crawl import RunningCrawl, Waiting
from trawl.spiders.sitemap_spider import SitemapSpider
from trawl.spiders.spider import CustomSettings, ItemT, Output, Outputs, Spider, make_spider

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
    "RunningCrawl",
    "SitemapSpider",
    "Spider",
    "SpidersSettings",
    "Waiting",
    "XMLFeedSpider",
    "item_check",
    "make_spider",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return scrapy_names.submodule(__name__, name)
