"""Spiders, and what they see of their crawl."""

from trawl.spiders.crawl_spider import CrawlSpider, Rule
from trawl.spiders.crawler import Crawler
from trawl.spiders.feed_spider import Enclosure, FeedEntry, FeedSpider
from trawl.spiders.node_spiders import CSVFeedSpider, XMLFeedSpider
from trawl.spiders.results import ItemT, Output, Outputs
from trawl.spiders.running_crawl import RunningCrawl, ThrottlingControl
from trawl.spiders.settings import SpidersSettings
from trawl.spiders.sitemap_spider import SitemapSpider
from trawl.spiders.spider import CustomSettings, Spider, make_spider
from trawl.spiders.validation import ItemCheck, item_check

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
    "ThrottlingControl",
    "XMLFeedSpider",
    "item_check",
    "make_spider",
]
